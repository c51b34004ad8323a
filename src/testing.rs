//! For tests of a [`Work`](crate::work::Work), without AWS and without a server: an SQS queue and an
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
//! use idempotent_sqs::testing::{Mapping, MappingSettings, SendRequest, Place, Queue, QueueSettings};
//!
//! # #[derive(Default)]
//! # struct SendInvoice {
//! #     sent: AtomicUsize,
//! # }
//! # impl Work for SendInvoice {
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
//!     assert!(queue.history().iter().all(|message| message.place == Place::Deleted));
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
//! # By hand
//! A mapping need not drive a handler. Whatever can take an event and give an answer can be tested:
//!
//! ```
//! use idempotent_sqs::testing::{Answer, Ended, Mapping, MappingSettings, Queue, QueueSettings};
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

mod answer;
mod drive;
mod event;
mod faulty;
mod history;
mod mapping;
mod queue;
mod rng;
mod send_request;

pub use self::answer::Answer;
pub use self::event::Received;
pub use self::faulty::{Fault, FaultyStore, Verb};
pub use self::history::{Entry, Place, QueueCounts};
pub use self::mapping::{Ended, Invocation, Mapping, MappingCounts, MappingSettings};
pub use self::queue::{DeadLetter, DeduplicationScope, Queue, QueueSettings, Refused};
pub use self::send_request::{Attribute, SendRequest};
