//! One delivery of a message.

use std::collections::HashMap;

use super::attribute::MessageAttribute;
use super::envelope;

/// One SQS delivery, without the types of an AWS crate.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Message {
    /// The messageId. A redelivery keeps it, and so does the move to the dead-letter queue by the redrive policy. A
    /// message that the function sends there, a redrive from there and a new send of the same work get another.
    pub id: String,
    /// The body as it was sent. `None` if the record of the event could not be parsed, or has no body.
    pub body: Option<String>,
    /// The message attributes by name.
    pub attributes: HashMap<String, MessageAttribute>,
    /// The `MessageDeduplicationId` of a FIFO queue.
    pub deduplication_id: Option<String>,
    /// The `MessageGroupId`. Standard queues may have it too (fair queues), where it implies no order.
    pub group_id: Option<String>,
    /// The `ApproximateReceiveCount`: how often SQS has delivered the message, including deliveries that ended in a
    /// conflict or were throttled. Above 1, an earlier delivery may have taken effect; this is the only sign of it if
    /// the store has lost the record.
    pub receive_count: Option<u32>,
    /// The `ApproximateFirstReceiveTimestamp`: when SQS first delivered the message, ms since 1970.
    pub first_receive_ms: Option<u64>,
    /// ARN of the queue.
    pub queue_arn: Option<String>,
    /// Handle of this delivery, for changing its visibility timeout.
    pub receipt_handle: Option<String>,
    /// The X-Ray trace header of the sender:
    /// <https://docs.aws.amazon.com/xray/latest/devguide/xray-services-sqs.html>
    pub trace_header: Option<String>,
}

impl Message {
    /// The message attribute that keeps the messageId of a message that is sent again. `letters redrive` adds it where the
    /// key may come from the messageId, or from a payload in S3.
    pub const ID_ATTRIBUTE: &str = "Idempotency-Message-Id";

    /// A message with this id and body, for tests.
    #[must_use]
    pub fn new(id: impl Into<String>, body: impl Into<String>) -> Self {
        Self { id: id.into(), body: Some(body.into()), ..Self::default() }
    }

    /// The messageId that it had before it was sent again, if the attribute [`ID_ATTRIBUTE`](Self::ID_ATTRIBUTE) has one.
    #[must_use]
    pub fn kept_id(&self) -> Option<&str> {
        self.attributes.get(Self::ID_ATTRIBUTE)?.text().filter(|id| !id.is_empty())
    }

    /// The body, or an empty string if there is none.
    #[must_use]
    pub fn body(&self) -> &str {
        self.body.as_deref().unwrap_or_default()
    }

    /// Returns the message with `payload` in place of the pointer to it.
    pub(super) fn with_payload(&self, payload: &str) -> Self {
        let mut message = Self { body: Some(envelope::with_payload(self.body(), payload)), ..self.clone() };
        message.attributes.retain(|name, _| !envelope::POINTER_ATTRIBUTES.contains(&name.as_str()));
        message
    }

    /// Whether the queue is a FIFO queue. Determined by the queue's name, because standard queues may have message
    /// groups too: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html>
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.queue_arn.as_deref().is_some_and(|arn| arn.strip_suffix(".fifo").is_some())
    }
}
