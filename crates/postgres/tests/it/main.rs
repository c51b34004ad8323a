//! The inbox, the backfill, their database and their settings. Test names are sentences.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

mod backfill;
mod fixture;
mod http;
mod inbox;
mod roots;
mod settings;
