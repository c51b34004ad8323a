//! SQS's event to messages, and dispositions to the partial batch response.

use std::collections::{HashMap, HashSet};

pub use aws_lambda_events::sqs::SqsBatchResponse;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::disposition::Disposition;
use crate::message::Message;

/// Why an event cannot be answered message by message. The whole invocation fails, so that nothing
/// is deleted.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// It is not an SQS event.
    #[error("this is not an SQS event: it has no list of Records; is the function's trigger an SQS queue?")]
    NotSqs,
    /// One of its records cannot be named in the response.
    #[error("record {at} has no messageId and cannot be named in a partial batch response, so the batch fails whole")]
    Nameless {
        /// Its place in the event, from 0.
        at: usize,
    },
}

/// The messages of an event, as an invocation receives them, or why it has none.
#[derive(Debug)]
pub struct Received(pub Result<Vec<Message>, EventError>);

impl Received {
    /// From the bytes of an event.
    #[must_use]
    pub fn read(event: &[u8]) -> Self {
        Self(str::from_utf8(event).map_err(|_| EventError::NotSqs).and_then(messages))
    }
}

impl<'de> Deserialize<'de> for Received {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(from).map(|event| Self(messages(event.get())))
    }
}

/// The messages of an event, each readable or not on its own account.
///
/// # Errors
/// [`EventError`], where a partial batch response could not be given.
pub fn messages(event: &str) -> Result<Vec<Message>, EventError> {
    let messages: Vec<Message> = match serde_json::from_str::<Event<Record>>(event) {
        Ok(event) => event.records.into_iter().map(Record::message).collect(),
        Err(_) => one_by_one(event)?,
    };
    match messages.iter().position(|message| message.id.is_empty()) {
        Some(at) => Err(EventError::Nameless { at }),
        None => Ok(messages),
    }
}

/// Some record is not as SQS writes them. Its neighbours shall not suffer from that.
fn one_by_one(event: &str) -> Result<Vec<Message>, EventError> {
    let event: Event<&RawValue> = serde_json::from_str(event).map_err(|_quotes_the_event| EventError::NotSqs)?;
    let message =
        |record: &RawValue| serde_json::from_str(record.get()).map_or_else(|_| unreadable(record), Record::message);
    Ok(event.records.into_iter().map(message).collect())
}

#[derive(Deserialize)]
struct Event<R> {
    #[serde(rename = "Records")]
    records: Vec<R>,
}

/// What is read of a record, and no more: `SqsEvent` allocates every field that SQS sends.
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
    #[serde(rename = "AWSTraceHeader")]
    trace_header: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attribute {
    string_value: Option<String>,
}

impl Record {
    fn message(self) -> Message {
        let system = self.attributes.unwrap_or_default();
        let attributes = self.message_attributes.unwrap_or_default().into_iter();
        Message {
            id: self.message_id.unwrap_or_default(),
            body: self.body,
            attributes: attributes.map(|(name, value)| (name, value.string_value)).collect(),
            deduplication_id: system.message_deduplication_id,
            group_id: system.message_group_id,
            receive_count: system.approximate_receive_count.and_then(|count| count.parse().ok()),
            queue_arn: self.event_source_arn,
            receipt_handle: self.receipt_handle,
            trace_header: system.trace_header,
        }
    }
}

/// Of a record that cannot be read, what it takes to name it in the response and to change its visibility. Each field
/// is read by itself: another may have any type.
fn unreadable(record: &RawValue) -> Message {
    let fields: HashMap<String, &RawValue> = serde_json::from_str(record.get()).unwrap_or_default();
    let text = |name| serde_json::from_str::<String>(fields.get(name)?.get()).ok();
    Message {
        id: text("messageId").unwrap_or_default(),
        receipt_handle: text("receiptHandle"),
        queue_arn: text("eventSourceARN"),
        ..Message::default()
    }
}

/// The partial batch response: what is named comes again, what is not is deleted. It names
/// messageIds of this event alone, each once: a missing list would delete every message, an unknown
/// or empty identifier would return them all.
///
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html>
pub fn response<'a>(answers: impl IntoIterator<Item = (&'a Message, Disposition)>) -> SqsBatchResponse {
    let mut named = HashSet::new();
    let mut response = SqsBatchResponse::default();
    for (message, disposition) in answers {
        match disposition {
            Disposition::Redeliver { after: _ } if named.insert(&message.id) => response.add_failure(&message.id),
            Disposition::Redeliver { after: _ } | Disposition::Done => {}
        }
    }
    response
}
