//! Parses the event of an invocation into messages.

use std::collections::HashMap;
use std::fmt;

use aws_smithy_types::base64;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::attribute::{AttributeValue, MessageAttribute};
use super::message::Message;

/// An event for which no partial batch response is possible. The invocation fails, and SQS deletes no message.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The event is not an SQS event.
    #[error("not an SQS event: its records are no messages of SQS; check that the function's trigger is an SQS queue")]
    NotSqs,
    /// A record has no messageId, so the response cannot name it.
    #[error(
        "record {index} has no messageId and cannot be named in a partial batch response, so the whole batch fails"
    )]
    NoMessageId {
        /// Index of the record, from 0.
        index: usize,
    },
}

/// As `Display`, because the Lambda runtime logs the error of an invocation with `Debug`.
impl fmt::Debug for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses the messages of an event. A record that cannot be parsed becomes a message without a body, and does not
/// affect the others.
///
/// # Errors
/// [`EventError`] if no partial batch response is possible.
pub fn messages(event: &str) -> Result<Vec<Message>, EventError> {
    let messages: Vec<Message> = match serde_json::from_str::<Event<Record>>(event) {
        Ok(event) => event.records.into_iter().map(Record::message).collect(),
        Err(_) => parse_one_by_one(event)?,
    };
    match messages.iter().position(|message| message.id.is_empty()) {
        Some(_) if is_of_another_service(event) => Err(EventError::NotSqs),
        Some(index) => Err(EventError::NoMessageId { index }),
        None => Ok(messages),
    }
}

/// Whether a record without a messageId names another service as its source, such as `aws:s3`: those of SNS, S3,
/// Kinesis and others have none. SNS writes the name of the field with a capital letter.
fn is_of_another_service(event: &str) -> bool {
    let Ok(event) = serde_json::from_str::<Event<&RawValue>>(event) else { return false };
    event.records.into_iter().map(fields).any(|fields| {
        let source = text(&fields, "eventSource").or_else(|| text(&fields, "EventSource"));
        text(&fields, "messageId").is_none() && source.is_some_and(|source| source != "aws:sqs" && !source.is_empty())
    })
}

/// Parses each record separately, because at least one of them is malformed.
fn parse_one_by_one(event: &str) -> Result<Vec<Message>, EventError> {
    let event: Event<&RawValue> = serde_json::from_str(event).map_err(|_| EventError::NotSqs)?;
    let message =
        |record: &RawValue| serde_json::from_str(record.get()).map_or_else(|_| unreadable(record), Record::message);
    Ok(event.records.into_iter().map(message).collect())
}

#[derive(Deserialize)]
struct Event<R> {
    #[serde(rename = "Records")]
    records: Vec<R>,
}

/// The fields of a record that are used. `SqsEvent` of `aws_lambda_events` allocates every field.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    message_id: Option<String>,
    receipt_handle: Option<String>,
    body: Option<String>,
    attributes: Option<SystemAttributes>,
    message_attributes: Option<HashMap<String, Attribute>>,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SystemAttributes {
    message_deduplication_id: Option<String>,
    message_group_id: Option<String>,
    approximate_receive_count: Option<String>,
    approximate_first_receive_timestamp: Option<String>,
    #[serde(rename = "AWSTraceHeader")]
    trace_header: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attribute {
    string_value: Option<String>,
    binary_value: Option<String>,
    data_type: Option<String>,
}

impl From<Attribute> for MessageAttribute {
    fn from(Attribute { string_value, binary_value, data_type }: Attribute) -> Self {
        let bytes = || base64::decode(binary_value?).ok();
        let value = match string_value {
            Some(text) => AttributeValue::Text(text),
            None => bytes().map_or(AttributeValue::Unreadable, AttributeValue::Binary),
        };
        Self { data_type: data_type.unwrap_or_else(|| "String".into()), value }
    }
}

impl Record {
    fn message(self) -> Message {
        let system = self.attributes.unwrap_or_default();
        let attributes = self.message_attributes.unwrap_or_default().into_iter();
        Message {
            id: self.message_id.unwrap_or_default(),
            body: self.body,
            attributes: attributes.map(|(name, attribute)| (name, attribute.into())).collect(),
            deduplication_id: system.message_deduplication_id,
            group_id: system.message_group_id,
            receive_count: system.approximate_receive_count.and_then(|count| count.parse().ok()),
            first_receive_ms: system.approximate_first_receive_timestamp.and_then(|ms| ms.parse().ok()),
            queue_arn: self.event_source_arn,
            receipt_handle: self.receipt_handle,
            trace_header: system.trace_header,
        }
    }
}

/// A malformed record, without its body and its message attributes. The other fields name it in the response, keep it
/// in its message group, and determine its visibility timeout. Each is parsed separately, because any may be malformed.
fn unreadable(record: &RawValue) -> Message {
    let readable = fields(record);
    let system = readable.get("attributes").map(|attributes| fields(attributes)).unwrap_or_default();
    let record = Record {
        message_id: text(&readable, "messageId"),
        receipt_handle: text(&readable, "receiptHandle"),
        body: None,
        attributes: Some(SystemAttributes {
            message_deduplication_id: text(&system, "MessageDeduplicationId"),
            message_group_id: text(&system, "MessageGroupId"),
            approximate_receive_count: text(&system, "ApproximateReceiveCount"),
            approximate_first_receive_timestamp: text(&system, "ApproximateFirstReceiveTimestamp"),
            trace_header: text(&system, "AWSTraceHeader"),
        }),
        message_attributes: None,
        event_source_arn: text(&readable, "eventSourceARN"),
    };
    record.message()
}

/// The fields of an object. Empty for other values.
fn fields(object: &RawValue) -> HashMap<String, &RawValue> {
    serde_json::from_str(object.get()).unwrap_or_default()
}

/// The field of this name, if it is a string.
fn text(fields: &HashMap<String, &RawValue>, name: &str) -> Option<String> {
    serde_json::from_str(fields.get(name)?.get()).ok()
}
