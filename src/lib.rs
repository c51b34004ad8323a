#![cfg_attr(docsrs, feature(doc_cfg))]
//! SQS delivers messages at least once. This library, and the Lambda function built from it, make the *work* of each
//! message take effect once.
//!
//! Each message of a batch acquires its record on Redis or Valkey with an atomic Lua script. A first delivery runs the
//! business logic. A duplicate is acknowledged without running it. The partial batch response names only messages that
//! failed or are in conflict, so only they are delivered again.
//!
//! ```text
//! event → messages → batch → acquire → work → settle → response
//!            sqs       sqs    └── idempotency ──┘       sqs
//! ```
//!
//! # A Lambda function with your own work
//! ```no_run
#![doc = include_str!("../examples/noop.rs")]
//! ```
//!
//! # Any other consumer
//! [`Idempotency::run`] takes one delivery of a key from any broker or job and returns a [`Report`], whose
//! [`decision`](Report::decision) is to acknowledge, to retry or to dead-letter:
//!
//! ```
//! use idempotent_sqs::{Claim, Decision, Delivery, Idempotency, Key, MemoryStore, Policy, WorkError, work_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let charge = work_fn(|claim: &Claim, amount: &u32| {
//!     let receipt = format!("{} charged {amount}", claim.key());
//!     async move { Ok::<_, WorkError>(receipt.into_bytes()) }
//! });
//! let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
//!
//! let delivery = Delivery::new(Key::new("pay_7f3a")?).message_id("0191d3a2");
//! let report = idempotency.run(&delivery, &charge, &1250).await?;
//! match report.decision(1) {
//!     Decision::Ack => println!("acknowledge"),
//!     Decision::Retry { after } => println!("deliver again after {after:?}"),
//!     Decision::DeadLetter => println!("move to the dead-letter queue"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Testing
//! [`MemoryStore`] needs no server. The crate `idempotent-sqs-testing` has a claim for unit tests, a simulated queue
//! with an event source mapping, a store with faults, and the conformance suite for stores.
//!
//! # Terminology
//! - A *record* is the entry of the store for a *key*. Two messages with the same key are the same work. The
//!   *fingerprint* of a record is a hash of the payload.
//! - A record is PROCESSING, COMPLETED, FAILED or absent. An attempt that *acquires* it becomes its *owner* until the
//!   *lease* ends, and gets a *claim* with a *fence*, a number that grows with each claim. *Complete* and *fail* settle
//!   the claim, and *release* undoes the acquire. Only the owner can do this; any other attempt has *lost* the record.
//! - *Work* is the business logic. A *recovery* is an attempt after one that may have taken effect. The *disposition*
//!   of a message is whether SQS deletes it or delivers it again.
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `redis` | yes | [`RedisStore`] |
//! | `serde` | yes | [`Idempotency::once`]: closures whose value is kept as JSON |
//! | `aws` | yes | [`aws`]: IAM authentication tokens and Secrets Manager |
//! | `lambda` | yes | [`sqs`], [`lambda`], [`config`], [`metrics`], [`traces`]; enables `redis` and `aws` |
//! | `webhook` | yes | [`webhook`], and the binary `idempotent-sqs` |
//! | `s3` | yes | [`s3`]: payloads and results in S3; enables `aws` |
//! | `otel` | no | sends [`traces`] to an OpenTelemetry collector |
//!
//! Without any feature, the library has the core and [`MemoryStore`].

// The core: one delivery of one key.
pub mod idempotency;

// Clients of HTTP services.
#[cfg(any(feature = "lambda", feature = "s3"))]
mod connections;

// Stores of records, and their credentials.
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod credentials;
pub mod stores;

// AWS, shared by the modules below.
#[cfg(feature = "aws")]
#[cfg_attr(docsrs, doc(cfg(feature = "aws")))]
pub mod aws;
#[cfg(feature = "s3")]
#[cfg_attr(docsrs, doc(cfg(feature = "s3")))]
pub mod s3;

// Batches of SQS messages.
#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub mod sqs;

// Metrics and traces of an invocation.
#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub mod metrics;
#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub mod traces;

// Invocations of the function.
#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub mod lambda;

// The built-in work.
#[cfg(feature = "webhook")]
#[cfg_attr(docsrs, doc(cfg(feature = "webhook")))]
pub mod webhook;

// Settings from the environment.
#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub mod config;

#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub use config::Config;
pub use idempotency::{
    Claim, Deadline, Decision, Delivery, Fingerprint, Idempotency, Key, Outcome, Policy, Report, Store, Work,
    WorkError, work_fn,
};
#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub use sqs::Message;
pub use stores::MemoryStore;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use stores::{RedisSettings, RedisStore};

// The examples of this page compile.
#[cfg(all(doctest, feature = "redis", feature = "serde"))]
#[doc = include_str!("../docs/consumers.md")]
struct ConsumersPage;
