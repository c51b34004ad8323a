//! One delivery, and where its key and its fingerprint are found.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use crate::envelope::{self, Form, Opened};
use crate::json::{self, Json, Kind, Value};
use crate::object::Place;
use crate::record::{ContentKind, Fingerprint, Key};

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
    /// How often SQS has delivered the message (`ApproximateReceiveCount`), conflicts and throttles included. Above 1
    /// an earlier delivery may have taken effect. Where the store lost the record, no other hint of that remains.
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

    /// The same message with this payload in the place of a pointer to it.
    pub(crate) fn with_payload(&self, payload: &str) -> Self {
        let mut message = Self { body: Some(envelope::with_payload(self.body(), payload)), ..self.clone() };
        message.attributes.retain(|name, _| !envelope::POINTS.contains(&name.as_str()));
        message
    }

    /// Whether its queue keeps the order of groups. Told by the queue's name, never by the presence
    /// of a group: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html>
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.queue_arn.as_deref().is_some_and(|arn| arn.strip_suffix(".fifo").is_some())
    }
}

/// Which envelopes are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Envelopes {
    /// The notifications of SNS, EventBridge and S3, also one within the other, and the pointers of
    /// the extended clients.
    #[default]
    Auto,
    /// None: every body is a payload.
    None,
}

/// What a message is about: its body, or what the envelopes in it hold. Keys and fingerprints are
/// found in it; the work gets the message as it is.
///
/// ```
/// use idempotent_sqs::message::{Envelopes, Message, Payload};
///
/// let body = r#"{"Type": "Notification", "MessageId": "a9fe3c1d", "Message": "12.50 EUR",
///     "TopicArn": "arn:aws:sns:eu-central-1:123456789012:payments", "Timestamp": "2026-11-19T09:31:05Z"}"#;
/// let message = Message { body: Some(body.into()), ..Message::default() };
/// assert_eq!(Payload::of(&message, Envelopes::Auto).text(), "12.50 EUR");
/// ```
#[derive(Debug)]
pub struct Payload<'a> {
    message: &'a Message,
    /// Boxed, as few messages have it.
    opened: Option<Box<Opened>>,
    /// Likewise.
    pointer: Option<Box<Place>>,
    /// As JSON, once it was read for its envelope, its key or where it points; `None` where it is none.
    json: OnceLock<Option<Json>>,
}

impl<'a> Payload<'a> {
    /// The payload of this message.
    #[must_use]
    pub fn of(message: &'a Message, envelopes: Envelopes) -> Self {
        let plain = Self { message, opened: None, pointer: None, json: OnceLock::new() };
        match envelopes {
            Envelopes::None => plain,
            Envelopes::Auto => {
                let mut opened = envelope::open(message.body());
                let json = opened.as_mut().and_then(|opened| opened.json.take());
                let json = json.map_or_else(OnceLock::new, |json| Some(json).into());
                let opened = Self { opened: opened.map(Box::new), json, ..plain };
                let points = |name: &&str| opened.attribute(name).is_some();
                let points = opened.text().starts_with('[') && envelope::POINTS.iter().any(points);
                let json = if points { opened.kept_json() } else { None };
                let pointer = json.and_then(|json| envelope::pointer(json.value())).map(Box::new);
                Self { pointer, ..opened }
            }
        }
    }

    /// The payload as it was sent: of SNS's notification what it carries, else the body.
    #[must_use]
    pub fn text(&self) -> &str {
        self.opened.as_ref().and_then(|opened| opened.text.as_deref()).unwrap_or_else(|| self.message.body())
    }

    /// Where the payload is, if an extended client put it in S3, and this is only a pointer to it.
    #[must_use]
    pub fn pointer(&self) -> Option<&Place> {
        self.pointer.as_deref()
    }

    /// As JSON, which is kept: what a key was looked for in is next asked for its fingerprint.
    fn kept_json(&self) -> Option<&Json> {
        self.json.get_or_init(|| Json::read(self.text())).as_ref()
    }

    /// As JSON. It is not kept by this: those of a whole batch are many, and few are looked at twice.
    fn json(&self) -> Option<Cow<'_, Json>> {
        match self.json.get() {
            Some(kept) => kept.as_ref().map(Cow::Borrowed),
            None => Json::read(self.text()).map(Cow::Owned),
        }
    }

    fn form(&self) -> Form {
        self.opened.as_ref().map_or(Form::Plain, |opened| opened.form)
    }

    /// SQS's messageId, or what the service whose envelope it is calls it.
    fn id(&self) -> &str {
        self.opened.as_ref().and_then(|opened| opened.id.as_deref()).unwrap_or(&self.message.id)
    }

    /// SQS's attribute of this name, or else SNS's.
    fn attribute(&self, name: &str) -> Option<&Option<String>> {
        let of_sns = || self.opened.as_ref().and_then(|opened| opened.attributes.get(name));
        self.message.attributes.get(name).or_else(of_sns)
    }
}

/// Where a key may be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The message attribute of this name, SQS's or SNS's.
    Attribute(String),
    /// The value at this JSON Pointer (RFC 6901) of the payload: a string as it is, or a number. Equal numbers
    /// are the same key, however they are written: `1e3` and `1000.0` are the key `1000`.
    ///
    /// A payload that is plain text has nothing there. One that looks like JSON, as it begins with `{` or `[`,
    /// and cannot be read is [`KeyError::Unusable`].
    Body(String),
    /// `MessageDeduplicationId` within its message group, as `GROUP ID`: the same id in another group is
    /// other work. One without a group is [`KeyError::Ungrouped`].
    DeduplicationId,
    /// SQS's messageId. It knows a redelivery, but neither a redrive nor a producer's retry. In an
    /// envelope it is what that service calls its notification, which a redrive does not change.
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
    #[error("the idempotency key at {place} {reason}")]
    Unusable {
        /// The place, as in the settings.
        place: String,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A deduplicationId whose message group is not known, so that other work of another group may have
    /// the same. SQS gives none: only its FIFO queues have deduplicationIds, and there each message has a
    /// group.
    #[error("a deduplicationId is an idempotency key only within its message group, which the message does not name")]
    Ungrouped,
}

impl KeySource {
    /// Those of these places that are looked at before the payload is.
    pub(crate) fn before_payload(sources: &[Self]) -> &[Self] {
        let first = sources.iter().position(|source| matches!(source, Self::Body(_)));
        &sources[..first.unwrap_or(sources.len())]
    }

    /// The key of the message with this payload, from the first of these places that has one.
    ///
    /// # Errors
    /// [`KeyError`], where none has, or the first that does has something there that is no key.
    pub fn find(sources: &[Self], payload: &Payload<'_>) -> Result<Key, KeyError> {
        for source in sources {
            let found = match source {
                Self::Attribute(name) => match payload.attribute(name) {
                    Some(Some(value)) => Found::Text(value.into()),
                    Some(None) => Found::Unusable(NO_TEXT),
                    None => Found::Nothing,
                },
                Self::DeduplicationId => Found::in_group(payload.message)?,
                Self::MessageId => Found::Text(payload.id().into()),
                Self::Body(pointer) => match payload.kept_json() {
                    Some(json) => json.value().pointer(pointer).map_or(Found::Nothing, Found::in_json),
                    None if json::looks_like_json(payload.text()) => Found::Unusable(UNREADABLE),
                    None => Found::Nothing,
                },
            };
            let unusable = |reason| KeyError::Unusable { place: source.to_string(), reason };
            match found {
                Found::Nothing => {}
                Found::Text(key) => return Key::new(&key).ok_or_else(|| unusable(NO_TEXT)),
                Found::Unusable(reason) => return Err(unusable(reason)),
            }
        }
        Err(KeyError::Absent)
    }
}

/// What is at the place of a key.
enum Found<'a> {
    Nothing,
    Text(Cow<'a, str>),
    /// Something that cannot be a key, for this reason.
    Unusable(&'static str),
}

const NO_TEXT: &str = "is neither text that is not empty nor a number";

const UNREADABLE: &str = "cannot be looked for: the payload begins as JSON does, and cannot be read as JSON; \
                          send valid JSON, nested no more than 128 deep and with no exponent beyond 128 bits";

impl<'a> Found<'a> {
    /// The message's deduplicationId within its group. SQS takes letters, digits and punctuation in both, up
    /// to 128, and no space, so the first space ends the group and no two pairs have the same key:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
    fn in_group(message: &Message) -> Result<Self, KeyError> {
        match (&message.deduplication_id, &message.group_id) {
            (None, _) => Ok(Self::Nothing),
            (Some(id), _) if id.is_empty() => Ok(Self::Unusable(NO_TEXT)),
            (Some(id), Some(group)) if !group.is_empty() && !group.contains(' ') => {
                Ok(Self::Text(format!("{group} {id}").into()))
            }
            (Some(_), _) => Err(KeyError::Ungrouped),
        }
    }

    fn in_json(value: Value<'a>) -> Self {
        match value.kind() {
            Kind::Null => Self::Nothing,
            Kind::Text(text) | Kind::Number(text) => Self::Text(text.into()),
            Kind::Bool | Kind::NotUnicode | Kind::List | Kind::Object => Self::Unusable(NO_TEXT),
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
    /// The whole payload, without what only tells its deliveries apart.
    Body,
    /// The values at these JSON Pointers of the payload.
    Pointers(Vec<String>),
    /// Nothing: the same key is the same work, whatever the payload.
    None,
}

impl FingerprintSource {
    /// The payload's fingerprint. JSON is compared by value: numbers by their exact decimal value, and
    /// neither the order of keys nor white space nor escapes count. What is not JSON, or cannot be read as
    /// such, is compared by its bytes, and never equals JSON.
    #[must_use]
    pub fn take(&self, payload: &Payload<'_>) -> Fingerprint {
        if *self == Self::None {
            return Fingerprint::NONE;
        }
        let Some(json) = payload.json() else {
            return Fingerprint::of_kind(ContentKind::Text, payload.text().as_bytes());
        };
        match self {
            Self::Pointers(pointers) => {
                let mut values = Vec::new();
                envelope::append(json.value(), pointers, &mut values);
                Fingerprint::of_kind(ContentKind::Pointers, &values)
            }
            Self::Body | Self::None => payload.form().fingerprint(json.value()),
        }
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
