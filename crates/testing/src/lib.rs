//! Test utilities for a [`Work`](idempotent_sqs::Work) or a [`Store`](idempotent_sqs::Store), without AWS or a server.
//!
//! - [`claim`] and [`recovery`]: claims for unit tests of a [`Work`](idempotent_sqs::Work)
//! - [`FaultyStore`]: a store that injects faults
//! - [`MemoryObjectStore`]: an object store in memory
//! - [`conformance`]: the tests that every [`Store`](idempotent_sqs::Store) must pass
//! - `Queue`, `Mapping` (feature `lambda`): a simulated SQS queue and event source mapping
//!
//! Add this crate to the `[dev-dependencies]`.
//!
//! # Unit tests
//! ```
//! use idempotent_sqs::{Claim, Work, WorkError};
//! use idempotent_sqs_testing::{claim, recovery};
//!
//! struct SendInvoice;
//!
//! impl Work<str> for SendInvoice {
//!     async fn run(&self, claim: &Claim, customer: &str) -> Result<Vec<u8>, WorkError> {
//!         Ok(format!("invoice {} sent to {customer}", claim.key()).into_bytes())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! assert_eq!(SendInvoice.run(&claim("2026-11"), "acme").await.unwrap(), b"invoice 2026-11 sent to acme");
//! assert_eq!(SendInvoice.recover(&recovery("2026-11"), "acme").await.unwrap(), b"invoice 2026-11 sent to acme");
//! # }
//! ```
//!
//! # Time
//! All waits use tokio's clock. If it is paused (`start_paused`, of tokio's feature `test-util`), waits take no
//! real time. Do not pause it in tests with real connections: a paused clock advances when all tasks are idle,
//! including tasks that wait for a server. Delays by the age of a message do not depend on it: the library compares the
//! first receive with the time of the system.
//!
//! # Randomness
//! A random choice for a message depends on the seed, on the place of the message in the order of arrival, and on the
//! number of its deliveries. It does not depend on when other messages are received or deleted, nor on the choices for
//! them. A message that is sent earlier changes the place, and so the choices. A random fault of a [`FaultyStore`]
//! depends on the seed, the key, the call and its number. A schedule can be repeated by its seed and the same sends,
//! except for the jitter of the library's backoff.

#[cfg(feature = "lambda")]
mod answer;
mod attempt;
pub mod conformance;
#[cfg(feature = "lambda")]
mod drive;
#[cfg(feature = "lambda")]
mod event;
mod faulty;
#[cfg(feature = "lambda")]
mod history;
#[cfg(feature = "lambda")]
mod mapping;
mod memory_object_store;
#[cfg(feature = "lambda")]
mod queue;
mod rng;
#[cfg(feature = "lambda")]
mod send_request;

pub use attempt::{attempt, claim, recovery};
pub use faulty::{Fault, FaultyStore, StoreCall};
pub use memory_object_store::MemoryObjectStore;

#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub use self::{
    answer::InvocationResult,
    event::ReceivedMessage,
    history::{MessageHistory, MessageState, QueueCounts},
    mapping::{BatchOutcome, Invocation, Mapping, MappingCounts, MappingSettings},
    queue::{DeadLetter, DeduplicationScope, Queue, QueueSettings, SqsError},
    send_request::{Attribute, SendRequest},
};
