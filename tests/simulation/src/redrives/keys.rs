//! Where the function finds keys: docs/configuration.md.

use std::collections::BTreeMap;

use idempotent_sqs::Message;
use serde_json::Value;

/// A value of `IDEMPOTENCY_KEY`.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    Default,
    MessageId,
    Attribute,
    Body,
    OnlyBody,
}

impl Keys {
    pub const ALL: [Self; 5] = [Self::Default, Self::MessageId, Self::Attribute, Self::Body, Self::OnlyBody];

    pub fn setting(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::MessageId => Some("messageId"),
            Self::Attribute => Some("attribute:Payment,messageId"),
            Self::Body => Some("body:/id,messageId"),
            Self::OnlyBody => Some("body:/id"),
        }
    }

    /// The key of a message with this body, these attributes and this id, if that is known.
    pub fn find(self, body: &str, attributes: &BTreeMap<String, String>, id: Option<&str>) -> Option<String> {
        let attribute = |name: &str| attributes.get(name).cloned();
        let in_body = || serde_json::from_str::<Value>(body).ok()?["id"].as_str().map(str::to_owned);
        let message_id = || attribute(Message::ID_ATTRIBUTE).or_else(|| id.map(str::to_owned));
        match self {
            Self::Default => attribute("Idempotency-Key").or_else(message_id),
            Self::MessageId => message_id(),
            Self::Attribute => attribute("Payment").or_else(message_id),
            Self::Body => in_body().or_else(message_id),
            Self::OnlyBody => in_body(),
        }
    }
}
