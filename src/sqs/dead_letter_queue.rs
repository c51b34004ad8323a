//! Sends messages that cannot succeed to the dead-letter queue, with the reason.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::Builder;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder;
use aws_sdk_sqs::types::{MessageAttributeValue, MessageSystemAttributeNameForSends, MessageSystemAttributeValue};
use aws_smithy_types::{Blob, DateTime, date_time};
use tokio::time::{Instant, timeout_at};

use super::attribute::{AttributeValue, MessageAttribute};
use super::client::{QueueArn, SqsClient, region_of};
use super::dead_letter::{DeadLetter, DeadLetterOutcome, reason};
use super::message::Message;
use super::message_report::MessageReport;
use crate::aws::AwsConfig;
use crate::credentials::NO_CERTIFICATES;
use crate::idempotency::{catch_async, error_chain};

/// Attributes that a message may have:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
const MAX_ATTRIBUTES: usize = 10;

/// Largest message with its attributes, bytes:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
const MAX_MESSAGE_BYTES: usize = 1_048_576;

/// Longest time for SQS to reply, including credentials and the TLS handshake of the first call. The message is
/// delivered again if it was not sent, and the invocation's duration is billed.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The queue that receives the messages that cannot succeed. Clones share its client.
#[derive(Clone)]
pub struct DeadLetterQueue {
    url: String,
    function: Option<String>,
    version: Option<String>,
    sqs: Arc<Sqs>,
}

/// Destination of the messages.
enum Sqs {
    Client(SqsClient),
    /// A replacement for SQS in tests. It may return why a message was refused.
    Replacement(Box<Replacement>),
}

type Replacement = dyn Fn(DeadLetterMessage) -> Result<(), String> + Send + Sync;

/// A message as it is sent to the dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterMessage {
    /// The original body.
    pub body: String,
    /// The original attributes, and the [`DeadLetter`].
    pub attributes: BTreeMap<String, MessageAttribute>,
    /// The original message group.
    pub group_id: Option<String>,
    /// In a FIFO queue, the original messageId.
    pub deduplication_id: Option<String>,
    /// The X-Ray trace header of the sender.
    pub trace_header: Option<String>,
}

impl fmt::Debug for DeadLetterQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetterQueue").field("url", &self.url).finish_non_exhaustive()
    }
}

impl DeadLetterQueue {
    /// The queue with this URL. No connection is opened yet.
    #[must_use]
    pub fn new(url: impl Into<String>, aws: AwsConfig) -> Self {
        Self { url: url.into(), function: None, version: None, sqs: Arc::new(Sqs::Client(SqsClient::new(aws))) }
    }

    /// Passes each message to `send` instead of SQS: for tests with a simulated queue.
    pub fn with_replacement(
        url: impl Into<String>,
        send: impl Fn(DeadLetterMessage) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { url: url.into(), function: None, version: None, sqs: Arc::new(Sqs::Replacement(Box::new(send))) }
    }

    /// Names the Lambda function and its version in each [`DeadLetter`].
    #[must_use]
    pub fn with_function(self, name: Option<String>, version: Option<String>) -> Self {
        Self { function: name, version, ..self }
    }

    /// Describes why this message cannot succeed. `received` is when its batch was received.
    pub(super) fn letter(
        &self,
        outcome: DeadLetterOutcome,
        message: &Message,
        report: &MessageReport,
        received: SystemTime,
    ) -> DeadLetter {
        let time = |time: DateTime| time.fmt(date_time::Format::DateTime).ok();
        let first_receive = message.first_receive_ms.and_then(|ms| i64::try_from(ms).ok());
        DeadLetter {
            outcome,
            reason: reason(&report.reason),
            key: report.key.as_ref().map(|key| key.as_str().to_owned()),
            attempts: report.attempts,
            fence: report.fence.map(|fence| fence.0),
            source_queue_arn: message.queue_arn.clone(),
            message_id: message.id.clone(),
            first_receive: first_receive.and_then(|ms| time(DateTime::from_millis(ms))),
            last_receive: time(whole_milliseconds(received)),
            function: self.function.clone(),
            version: self.version.clone(),
        }
    }

    /// The message as it is sent: whole, and with the letter as one more attribute. A message that has ten attributes
    /// already, or that would become too large, is sent without the letter.
    ///
    /// # Errors
    /// Why it cannot be sent whole.
    pub(super) fn message(&self, message: &Message, letter: DeadLetter) -> Result<DeadLetterMessage, &'static str> {
        let Some(body) = message.body.clone().filter(|body| !body.is_empty()) else {
            return Err("it has no body that can be sent");
        };
        if message.attributes.values().any(|attribute| attribute.value == AttributeValue::Unreadable) {
            return Err("it has an attribute that cannot be read");
        }
        if QueueArn::of(message).is_some_and(|queue| queue.has_url(&self.url)) {
            return Err("DEAD_LETTER_QUEUE_URL is the queue that it came from");
        }
        let mut attributes: BTreeMap<_, _> = message.attributes.clone().into_iter().collect();
        // Left over from an earlier redrive.
        attributes.remove(DeadLetter::ATTRIBUTE);
        if attributes.len() < MAX_ATTRIBUTES {
            let size = body.len() + attributes.iter().map(|(name, value)| name.len() + value.size()).sum::<usize>();
            if let Some(text) = letter.text_within(MAX_MESSAGE_BYTES.saturating_sub(size)) {
                attributes.insert(DeadLetter::ATTRIBUTE.to_owned(), text.into());
            }
        }
        let is_fifo = self.url.strip_suffix(".fifo").is_some();
        Ok(DeadLetterMessage {
            body,
            attributes,
            // A FIFO queue requires a group, and a standard queue does not accept a deduplicationId.
            group_id: message.group_id.clone().or_else(|| is_fifo.then(|| message.id.clone())),
            deduplication_id: is_fifo.then(|| message.id.clone()),
            trace_header: message.trace_header.clone(),
        })
    }

    /// Sends the message. `from` is the message that it was. Stops at `until`.
    ///
    /// # Errors
    /// Why SQS did not confirm it.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the message may have been sent.
    pub(super) async fn send(&self, message: DeadLetterMessage, from: &Message, until: Instant) -> Result<(), String> {
        match &*self.sqs {
            Sqs::Client(client) => {
                let until = until.min(Instant::now() + TIMEOUT);
                // A URL without a region is that of a simulator, or of a queue in the region of the source queue.
                let region = region_of(&self.url).or_else(|| QueueArn::of(from).map(|queue| queue.region));
                let send = async {
                    let request = client.get(region).await.send_message().queue_url(&self.url);
                    // A retry after a lost reply would send a second letter.
                    let once = Builder::new().retry_config(RetryConfig::disabled());
                    with_message(request, message).customize().config_override(once).send().await
                };
                // The SDK panics if no certificate of this system can be loaded.
                match catch_async(timeout_at(until, send)).await {
                    Some(Ok(Ok(_))) => Ok(()),
                    Some(Ok(Err(error))) => Err(error_chain(&error)),
                    Some(Err(_elapsed)) => Err("SQS did not reply in time".to_owned()),
                    None => Err(format!("the AWS SDK panicked: {NO_CERTIFICATES}")),
                }
            }
            Sqs::Replacement(send) => send(message),
        }
    }
}

fn with_message(request: SendMessageFluentBuilder, message: DeadLetterMessage) -> SendMessageFluentBuilder {
    let DeadLetterMessage { body, attributes, group_id, deduplication_id, trace_header } = message;
    let mut request =
        request.message_body(body).set_message_group_id(group_id).set_message_deduplication_id(deduplication_id);
    for (name, MessageAttribute { data_type, value }) in attributes {
        let attribute = MessageAttributeValue::builder().data_type(data_type);
        let attribute = match value {
            AttributeValue::Text(text) => attribute.string_value(text),
            AttributeValue::Binary(bytes) => attribute.binary_value(Blob::new(bytes)),
            AttributeValue::Unreadable => attribute,
        };
        if let Ok(attribute) = attribute.build() {
            request = request.message_attributes(name, attribute);
        }
    }
    if let Some(header) = trace_header
        && let Ok(header) = MessageSystemAttributeValue::builder().data_type("String").string_value(header).build()
    {
        request = request.message_system_attributes(MessageSystemAttributeNameForSends::AwsTraceHeader, header);
    }
    request
}

fn whole_milliseconds(time: SystemTime) -> DateTime {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    DateTime::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::dead_letter::MAX_REASON_BYTES;
    use super::*;

    #[test]
    fn a_letter_names_the_times_of_its_receives_and_the_function() {
        let queue = DeadLetterQueue::new("https://sqs/1/dead", AwsConfig::default());
        let queue = queue.with_function(Some("payments".into()), Some("7".into()));
        let message = Message { first_receive_ms: Some(1_795_080_483_148), ..Message::new("m1", "") };
        let report = MessageReport::no_key("no key".into(), &message);
        let received = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_080_500_000);
        let letter = queue.letter(DeadLetterOutcome::NoKey, &message, &report, received);
        assert_eq!(letter.first_receive.as_deref(), Some("2026-11-19T09:28:03.148Z"));
        assert_eq!(letter.last_receive.as_deref(), Some("2026-11-19T09:28:20Z"));
        assert_eq!((letter.function.as_deref(), letter.version.as_deref()), (Some("payments"), Some("7")));
    }

    #[test]
    fn a_letter_has_a_short_reason_without_addresses() {
        let queue = DeadLetterQueue::new("https://sqs/1/dead", AwsConfig::default());
        let long = format!("https://user:secret@host/ {}", "x".repeat(MAX_REASON_BYTES));
        let report = MessageReport::no_key(long, &Message::default());
        let letter = queue.letter(DeadLetterOutcome::NoKey, &Message::default(), &report, SystemTime::UNIX_EPOCH);
        assert!(letter.reason.starts_with("<address> x") && letter.reason.len() == MAX_REASON_BYTES, "{letter:?}");
    }

    #[test]
    fn a_letter_fits_exactly_into_the_bytes_that_are_left() {
        let attribute = |value| MessageAttribute { data_type: "Binary".into(), value: AttributeValue::Binary(value) };
        let queue = DeadLetterQueue::new("https://sqs/1/dead", AwsConfig::default());
        let report = MessageReport::no_key("no key".into(), &Message::default());
        let size = |message: &DeadLetterMessage| {
            let attributes = message.attributes.iter().map(|(name, value)| name.len() + value.size()).sum::<usize>();
            message.body.len() + attributes
        };
        let sent = |body: usize| {
            let attributes = [("Image".to_owned(), attribute(vec![7; 300_000]))].into();
            let message = Message { attributes, ..Message::new("m1", "x".repeat(body)) };
            let letter = queue.letter(DeadLetterOutcome::NoKey, &message, &report, SystemTime::UNIX_EPOCH);
            queue.message(&message, letter).unwrap()
        };
        let letter = size(&sent(1)) - 300_000 - "Image".len() - "Binary".len() - 1;
        let most = MAX_MESSAGE_BYTES - 300_000 - "Image".len() - "Binary".len();
        assert_eq!(size(&sent(most - letter)), MAX_MESSAGE_BYTES, "with the whole reason");
        assert!(size(&sent(most - letter + 1)) <= MAX_MESSAGE_BYTES, "with a shortened reason");
        assert_eq!(sent(most).attributes.len(), 1, "without the letter");
    }
}
