//! Where the idempotency key of a message is found.

use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::str::FromStr;

use super::attribute::MessageAttribute;
use super::json::{self, Kind, Value, is_pointer};
use super::message::Message;
use super::payload::Payload;
use crate::idempotency::Key;

/// A part of a message that may have the key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// The message attribute of this name, of SQS or SNS.
    Attribute(String),
    /// The value at this JSON Pointer (RFC 6901) in the payload: a string, or a number. Equal numbers are the same key
    /// in any notation: `1e3` and `1000.0` are the key `1000`.
    ///
    /// Plain text has no such value. A payload that starts with `{` or `[` but cannot be parsed is
    /// [`KeyError::Unusable`].
    Body(String),
    /// The `MessageDeduplicationId` within its message group, as `GROUP ID`. The same id in another group is different
    /// work. An id without a group is [`KeyError::NoMessageGroup`].
    DeduplicationId,
    /// The messageId, or the id of the notification if the payload is in an envelope. The messageId is the same in
    /// every redelivery. A redrive from the dead-letter queue and a producer that sends again get a new one; the id of
    /// a notification stays the same in a redrive. A message with the attribute [`Message::ID_ATTRIBUTE`] has that text
    /// as its messageId.
    MessageId,
}

/// Why a message has no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// None of the sources has a key.
    #[error("no key source of IDEMPOTENCY_KEY has a value")]
    Absent,
    /// A source has a value that cannot be a key. Later sources are not used, because a different key would not
    /// deduplicate as the producer intended.
    #[error("the idempotency key at {key_source} {reason}")]
    Unusable {
        /// The source, as in the settings.
        key_source: String,
        /// What is wrong and what to do.
        reason: &'static str,
    },
    /// A deduplicationId without a message group. Other work in another group may have the same deduplicationId. SQS
    /// does not send this: only FIFO queues have deduplicationIds, and there each message has a group.
    #[error("a deduplicationId is a key only within its message group, and the message has no group")]
    NoMessageGroup,
}

impl KeySource {
    /// The sources before the first one whose value may be in S3, all if nothing is there. An envelope in the payload
    /// has an id, and may have attributes that replace those of the envelope around it.
    #[must_use]
    pub fn independent_of_s3<'s>(sources: &'s [Self], payload: &Payload<'_>) -> &'s [Self] {
        let first = sources.iter().position(|source| match source {
            _ if payload.pointer().is_none() => false,
            Self::Body(_) | Self::MessageId => true,
            Self::Attribute(name) => !payload.message.attributes.contains_key(name),
            Self::DeduplicationId => false,
        });
        &sources[..first.unwrap_or(sources.len())]
    }

    /// The id, if it is the key of a message whose payload in S3 has no envelope. `None` if another source has a value,
    /// or may have one in any payload.
    pub(super) fn id_without_envelope(sources: &[Self], payload: &Payload<'_>) -> Option<Key> {
        let first = sources.iter().position(|source| matches!(source, Self::Body(_) | Self::MessageId))?;
        let (before, rest) = sources.split_at(first);
        match (Self::find(before, payload), &rest[0]) {
            (Err(KeyError::Absent), id @ Self::MessageId) => Self::find(slice::from_ref(id), payload).ok(),
            _ => None,
        }
    }

    /// The key from the first of these sources that has a value.
    ///
    /// # Errors
    /// [`KeyError`] if no source has a value, or if the first value cannot be a key.
    pub fn find(sources: &[Self], payload: &Payload<'_>) -> Result<Key, KeyError> {
        for source in sources {
            let found = match source {
                Self::Attribute(name) => match payload.attribute(name).map(MessageAttribute::text) {
                    Some(Some(value)) => Found::Text(value.into()),
                    Some(None) => Found::Unusable(NOT_A_KEY),
                    None => Found::Nothing,
                },
                Self::DeduplicationId => Found::deduplication_id(payload.message)?,
                Self::MessageId => Found::Text(payload.id().into()),
                Self::Body(pointer) => match payload.parse() {
                    Some(json) => json.value().pointer(pointer).map_or(Found::Nothing, Found::json),
                    None if json::looks_like_json(payload.text()) => Found::Unusable(NOT_PARSED),
                    None => Found::Nothing,
                },
            };
            let unusable = |reason| KeyError::Unusable { key_source: source.to_string(), reason };
            match found {
                Found::Nothing => {}
                Found::Text(key) => return Key::new(&key).map_err(|_| unusable(NOT_A_KEY)),
                Found::Unusable(reason) => return Err(unusable(reason)),
            }
        }
        Err(KeyError::Absent)
    }
}

/// The value of a source.
enum Found<'a> {
    Nothing,
    Text(Cow<'a, str>),
    /// A value that cannot be a key, and why.
    Unusable(&'static str),
}

const NOT_A_KEY: &str = "is neither a non-empty text nor a number";

const NOT_PARSED: &str = "cannot be read: the payload starts like JSON and is not valid JSON; send valid JSON, nested \
                          no more than 128 deep and with no exponent beyond 128 bits";

impl<'a> Found<'a> {
    /// The deduplicationId within its group. Both have letters, digits and punctuation, up to 128 characters, and no
    /// spaces, so the first space ends the group and no two pairs have the same key:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
    fn deduplication_id(message: &Message) -> Result<Self, KeyError> {
        match (&message.deduplication_id, &message.group_id) {
            (None, _) => Ok(Self::Nothing),
            (Some(id), _) if id.is_empty() => Ok(Self::Unusable(NOT_A_KEY)),
            (Some(id), Some(group)) if !group.is_empty() && !group.contains(' ') => {
                Ok(Self::Text(format!("{group} {id}").into()))
            }
            (Some(_), _) => Err(KeyError::NoMessageGroup),
        }
    }

    fn json(value: Value<'a>) -> Self {
        match value.kind() {
            Kind::Null => Self::Nothing,
            Kind::Text(text) | Kind::Number(text) => Self::Text(text.into()),
            Kind::Bool | Kind::NotUnicode | Kind::Array | Kind::Object => Self::Unusable(NOT_A_KEY),
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

/// The text is not a [`KeySource`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a key source: use attribute:NAME, body:/json/pointer, deduplicationId or messageId; a NAME that SQS \
     accepts has letters, digits, underscores, hyphens and periods, and a pointer has ~0 for each ~ and ~1 for each / of a \
     name"
)]
pub struct KeySourceError(String);

impl FromStr for KeySource {
    type Err = KeySourceError;

    fn from_str(source: &str) -> Result<Self, KeySourceError> {
        let source = source.trim();
        match source.split_once(':').map(|(kind, rest)| (kind, rest.trim())) {
            Some(("attribute", name)) if is_attribute_name(name) => Ok(Self::Attribute(name.into())),
            Some(("body", pointer)) if is_pointer(pointer) => Ok(Self::Body(pointer.into())),
            None if source == "deduplicationId" => Ok(Self::DeduplicationId),
            None if source == "messageId" => Ok(Self::MessageId),
            Some(_) | None => Err(KeySourceError(source.to_owned())),
        }
    }
}

/// Whether SQS accepts a message attribute of this name. With another name, every message would get its key from the
/// next source.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
fn is_attribute_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let is_reserved = |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    (1..=256).contains(&name.len())
        && name.chars().all(is_allowed)
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..")
        && !["AWS.", "Amazon."].into_iter().any(is_reserved)
}
