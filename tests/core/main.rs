//! The core on its stores, without SQS, Lambda and AWS.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

mod conformance;
mod core;
mod deadline;
mod decision;
mod model;
mod once;
mod redis;
mod reference;
mod works;
