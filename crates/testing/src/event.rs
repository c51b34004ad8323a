//! The JSON event that an event source mapping passes to a function.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::send_request::Attribute;

/// One delivery. It is serialized as in the `Records` of an AWS event:
/// <https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html#example-standard-queue-message-event>
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedMessage {
    /// SQS's messageId.
    pub message_id: String,
    /// Handle of this delivery, which deletes the message or changes its visibility timeout.
    pub receipt_handle: String,
    /// The body.
    pub body: String,
    pub(super) attributes: SystemAttributes,
    pub(super) message_attributes: BTreeMap<String, AttributeValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) md5_of_message_attributes: Option<String>,
    pub(super) md5_of_body: String,
    pub(super) event_source: &'static str,
    #[serde(rename = "eventSourceARN")]
    pub(super) event_source_arn: String,
    pub(super) aws_region: String,
}

/// Attributes that SQS adds to a message. Numbers are text; times are milliseconds since 1970.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SystemAttributes {
    pub(super) approximate_receive_count: String,
    pub(super) sent_timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sequence_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_group_id: Option<String>,
    pub(super) sender_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_deduplication_id: Option<String>,
    pub(super) approximate_first_receive_timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dead_letter_queue_source_arn: Option<String>,
    #[serde(rename = "AWSTraceHeader", skip_serializing_if = "Option::is_none")]
    pub(super) trace_header: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AttributeValue {
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
    string_list_values: [(); 0],
    binary_list_values: [(); 0],
    data_type: &'static str,
}

impl ReceivedMessage {
    /// Number of deliveries of the message, including this one.
    #[must_use]
    pub fn receive_count(&self) -> u32 {
        self.attributes.approximate_receive_count.parse().unwrap_or_default()
    }

    /// Its message group.
    #[must_use]
    pub fn group_id(&self) -> Option<&str> {
        self.attributes.message_group_id.as_deref()
    }

    /// Its `MessageDeduplicationId`.
    #[must_use]
    pub fn deduplication_id(&self) -> Option<&str> {
        self.attributes.message_deduplication_id.as_deref()
    }
}

impl From<&Attribute> for AttributeValue {
    fn from(attribute: &Attribute) -> Self {
        let (string_value, binary_value) = match attribute {
            Attribute::String(text) | Attribute::Number(text) => (Some(text.clone()), None),
            Attribute::Binary(bytes) => (None, Some(STANDARD.encode(bytes))),
        };
        Self {
            string_value,
            binary_value,
            string_list_values: [],
            binary_list_values: [],
            data_type: attribute.data_type(),
        }
    }
}

impl ReceivedMessage {
    /// Its size in an event, bytes, with the comma that separates it from the next.
    pub(super) fn bytes(&self) -> usize {
        serde_json::to_string(self).expect("text is JSON").len() + 1
    }
}

/// The event of these deliveries.
pub(super) fn event(records: &[ReceivedMessage]) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Event<'a> {
        records: &'a [ReceivedMessage],
    }
    serde_json::to_string(&Event { records }).expect("text is JSON")
}
