//! SQS delivers at least once. This library, and the function built of it, make the work of each
//! message take effect once.
//!
//! A message of a batch goes through an atomic Lua check on Redis or Valkey: a first delivery runs
//! the business logic, a duplicate is acknowledged without running it, and only a message in
//! conflict or failed is named in the partial batch response, so that it alone comes again.
//!
//! Data flows one way:
//!
//! ```text
//! event → messages → batch → claim → work → settle → response
//!   sqs    message    batch   store   work   store     sqs
//!                       └─ idempotency, for each message ─┘
//! ```
//!
//! # A function of your own
//! ```no_run
#![doc = include_str!("../examples/noop.rs")]
//! ```
//!
//! # The words
//! - *message*: one SQS delivery. *Idempotency record*: what the store keeps under a *key*, which
//!   makes two messages the same work; its *fingerprint* tells whether they really are.
//! - A record is PROCESSING, COMPLETED, FAILED or absent. To *acquire* it is to own it for a
//!   *lease*, and gives a *claim* with a *fence*, a number that only grows. *Complete* and *fail*
//!   settle the claim; only its *owner* may, anyone else has *lost* it.
//! - *Work* is the business logic, and its *result* is handed back to duplicates. A *recovery* is
//!   an attempt after one that may have taken effect. The *disposition* is what the queue is told.

// Values that every layer uses: keys, fingerprints, messages, deadlines.
pub mod deadline;
mod envelope;
mod json;
pub mod message;
pub mod record;

// AWS-derived credentials for Redis and PostgreSQL.
pub mod identity;

// The contracts: a store of objects, a store of records, and the business logic.
pub mod object;
pub mod store;
pub mod work;

// The state machine of a record, as pure functions.
pub mod protocol;

// PostgreSQL, for works whose effects are rows of a database.
#[cfg(feature = "postgres")]
pub mod database;

// Their implementations.
pub mod objects;
pub mod stores;
pub mod works;

// The core: one delivery of one key.
pub mod idempotency;
pub mod results;

// Copies rows of the inbox to a store that has lost its records.
#[cfg(feature = "postgres")]
pub mod relay;

// Batches of messages, what SQS is told of each, and metrics and traces.
pub mod batch;
pub mod disposition;
pub mod metrics;
pub mod offload;
mod timings;
pub mod traces;

// AWS: SQS's events and answers, Lambda's invocations.
pub mod handler;
pub mod sqs;
pub mod visibility;

// Loads settings from the environment and reports every error together.
pub mod config;

// What tests need.
#[cfg(feature = "testing")]
pub mod testing;
