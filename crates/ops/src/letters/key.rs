//! Where the function finds keys, and the idempotency key of letters without a description.

use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName as Name};
use idempotent_sqs::config::{Environment, key_settings};
use idempotent_sqs::sqs::{self, AttributeValue, Envelopes, KeyError, KeySource, MessageAttribute, Payload};

use super::letter::{Letter, Origin, system};
use super::queue::is_fifo;

/// The attribute that a redrive adds, and the first of the default key sources.
pub(crate) const KEY_ATTRIBUTE: &str = "Idempotency-Key";

/// The settings of the function that determine keys.
pub(crate) struct KeyFinder {
    sources: Vec<KeySource>,
    envelopes: Envelopes,
}

impl KeyFinder {
    /// Reads the settings as the function does. Adds an error if one is invalid.
    pub(crate) fn read(environment: &mut Environment) -> Self {
        let (sources, envelopes) = key_settings(environment);
        Self { sources, envelopes }
    }

    /// The key that the function found in the message before it came to the dead-letter queue. `None` if it has none,
    /// or if it cannot be determined.
    pub(crate) fn find(&self, message: &Message, origin: &Origin) -> Option<String> {
        let is_moved = matches!(origin, Origin::RedrivePolicy(_));
        let is_fifo = system(message, &Name::MessageDeduplicationId).is_some();
        let message = received(message);
        let payload = Payload::of(&message, self.envelopes);
        let known = |source: &&KeySource| match source {
            KeySource::Attribute(_) | KeySource::Body(_) => true,
            // A FIFO queue replaces the deduplicationId of a message that it moves, and a send sets a new messageId:
            // https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html
            KeySource::MessageId => is_moved || self.has_other_id(&message),
            // SQS moves a message to a queue of the same type. One that was sent may come from a queue of the other type.
            KeySource::DeduplicationId => is_moved && !is_fifo,
            _ => false,
        };
        // A later source counts only if each earlier one is known to have no value. A payload in S3 is not known here.
        let sources = KeySource::independent_of_s3(&self.sources, &payload);
        let known: Vec<_> = sources.iter().take_while(known).cloned().collect();
        KeySource::find(&known, &payload).ok().map(|key| key.as_str().to_owned())
    }

    /// Whether a source is an id of SQS.
    pub(crate) fn have_id(&self) -> bool {
        self.sources.iter().any(|source| matches!(source, KeySource::MessageId | KeySource::DeduplicationId))
    }

    /// Whether another id than that of SQS takes its place: the one of an envelope, or one that a redrive has kept.
    fn has_other_id(&self, message: &sqs::Message) -> bool {
        let keys = ["1", "2"].map(|id| {
            let mut message = message.clone();
            id.clone_into(&mut message.id);
            KeySource::find(&[KeySource::MessageId], &Payload::of(&message, self.envelopes))
        });
        keys[0] == keys[1]
    }

    /// The key that the function finds in this letter's message once it is sent again with this attribute, to a FIFO queue
    /// or a standard queue.
    pub(crate) fn after_redrive(&self, letter: &Letter, to_fifo: bool, added: Option<(&str, &str)>) -> NewKey {
        // Two messages that differ only in the ids that SQS assigns: a key that differs comes from one of them.
        let [message, other] = ["1", "2"].map(|id| sent_again(&letter.message, id, to_fifo, added));
        let [payload, other] = [&message, &other].map(|message| Payload::of(message, self.envelopes));
        let found = |source: &KeySource| {
            [&payload, &other].map(|payload| KeySource::find(std::slice::from_ref(source), payload))
        };
        let independent = KeySource::independent_of_s3(&self.sources, &payload);
        for source in independent {
            let [key, other] = found(source);
            match key {
                // Not the id of an envelope, which stays the same.
                Ok(key) if other.is_ok_and(|other| other != key) => return NewKey::Other,
                Ok(key) => return NewKey::Key(key.as_str().to_owned()),
                Err(KeyError::Absent) => {}
                Err(_) => return NewKey::None,
            }
        }
        if independent.len() == self.sources.len() {
            return NewKey::None;
        }
        // The payload in S3 has not changed, so its values have not, unless an id takes their place. Only a message of a
        // standard queue is known to have had no deduplicationId.
        let had_none = letter.source_queue_arn().is_some_and(|arn| !is_fifo(arn));
        let is_same = |source: &KeySource| {
            let [key, other] = found(source);
            key == other && (had_none || !matches!(source, KeySource::DeduplicationId))
        };
        // With other sources before, the key may have been an id. The payload does not have it; an attribute or an envelope
        // may.
        let is_kept = |key: &str| {
            let [id, other] = found(&KeySource::MessageId);
            let is_id = id == other && id.is_ok_and(|id| id.as_str() == key);
            let was_id = letter.original_id() == Some(key) || (!had_none && has_group(letter, key));
            if is_id { self.sources.contains(&KeySource::MessageId) } else { !was_id }
        };
        let is_kept = self.sources.iter().all(is_same) && letter.key.as_deref().is_none_or(is_kept);
        if is_kept { NewKey::SameInS3 } else { NewKey::Other }
    }
}

/// Whether the key begins with the letter's message group, as one from the deduplicationId does.
fn has_group(letter: &Letter, key: &str) -> bool {
    letter.group().and_then(|group| key.strip_prefix(group)).is_some_and(|id| id.starts_with(' '))
}

/// The key of a message that is sent again.
pub(crate) enum NewKey {
    Key(String),
    /// The same key as before, which depends on the payload in S3.
    SameInS3,
    /// Another key than before: it comes from an id that SQS assigns anew, or is unknown.
    Other,
    /// None: the message cannot succeed.
    None,
}

/// The message as the function receives it once it is sent again with this attribute, if SQS assigns this id to it.
/// Only messages of FIFO queues have a deduplicationId.
fn sent_again(message: &Message, id: &str, to_fifo: bool, added: Option<(&str, &str)>) -> sqs::Message {
    let mut message = received(message);
    id.clone_into(&mut message.id);
    message.deduplication_id = to_fifo.then(|| id.to_owned());
    if let Some((name, text)) = added {
        message.attributes.insert(name.to_owned(), text.into());
    }
    message
}

fn attribute(attribute: &MessageAttributeValue) -> MessageAttribute {
    let value = match (attribute.string_value(), attribute.binary_value()) {
        (Some(text), _) => AttributeValue::Text(text.to_owned()),
        (None, Some(bytes)) => AttributeValue::Binary(bytes.as_ref().to_owned()),
        (None, None) => AttributeValue::Unreadable,
    };
    MessageAttribute { data_type: attribute.data_type().to_owned(), value }
}

/// The message as the function receives it.
fn received(message: &Message) -> sqs::Message {
    let mut received = sqs::Message::new(message.message_id().unwrap_or_default(), message.body().unwrap_or_default());
    let attributes = message.message_attributes().into_iter().flatten();
    received.attributes = attributes.map(|(name, value)| (name.clone(), attribute(value))).collect();
    received.deduplication_id = system(message, &Name::MessageDeduplicationId).map(str::to_owned);
    received.group_id = system(message, &Name::MessageGroupId).map(str::to_owned);
    received
}
