//! The function and its SQS layer. Test names are sentences.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

/// Layers, dependencies, and the form of the scripts.
mod architecture;
/// Messages side by side, in order, or not at all, and what their queue is told.
mod batch;
/// Envelopes of SNS, EventBridge and S3: opened, and never mistaken.
mod envelopes;
/// SQS events: the samples, malformed events, and the response.
mod events;
/// Payloads that the extended clients stored in S3.
mod extended_client;
/// The function's binary, from the Lambda Runtime API to Redis, the webhook and SQS.
mod function;
/// Which messages are the same work, by their keys.
mod keys;
/// Which payloads are the same, and the keys in them.
mod payload;
/// Properties of any input: events, keys, fingerprints and replies of a store.
mod properties;
/// Results that are too large for their record.
mod results;
/// Settings and their errors.
mod settings;
/// The rights that template.yaml grants, on a real server.
mod template;
/// Processes that are killed, a Redis that fails, and counts of the consequences.
mod torture;
