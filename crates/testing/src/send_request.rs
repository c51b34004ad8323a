//! The message that a producer sends.

use std::collections::BTreeMap;
use std::time::Duration;

use idempotent_sqs::sqs::{AttributeValue, DeadLetterMessage, MessageAttribute};
use md5::{Digest, Md5};

/// The parameters of `SendMessage`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendRequest {
    pub(super) body: String,
    pub(super) attributes: BTreeMap<String, Attribute>,
    pub(super) group: Option<String>,
    pub(super) deduplication_id: Option<String>,
    pub(super) trace_header: Option<String>,
    pub(super) delay: Option<Duration>,
}

/// A message attribute:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Text.
    String(String),
    /// A number, as decimal text, with up to 38 digits and from 10^-128 to 10^126.
    Number(String),
    /// Bytes.
    Binary(Vec<u8>),
}

impl SendRequest {
    /// A message with this body and no attributes.
    #[must_use]
    pub fn new(body: impl Into<String>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// Adds a message attribute, such as `Idempotency-Key`.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Attribute>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Sets the message group. A FIFO queue delivers a group in order; on a standard queue it is only a tag.
    #[must_use]
    pub fn group(self, group: impl Into<String>) -> Self {
        Self { group: Some(group.into()), ..self }
    }

    /// Sets the `MessageDeduplicationId`, which only FIFO queues accept.
    #[must_use]
    pub fn deduplication_id(self, id: impl Into<String>) -> Self {
        Self { deduplication_id: Some(id.into()), ..self }
    }

    /// Sets the message system attribute `AWSTraceHeader`, which does not count towards SQS's limits:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#sqs-message-system-attributes>
    #[must_use]
    pub fn trace_header(self, header: impl Into<String>) -> Self {
        Self { trace_header: Some(header.into()), ..self }
    }

    /// Sets `DelaySeconds`: the message can be received after this time, in whole seconds, up to 15 minutes. Only
    /// standard queues accept it.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay: Some(delay), ..self }
    }

    /// The body and the text attributes.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let attributes = self.attributes.values().filter_map(|value| match value {
            Attribute::String(text) | Attribute::Number(text) => Some(text.as_str()),
            Attribute::Binary(_) => None,
        });
        attributes.chain([self.body.as_str()])
    }

    /// Size that counts towards SQS's limit, bytes: the body, and the names, types and values of attributes.
    pub(super) fn size(&self) -> usize {
        let attributes = self.attributes.iter();
        self.body.len()
            + attributes.map(|(name, value)| name.len() + value.data_type().len() + value.bytes().len()).sum::<usize>()
    }

    pub(super) fn md5_of_body(&self) -> String {
        hex(&Md5::digest(&self.body))
    }

    /// The checksum of the attributes; `None` without attributes:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#sqs-attributes-md5-message-digest-calculation>
    pub(super) fn md5_of_attributes(&self) -> Option<String> {
        const STRING: u8 = 1;
        const BINARY: u8 = 2;
        let mut md5 = Md5::new();
        let part = |md5: &mut Md5, bytes: &[u8]| {
            md5.update(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            md5.update(bytes);
        };
        for (name, value) in &self.attributes {
            part(&mut md5, name.as_bytes());
            part(&mut md5, value.data_type().as_bytes());
            md5.update([match value {
                Attribute::String(_) | Attribute::Number(_) => STRING,
                Attribute::Binary(_) => BINARY,
            }]);
            part(&mut md5, value.bytes());
        }
        (!self.attributes.is_empty()).then(|| hex(&md5.finalize()))
    }
}

impl Attribute {
    pub(super) fn data_type(&self) -> &'static str {
        match self {
            Self::String(_) => "String",
            Self::Number(_) => "Number",
            Self::Binary(_) => "Binary",
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::String(text) | Self::Number(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

impl From<DeadLetterMessage> for SendRequest {
    fn from(message: DeadLetterMessage) -> Self {
        let DeadLetterMessage { body, attributes, group_id, deduplication_id, trace_header, .. } = message;
        let attributes = attributes.into_iter().map(|(name, value)| (name, value.into())).collect();
        Self { body, attributes, group: group_id, deduplication_id, trace_header, delay: None }
    }
}

impl From<MessageAttribute> for Attribute {
    /// Labels of producers, as in `Number.int`, are not simulated.
    fn from(attribute: MessageAttribute) -> Self {
        match attribute.value {
            AttributeValue::Text(text) if attribute.data_type.starts_with("Number") => Self::Number(text),
            AttributeValue::Text(text) => Self::String(text),
            AttributeValue::Binary(bytes) => Self::Binary(bytes),
            AttributeValue::Unreadable => Self::Binary(Vec::new()),
        }
    }
}

impl From<&str> for SendRequest {
    fn from(body: &str) -> Self {
        Self::new(body)
    }
}

impl From<String> for SendRequest {
    fn from(body: String) -> Self {
        Self::new(body)
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}
