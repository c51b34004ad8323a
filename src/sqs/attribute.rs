//! Message attributes.

/// A message attribute:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageAttribute {
    /// `String`, `Number` or `Binary`, possibly with a label of the producer, as in `Number.int`.
    pub data_type: String,
    /// The value.
    pub value: AttributeValue,
}

/// The value of a message attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text, or a number as text.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// The event has no value that could be read. SQS does not send this.
    Unreadable,
}

impl MessageAttribute {
    /// The value of an attribute of type String or Number.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Binary(_) | AttributeValue::Unreadable => None,
        }
    }

    /// Bytes that count towards the size of the message, without the name.
    pub(super) fn size(&self) -> usize {
        let value = match &self.value {
            AttributeValue::Text(text) => text.len(),
            AttributeValue::Binary(bytes) => bytes.len(),
            AttributeValue::Unreadable => 0,
        };
        self.data_type.len() + value
    }
}

impl<T: Into<String>> From<T> for MessageAttribute {
    /// An attribute of type String.
    fn from(text: T) -> Self {
        Self { data_type: "String".into(), value: AttributeValue::Text(text.into()) }
    }
}
