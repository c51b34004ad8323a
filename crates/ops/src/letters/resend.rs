//! The message that a redrive sends for a letter.

use std::collections::HashMap;

use aws_sdk_sqs::operation::send_message::builders::SendMessageInputBuilder;
use aws_sdk_sqs::types::{
    MessageAttributeValue, MessageSystemAttributeName as Name, MessageSystemAttributeNameForSends,
    MessageSystemAttributeValue,
};
use idempotent_sqs::sqs::{self, DeadLetter};

use super::key::{KEY_ATTRIBUTE, KeyFinder, NewKey};
use super::letter::Letter;
use super::queue::Destination;

/// Most attributes of a message:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
const MAX_ATTRIBUTES: usize = 10;

/// The data type of text in attributes.
const STRING: &str = "String";

/// What happens to the idempotency key of a letter that is sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyChange {
    /// The function finds the same key in the message, as far as the letter shows.
    None,
    /// It would find another, so this attribute is added: [`KEY_ATTRIBUTE`] with the letter's key, or
    /// [`sqs::Message::ID_ATTRIBUTE`] with the messageId that the message had.
    Added(&'static str),
    /// It finds another, or may do so: the message is new work.
    New,
}

impl KeyChange {
    pub(crate) fn of(letter: &Letter, to: &Destination, keys: &KeyFinder, as_is: bool) -> Self {
        let is_kept = |found: NewKey| match found {
            NewKey::Key(key) => letter.key.as_ref() == Some(&key),
            NewKey::SameInS3 => true,
            // A letter without a key may have had one from an id, unless the function found none.
            NewKey::None => letter.key.is_none() && (letter.described().is_some() || !keys.have_id()),
            NewKey::Other => false,
        };
        let found = |added: Option<(&str, &str)>| keys.after_redrive(letter, to.is_fifo(), added);
        if is_kept(found(None)) {
            return Self::None;
        }
        if as_is {
            return Self::New;
        }
        let attributes = producers_attributes(letter);
        let is_added = |name: &&str| {
            let has_room = attributes.len() < MAX_ATTRIBUTES && !attributes.contains_key(*name);
            has_room && value(letter, name).is_some_and(|value| is_kept(found(Some((*name, value)))))
        };
        let added = [KEY_ATTRIBUTE, sqs::Message::ID_ATTRIBUTE].into_iter().find(is_added);
        added.map_or(Self::New, Self::Added)
    }
}

/// The value of an attribute that is added.
fn value<'a>(letter: &'a Letter, name: &str) -> Option<&'a str> {
    if name == KEY_ATTRIBUTE { letter.key.as_deref() } else { letter.original_id() }
}

/// The message with the letter's body, attributes, group and trace header.
pub(crate) fn message(letter: &Letter, to: &Destination, key: KeyChange) -> SendMessageInputBuilder {
    let trace = letter.system(&Name::AwsTraceHeader).map(|header| {
        let value = MessageSystemAttributeValue::builder().data_type(STRING).string_value(header).build();
        (MessageSystemAttributeNameForSends::AwsTraceHeader, value.expect("it has a data type"))
    });
    SendMessageInputBuilder::default()
        .queue_url(&to.url)
        .message_body(letter.message.body().unwrap_or_default())
        .set_message_attributes(Some(attributes(letter, key)))
        .set_message_system_attributes(trace.map(|trace| HashMap::from([trace])))
        .set_message_group_id(group(letter, to).map(str::to_owned))
        // A FIFO queue drops a second send within five minutes, after a run that ended between the send and the delete.
        .set_message_deduplication_id(to.is_fifo().then(|| letter.id().to_owned()))
}

/// The group that the message had. In a FIFO dead-letter queue, a message that had none has its messageId as its group,
/// which the function added.
fn group<'a>(letter: &'a Letter, to: &Destination) -> Option<&'a str> {
    let is_added = |group: &str| letter.described().is_some_and(|described| described.message_id == group);
    letter.group().filter(|group| to.is_fifo() || !is_added(group))
}

/// The attributes of the message: those of the producer, and the one that is added.
pub(crate) fn attributes(letter: &Letter, key: KeyChange) -> HashMap<String, MessageAttributeValue> {
    let mut attributes = producers_attributes(letter);
    if let KeyChange::Added(name) = key {
        let value =
            MessageAttributeValue::builder().data_type(STRING).set_string_value(value(letter, name).map(str::to_owned));
        attributes.insert(name.to_owned(), value.build().expect("it has a data type"));
    }
    attributes
}

fn producers_attributes(letter: &Letter) -> HashMap<String, MessageAttributeValue> {
    let mut attributes = letter.message.message_attributes().cloned().unwrap_or_default();
    attributes.remove(DeadLetter::ATTRIBUTE);
    attributes
}
