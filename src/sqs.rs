//! SQS on Lambda: from an event to messages, a batch, and the partial batch response.
//!
//! - `event`: parses the event into messages
//! - `message`, `attribute`: one delivery, and its message attributes
//! - `envelope`, `payload`: the payload within the notifications of SNS, EventBridge and S3
//! - `key`, `fingerprint`: how the key and the fingerprint of a message are found
//! - `json`: values within JSON
//! - `extended_client`: payloads in S3
//! - `batch`: runs the messages of an event, each through the core
//! - `message_report`, `outcome`: what happened to each message
//! - `disposition`: whether it is deleted or delivered again
//! - `client`: the SQS client
//! - `dead_letter`: why a message was moved to the dead-letter queue
//! - `dead_letter_queue`: sends a message there
//! - `response`: the partial batch response
//! - `timings`: how long the steps of an invocation took
//! - `visibility`: when a failed message is received again

mod attribute;
mod batch;
mod client;
mod dead_letter;
mod dead_letter_queue;
mod disposition;
mod envelope;
mod event;
mod extended_client;
mod fingerprint;
mod json;
mod key;
mod message;
mod message_report;
mod outcome;
mod payload;
mod response;
mod timings;
mod visibility;

pub use attribute::{AttributeValue, MessageAttribute};
pub use batch::{Batch, BatchSettings};
#[doc(hidden)]
pub use client::region_of;
pub use dead_letter::{DeadLetter, DeadLetterOutcome, DeadLetterOutcomeError};
pub use dead_letter_queue::{DeadLetterMessage, DeadLetterQueue};
pub use disposition::Disposition;
pub use envelope::Envelopes;
pub use event::{EventError, messages};
pub use extended_client::{ExtendedClient, ExtendedClientError};
pub use fingerprint::{FingerprintSource, FingerprintSourceError};
pub use key::{KeyError, KeySource, KeySourceError};
pub use message::Message;
pub use message_report::MessageReport;
pub use outcome::MessageOutcome;
pub use payload::Payload;
pub use response::{BatchItemFailure, SqsBatchResponse, response};
pub(crate) use timings::Timings;
pub use visibility::Visibility;
