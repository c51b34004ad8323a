//! What is known of the messages that were sent.

use std::collections::BTreeMap;
use std::fmt::Write;

use idempotent_sqs::sqs::MessageAttribute;
use idempotent_sqs_testing::SendRequest;
use sha2::{Digest, Sha256};

use crate::producers::{NUMBER, number_attribute};
use crate::sqs::Letter;

/// What is known of a message that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The payment that it asks for. Messages with the same payment have the same payload.
    pub payment: u64,
    /// The payment of an earlier event of S3 with the same content, but for its sequencer.
    pub same_content: Option<u64>,
    pub key: SentKey,
    /// Its payload in S3, where it may be unavailable for some time.
    pub object: Option<Object>,
    /// What its work is passed: the body, with a payload of S3 in place of its pointer.
    pub input: String,
    pub attributes: BTreeMap<String, MessageAttribute>,
    pub group: Option<String>,
    pub deduplication_id: Option<String>,
    /// The X-Ray trace header of the sender.
    pub trace_header: Option<String>,
}

/// A payload in S3.
#[derive(Clone, Debug)]
pub struct Object {
    /// Each message has an object of its own.
    pub name: String,
    pub state: ObjectState,
}

/// Whether an object can be read, apart from the times at which S3 is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    Readable,
    /// Was deleted before its message was sent.
    Deleted,
    /// Is deleted as soon as its payment is made.
    DeletedOnceMade,
    /// Is not UTF-8.
    NotText,
    /// Is larger than the function reads.
    TooLarge,
    /// Is in a bucket that the function may not read.
    OtherBucket,
}

/// The key of a message.
#[derive(Clone, Debug)]
pub enum SentKey {
    Text(String),
    /// Its messageId.
    MessageId,
    /// Its group and its deduplicationId.
    DeduplicationId,
    /// It has none that can be used.
    Unusable,
}

impl ObjectState {
    /// Whether it can be read at no time.
    pub fn is_unreadable(self) -> bool {
        matches!(self, Self::Deleted | Self::NotText | Self::TooLarge | Self::OtherBucket)
    }
}

impl Sent {
    /// Whether its payload can be read at no time.
    pub fn is_unreadable(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.state.is_unreadable())
    }

    /// Whether its payload cannot be read at some time, apart from the times at which S3 is unavailable.
    pub fn may_be_unreadable(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.state != ObjectState::Readable)
    }

    /// The request that sends it with this body.
    pub fn request(&self, body: String) -> SendRequest {
        let attributes = self.attributes.iter();
        let request = attributes
            .fold(SendRequest::new(body), |request, (name, attribute)| request.attribute(name, attribute.clone()));
        let request = self.trace_header.iter().fold(request, SendRequest::trace_header);
        let request = self.group.iter().fold(request, SendRequest::group);
        self.deduplication_id.iter().fold(request, SendRequest::deduplication_id)
    }

    /// The message with this number that a dead letter of this one becomes when it is moved back, and its request.
    pub fn redriven(&self, letter: &Letter, number: u64) -> (Self, SendRequest) {
        // Only a FIFO queue accepts an id.
        let deduplication_id = self.deduplication_id.as_ref().map(|_| letter.message_id.clone());
        let mut sent = Self { deduplication_id, ..self.clone() };
        let mut attributes = letter.attributes.clone();
        // An operator's move keeps the attributes. The number is that of the new message, by which its letter is known.
        for attributes in [&mut sent.attributes, &mut attributes] {
            attributes.entry(NUMBER.to_owned()).and_modify(|value| *value = number_attribute(number));
        }
        let request = Self { attributes, ..sent.clone() }.request(letter.body.clone());
        (sent, request)
    }
}

/// The form under which the key of a record has this text: docs of `Key::stored`.
pub fn stored(key: &str) -> String {
    let is_reserved = key.starts_with("dead-letter:") || key.starts_with("sha256:") || key.contains('\0');
    if key.len() <= 200 && !is_reserved {
        return key.to_owned();
    }
    format!("sha256:{}", hex(&Sha256::digest(key)))
}

/// The digits of these bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _written = write!(text, "{byte:02x}");
        text
    })
}
