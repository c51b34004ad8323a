//! For tests of a [`Work`](idempotent_sqs::idempotency::Work), without AWS and without a server: an SQS queue and an
//! event source mapping in this process, with AWS's own rules, and a store with faults. Behind the
//! feature `testing`, which belongs under `[dev-dependencies]`.
//!
//! ```
//! # use std::sync::atomic::{AtomicUsize, Ordering};
//! # use idempotent_sqs::batch::{Batch, BatchSettings};
//! # use idempotent_sqs::handler::Handler;
//! # use idempotent_sqs::idempotency::{Idempotency, Policy};
//! # use idempotent_sqs::message::Message;
//! # use idempotent_sqs::store::Claim;
//! # use idempotent_sqs::stores::MemoryStore;
//! # use idempotent_sqs::work::{Work, WorkError};
//! use idempotent_sqs_testing::{Mapping, MappingSettings, SendRequest, MessageState, Queue, QueueSettings};
//!
//! # #[derive(Default)]
//! # struct SendInvoice {
//! #     sent: AtomicUsize,
//! # }
//! # impl Work<Message> for SendInvoice {
//! #     async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
//! #         self.sent.fetch_add(1, Ordering::Relaxed);
//! #         Ok(Vec::new())
//! #     }
//! # }
//! // tokio's clock stands still, and jumps to the next thing that happens.
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() {
//!     let work = SendInvoice::default();
//!     let queue = Queue::new(QueueSettings::rough(), 7);
//!     let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
//!     let handler = Handler::new(Batch::new(idempotency, &work, BatchSettings::default()), Some(queue.visibility()));
//!
//!     for number in 0..100 {
//!         let key = format!("invoice-{number}");
//!         queue.send(SendRequest::new("12.50 EUR").attribute("Idempotency-Key", key)).unwrap();
//!     }
//!     Mapping::new(&queue, MappingSettings::default()).drain(&handler).await;
//!
//!     assert!(queue.history().iter().all(|message| message.state == MessageState::Deleted));
//!     assert!(queue.counts().received > 100);
//!     assert_eq!(work.sent.load(Ordering::Relaxed), 100);
//! }
//! ```
//!
//! # Time
//! All waits are tokio's. With its clock paused (`start_paused`, of tokio's feature `test-util`)
//! hours pass in milliseconds; running, it is real time. Do not pause it around real connections:
//! a paused clock jumps whenever everything waits, and a server's answer is such a wait.
//!
//! # Chance
//! What is left to chance depends on the seed, on the message, and on how often it was handed out
//! before, but not on its neighbours. So a schedule can be repeated by its seed, up to the jitter of
//! the library's own back-off, which is random on purpose.
//!
//! # Without a handler
//! A mapping need not drive a handler. Whatever can take an event and give an answer can be tested:
//!
//! ```
//! use idempotent_sqs_testing::{Answer, Ended, Mapping, MappingSettings, Queue, QueueSettings};
//!
//! let queue = Queue::new(QueueSettings::default(), 7);
//! queue.send("a payment").unwrap();
//! let mapping = Mapping::new(&queue, MappingSettings::default());
//! while let Some(invocation) = mapping.poll() {
//!     assert!(invocation.event().starts_with(r#"{"Records":[{"messageId":""#));
//!     let ended = invocation.end(Answer::Returned(br#"{"statusCode":200}"#.to_vec()));
//!     assert!(matches!(ended, Ended::Answered { deleted, .. } if deleted.len() == 1));
//! }
//! assert!(queue.is_empty(), "an answer without batchItemFailures deletes every message");
//! ```

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
mod memory_objects;
#[cfg(feature = "lambda")]
mod queue;
mod rng;
#[cfg(feature = "lambda")]
mod send_request;

pub use attempt::{attempt, claim, recovery};
pub use faulty::{Fault, FaultyStore, StoreCall};
pub use memory_objects::MemoryObjects;

#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub use self::{
    answer::Answer,
    event::Received,
    history::{Entry, MessageState, QueueCounts},
    mapping::{Ended, Invocation, Mapping, MappingCounts, MappingSettings},
    queue::{DeadLetter, DeduplicationScope, Queue, QueueSettings, Refused},
    send_request::{Attribute, SendRequest},
};
