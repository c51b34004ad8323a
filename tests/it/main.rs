//! What the project promises, each promise a test whose name is a sentence.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer is a failure")]
#![allow(clippy::unchecked_time_subtraction, reason = "a test knows its times")]

/// Servers that the tests start, and stand-ins for what only AWS has.
mod support;

/// What a reader of the code relies on: layers, and headers that say what is so.
mod architecture;
/// Many messages: side by side, in order, or not at all, and what their queue is told.
mod batch;
/// The state machine of a record, on every store.
mod conformance;
/// The core: one delivery of one key, acquire, work, settle.
mod core;
/// How the time of an invocation is spent, however much there is.
mod deadline;
/// What other services of AWS put around a payload: known, opened, and never mistaken.
mod envelopes;
/// SQS's own JSON: every sample event, events that are not as they should be, and the response.
mod events;
/// The function's own binary, from the Lambda Runtime API to Redis, the webhook and SQS.
mod function;
/// Effects in PostgreSQL, which take place once whatever becomes of the store's records.
#[cfg(feature = "postgres")]
mod inbox;
/// Which messages are the same work, by their keys.
mod keys;
/// The ledger: payment events on accounts, in any order, and the audit of them.
#[cfg(feature = "postgres")]
mod ledger;
/// Every schedule of faults, of a model of the protocol.
mod model;
/// Payloads that the extended clients put in S3: fetched, judged and handed to the work.
mod offload;
/// When two payloads are the same, and the keys in them.
mod payload;
/// What holds of any input: events, keys and fingerprints, a store's answers.
mod properties;
/// The operator's tool, by its own binary: a look at the records, and their removal.
#[cfg(feature = "records")]
mod records;
/// Redis itself: scripts, bytes, servers of every kind, and connections that break.
mod redis;
/// The scripts on a real server against a plain model of the record, at random.
mod reference;
/// Results that are too large for their record: put in objects, and got back by duplicates.
mod results;
/// What the environment may say, and what is said of its faults.
mod settings;
/// What template.yaml grants, on a real server: the function works under it, and can do nothing else.
mod template;
/// A queue, an event source mapping and a faulty store, against the rules of AWS's own.
mod testing;
/// Processes killed and stopped, a Redis that breaks, and a count of what came of it.
mod torture;
