//! A message that the dead-letter queue accepted.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use history::monotonic_us;
use idempotent_sqs::sqs::{AttributeValue, DeadLetter, MessageAttribute};
use idempotent_sqs_testing::Queue;
use serde_json::Value;

use super::SdkCall;
use crate::producers::NUMBER;

/// A message that the dead-letter queue accepted.
#[derive(Clone, Debug)]
pub struct Letter {
    pub body: String,
    pub attributes: BTreeMap<String, MessageAttribute>,
    pub group: Option<String>,
    pub deduplication_id: Option<String>,
    pub trace_header: Option<String>,
    /// The message that it was.
    pub message_id: String,
    /// `None` if the message had no room for it.
    pub reason: Option<DeadLetter>,
    /// Whether the function got the reply.
    pub is_replied: bool,
    /// The process that sent it, as in the history of its calls.
    pub process: String,
    /// When the process sent it, µs by the monotonic clock.
    pub sent_us: u64,
    /// When the queue accepted it, µs by the monotonic clock.
    pub at_us: u64,
}

impl Letter {
    /// The letter that this call of `SendMessage` sends. Its message is known by its reason, or by its number in
    /// `queue`.
    pub fn of(SdkCall { process, input, at_us, .. }: &SdkCall, queue: &Queue) -> Self {
        let text = |name: &str| input[name].as_str().map(str::to_owned);
        let trace = &input["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"];
        let attributes = input["MessageAttributes"].as_object().into_iter().flatten();
        let attributes = attributes.map(|(name, value)| (name.clone(), attribute(value)));
        let attributes: BTreeMap<_, _> = attributes.collect();
        let text_of = |name: &str| attributes.get(name).and_then(MessageAttribute::text);
        let reason: Option<DeadLetter> = text_of(DeadLetter::ATTRIBUTE)
            .map(|text| serde_json::from_str(text).expect("the function sends valid JSON"));
        let by_number = || {
            let number = text_of(NUMBER).expect("a letter without a reason has a number");
            let number: usize = number.parse().expect("this is the number of a message");
            queue.history()[number].message_ids[0].clone()
        };
        let message_id = reason.as_ref().map_or_else(by_number, |reason| reason.message_id.clone());
        Self {
            body: text("MessageBody").unwrap_or_default(),
            group: text("MessageGroupId"),
            deduplication_id: text("MessageDeduplicationId"),
            trace_header: trace.as_str().map(str::to_owned),
            attributes,
            message_id,
            reason,
            is_replied: false,
            process: process.clone(),
            sent_us: *at_us,
            at_us: monotonic_us(),
        }
    }
}

fn attribute(input: &Value) -> MessageAttribute {
    let text = |name: &str| input[name].as_str().map(str::to_owned);
    let bytes = || STANDARD.decode(input["BinaryValue"].as_str()?).ok();
    let value = match text("StringValue") {
        Some(text) => AttributeValue::Text(text),
        None => bytes().map_or(AttributeValue::Unreadable, AttributeValue::Binary),
    };
    MessageAttribute { data_type: text("DataType").unwrap_or_default(), value }
}
