//! Messages that are as large as SQS accepts.

use std::collections::BTreeMap;

use idempotent_sqs::sqs::{AttributeValue, MessageAttribute};

use super::{NUMBER, Producer, number_attribute};

/// Largest message with its attributes, bytes:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
pub const MAX_MESSAGE_BYTES: usize = 1_048_576;

/// The payment whose messages are as large as SQS accepts, or almost, in some plans. It can never succeed.
pub const LARGE: u64 = 3;

impl Producer<'_> {
    /// Makes this message as large as SQS accepts, or leaves room for a part of the reason of its dead letter.
    pub(super) fn fill(&mut self, number: u64, body: &mut String, attributes: &mut BTreeMap<String, MessageAttribute>) {
        attributes.insert(NUMBER.to_owned(), number_attribute(number));
        let free = *self.extras.pick(&[0, 100, 450, 600, 5000]);
        let used = body.len() + size(attributes) + free;
        body.push_str(&" ".repeat(MAX_MESSAGE_BYTES.saturating_sub(used)));
    }
}

/// Bytes of attributes.
pub fn size(attributes: &BTreeMap<String, MessageAttribute>) -> usize {
    let value = |attribute: &MessageAttribute| match &attribute.value {
        AttributeValue::Text(text) => text.len(),
        AttributeValue::Binary(bytes) => bytes.len(),
        AttributeValue::Unreadable => 0,
    };
    attributes.iter().map(|(name, attribute)| name.len() + attribute.data_type.len() + value(attribute)).sum()
}
