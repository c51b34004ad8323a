//! The core on its stores, without SQS, Lambda and AWS. Test names are sentences.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

/// The state machine of a record, on every store.
mod conformance;
/// One delivery of one key: acquire, work, settle.
mod core;
/// How the time of an invocation is divided.
mod deadline;
/// Every schedule of faults, in a model of the protocol.
mod model;
/// Redis: scripts, records, servers of every kind, and connections that fail.
mod redis;
/// The scripts on a real server, compared with the pure state machine at random.
mod reference;
