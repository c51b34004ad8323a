//! The inbox, the backfill and their database. Test names are sentences.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

/// Rows copied to a store that has lost its records.
mod backfill;
/// Effects that take place once, whatever happens to the store's records.
mod inbox;
