//! The payload of a message: its body, or what the envelopes in the body contain.

use std::borrow::Cow;
use std::sync::OnceLock;

use super::attribute::MessageAttribute;
use super::envelope::{self, Envelopes, Form, Opened};
use super::json::Json;
use super::message::Message;
use crate::idempotency::Location;

/// The payload of a message: its body, or what the envelopes in the body contain. Keys and fingerprints are taken
/// from it. The work receives the whole message.
///
/// ```
/// use idempotent_sqs::sqs::{Envelopes, Message, Payload};
///
/// let body = r#"{"Type": "Notification", "MessageId": "a9fe3c1d", "Message": "12.50 EUR",
///     "TopicArn": "arn:aws:sns:eu-central-1:123456789012:payments", "Timestamp": "2026-11-19T09:31:05Z"}"#;
/// let message = Message::new("19dd0b57", body);
/// assert_eq!(Payload::of(&message, Envelopes::Auto).text(), "12.50 EUR");
/// ```
#[derive(Debug)]
pub struct Payload<'a> {
    pub(super) message: &'a Message,
    /// Boxed, because few messages have envelopes.
    opened: Option<Box<Opened>>,
    /// Boxed, because few messages have pointers.
    pointer: Option<Box<Location>>,
    /// The parsed payload, if the envelope, the key or the pointer needed it. Holds `None` if the payload is not JSON.
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
                let has_attribute = |name: &&str| opened.attribute(name).is_some();
                let may_point =
                    opened.text().starts_with('[') && envelope::POINTER_ATTRIBUTES.iter().any(has_attribute);
                let json = if may_point { opened.parse() } else { None };
                let pointer = json.and_then(|json| envelope::pointer(json.value())).map(Box::new);
                Self { pointer, ..opened }
            }
        }
    }

    /// The text of the payload: the message in an SNS notification, else the body.
    #[must_use]
    pub fn text(&self) -> &str {
        self.opened.as_ref().and_then(|opened| opened.text.as_deref()).unwrap_or_else(|| self.message.body())
    }

    /// The location of the payload in S3, if an extended client stored it there and sent only a pointer.
    #[must_use]
    pub fn pointer(&self) -> Option<&Location> {
        self.pointer.as_deref()
    }

    /// Parses the payload as JSON and caches the result, because after the key the fingerprint is computed from it.
    pub(super) fn parse(&self) -> Option<&Json> {
        self.json.get_or_init(|| Json::parse(self.text())).as_ref()
    }

    /// The payload as JSON. Does not cache the result: a batch has many payloads, and few are parsed twice.
    pub(super) fn json(&self) -> Option<Cow<'_, Json>> {
        match self.json.get() {
            Some(kept) => kept.as_ref().map(Cow::Borrowed),
            None => Json::parse(self.text()).map(Cow::Owned),
        }
    }

    pub(super) fn form(&self) -> Form {
        self.opened.as_ref().map_or(Form::Plain, |opened| opened.form)
    }

    /// The id that the service in the envelope gave to its notification, or else the messageId: the one that a redrive
    /// has kept, or that of SQS.
    pub(super) fn id(&self) -> &str {
        let opened = self.opened.as_ref().and_then(|opened| opened.id.as_deref());
        opened.or_else(|| self.message.kept_id()).unwrap_or(&self.message.id)
    }

    /// The message attribute of this name, of SQS or else of SNS.
    pub(super) fn attribute(&self, name: &str) -> Option<&MessageAttribute> {
        self.message.attributes.get(name).or_else(|| self.opened.as_ref()?.attributes.get(name))
    }
}
