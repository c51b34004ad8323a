//! One delivery, and where its key and its fingerprint are found.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::json::Json;
use crate::record::{Fingerprint, Key};

/// One SQS delivery, free of AWS's types.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// SQS's messageId. A redrive or a new send of the same work has another.
    pub id: String,
    /// The body as it was sent; `None` where the delivery could not be read.
    pub body: Option<String>,
    /// Message attributes of type String or Number, and what is not text as `None`.
    pub attributes: HashMap<String, Option<String>>,
    /// `MessageDeduplicationId`, on FIFO queues.
    pub deduplication_id: Option<String>,
    /// `MessageGroupId`. Standard queues carry it too (fair queues), and it means no order there.
    pub group_id: Option<String>,
    /// How often SQS has handed the message out. It counts conflicts and throttles too.
    pub receive_count: Option<u32>,
    /// ARN of the queue that delivered it.
    pub queue_arn: Option<String>,
    /// What SQS wants to see when the visibility of this delivery is changed.
    pub receipt_handle: Option<String>,
    /// X-Ray's header of the trace that the message was sent in:
    /// <https://docs.aws.amazon.com/xray/latest/devguide/xray-services-sqs.html>
    pub trace_header: Option<String>,
}

impl Message {
    /// The body, empty where there is none.
    #[must_use]
    pub fn body(&self) -> &str {
        self.body.as_deref().unwrap_or_default()
    }

    /// Whether its queue keeps the order of groups. Told by the queue's name, never by the presence
    /// of a group: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html>
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.queue_arn.as_deref().is_some_and(|arn| arn.strip_suffix(".fifo").is_some())
    }
}

/// Where a key may be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The message attribute of this name.
    Attribute(String),
    /// The value at this JSON Pointer (RFC 6901) of the body: a string or a number.
    Body(String),
    /// `MessageDeduplicationId`.
    DeduplicationId,
    /// SQS's messageId. It knows a redelivery, but neither a redrive nor a producer's retry.
    MessageId,
}

/// Why a message has no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// None of the places has one.
    #[error("none of the places of the idempotency key has one")]
    Absent,
    /// A place has something, and it cannot be a key. Looking on would lose the protection that
    /// the producer asked for.
    #[error("the idempotency key at {0} is neither text that is not empty nor a number")]
    Unusable(String),
}

impl KeySource {
    /// The message's key, from the first of these places that has one.
    ///
    /// # Errors
    /// [`KeyError`], where none has, or the first that does has something else there.
    pub fn find(sources: &[Self], message: &Message) -> Result<Key, KeyError> {
        let json = LazyCell::new(|| serde_json::from_str::<Json<'_>>(message.body()).unwrap_or_default());
        for source in sources {
            let found = match source {
                Self::Attribute(name) => match message.attributes.get(name) {
                    Some(Some(value)) => Found::Text(value.into()),
                    Some(None) => Found::Other,
                    None => Found::Nothing,
                },
                Self::DeduplicationId => {
                    message.deduplication_id.as_ref().map_or(Found::Nothing, |id| Found::Text(id.into()))
                }
                Self::MessageId => Found::Text(message.id.as_str().into()),
                Self::Body(pointer) => json.pointer(pointer).map_or(Found::Nothing, Found::in_json),
            };
            let unusable = || KeyError::Unusable(source.to_string());
            match found {
                Found::Nothing => {}
                Found::Text(key) => return Key::new(&key).ok_or_else(unusable),
                Found::Other => return Err(unusable()),
            }
        }
        Err(KeyError::Absent)
    }
}

/// What is at the place of a key.
enum Found<'a> {
    Nothing,
    Text(Cow<'a, str>),
    /// Something that cannot be a key.
    Other,
}

impl<'a> Found<'a> {
    fn in_json(value: &'a Json<'_>) -> Self {
        match value {
            Json::Null => Self::Nothing,
            Json::Text(text) => Self::Text(text.as_ref().into()),
            Json::Number(number) => Self::Text(number.to_string().into()),
            Json::Bool(_) | Json::List(_) | Json::Object(_) => Self::Other,
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(name) => write!(f, "attribute:{name}"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
            Self::DeduplicationId => f.write_str("deduplicationId"),
            Self::MessageId => f.write_str("messageId"),
        }
    }
}

impl FromStr for KeySource {
    type Err = String;

    fn from_str(source: &str) -> Result<Self, String> {
        match source.split_once(':') {
            Some(("attribute", name)) if !name.is_empty() => Ok(Self::Attribute(name.into())),
            Some(("body", pointer)) if is_pointer(pointer) => Ok(Self::Body(pointer.into())),
            None if source == "deduplicationId" => Ok(Self::DeduplicationId),
            None if source == "messageId" => Ok(Self::MessageId),
            Some(_) | None => Err(format!(
                "{source:?} is no place of a key; use attribute:NAME, body:/json/pointer, deduplicationId or messageId"
            )),
        }
    }
}

/// What the fingerprint is taken of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FingerprintSource {
    /// The whole body.
    Body,
    /// The values at these JSON Pointers of the body.
    Pointers(Vec<String>),
    /// Nothing: the same key is the same work, whatever the payload.
    None,
}

impl FingerprintSource {
    /// The message's fingerprint. JSON is compared by value: the order of keys, white space and
    /// the spelling of a number do not count. What is not JSON is compared by its bytes.
    #[must_use]
    pub fn take(&self, message: &Message) -> Fingerprint {
        let body = message.body();
        if *self == Self::None {
            return Fingerprint::NONE;
        }
        let Ok(json) = serde_json::from_str::<Json<'_>>(body) else {
            return Fingerprint::of(body.as_bytes());
        };
        let mut spelling = Vec::with_capacity(body.len());
        match self {
            Self::Pointers(pointers) => {
                for pointer in pointers {
                    json.pointer(pointer).unwrap_or(&Json::Null).spell(&mut spelling);
                }
            }
            Self::Body | Self::None => json.spell(&mut spelling),
        }
        Fingerprint::of(&spelling)
    }
}

impl FromStr for FingerprintSource {
    type Err = String;

    fn from_str(source: &str) -> Result<Self, String> {
        match source.split_once(':') {
            None if source == "body" => Ok(Self::Body),
            None if source == "none" => Ok(Self::None),
            Some(("body", pointers)) if pointers.split(',').all(|pointer| is_pointer(pointer.trim())) => {
                Ok(Self::Pointers(pointers.split(',').map(|pointer| pointer.trim().into()).collect()))
            }
            Some(_) | None => {
                Err(format!("{source:?} is no fingerprint; use body, body:/json/pointer,/another or none"))
            }
        }
    }
}

fn is_pointer(pointer: &str) -> bool {
    pointer.starts_with('/')
}
