//! The function and its SQS layer. Each test name states the behaviour that it covers.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other value must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

mod access_strings;
mod architecture;
mod batch;
mod docs;
mod envelopes;
mod events;
mod extended_client;
mod function;
mod keys;
mod payload;
mod properties;
mod results;
mod scripts;
mod sdk;
mod settings;
