use std::time::{Duration, SystemTime};

use super::Queue;

/// Longest that a message can be invisible:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html>
pub(super) const LONGEST_VISIBILITY: Duration = Duration::from_hours(12);

/// How a queue behaves. By default it is a standard queue as SQS makes them, and a kind one: it
/// delivers nothing twice by itself.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// Its name. A queue whose name ends in `.fifo` is a FIFO queue, and no other is.
    pub name: String,
    /// AWS region, for its ARN.
    pub region: String,
    /// AWS account, for its ARN.
    pub account: String,
    /// Visibility timeout. SQS takes whole seconds, up to 12 hours.
    pub visibility: Duration,
    /// How long a message is kept, from one minute to 14 days.
    pub retention: Duration,
    /// Where a message goes that was received too often; `None` keeps it until its retention ends.
    pub dead_letter: Option<DeadLetter>,
    /// FIFO: a message without a `MessageDeduplicationId` gets the SHA-256 of its body.
    pub content_based_deduplication: bool,
    /// FIFO: where the same `MessageDeduplicationId` is the same message.
    pub deduplication_scope: DeduplicationScope,
    /// Standard: how far messages may overtake each other. Standard queues promise no order.
    pub disorder: Duration,
    /// Standard: chance that a delivery leaves the message visible, so that another receiver may
    /// get it at the same time.
    pub twice_at_once: f64,
    /// Standard: chance that a deleted message comes again, when its visibility timeout ends.
    pub comes_again: f64,
    /// Standard: chance that a delete with an old receipt handle deletes. It succeeds anyway.
    pub old_handle_deletes: f64,
    /// What the clock on the wall says when the queue is made. Timestamps count from it.
    pub made: SystemTime,
}

/// `DeduplicationScope`: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
///
/// A queue without the attribute has [`Queue`](Self::Queue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeduplicationScope {
    /// `queue`: in the whole queue, whatever the message group.
    #[default]
    Queue,
    /// `messageGroup`: in each message group. The same id in another group is another message. High throughput
    /// needs it: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/high-throughput-fifo.html>
    MessageGroup,
}

/// A redrive policy.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The dead-letter queue, of the same type.
    pub queue: Queue,
    /// Receives after which a message goes there in place of one more.
    pub max_receive_count: u32,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            name: "queue".into(),
            region: "eu-central-1".into(),
            account: "123456789012".into(),
            visibility: Duration::from_secs(30),
            retention: Duration::from_hours(4 * 24),
            dead_letter: None,
            content_based_deduplication: false,
            deduplication_scope: DeduplicationScope::Queue,
            disorder: Duration::from_secs(1),
            twice_at_once: 0.0,
            comes_again: 0.0,
            old_handle_deletes: 0.5,
            made: SystemTime::now(),
        }
    }
}

impl QueueSettings {
    /// A standard queue that uses its right to deliver more than once: one message in ten goes out
    /// twice at the same time, one delete in ten does not last.
    #[must_use]
    pub fn rough() -> Self {
        Self { twice_at_once: 0.1, comes_again: 0.1, ..Self::default() }
    }

    /// Whether it is a FIFO queue.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.name.strip_suffix(".fifo").is_some()
    }

    pub(super) fn arn(&self) -> String {
        format!("arn:aws:sqs:{}:{}:{}", self.region, self.account, self.name)
    }

    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>
    pub(super) fn check(&self) {
        assert!(self.visibility <= LONGEST_VISIBILITY, "SQS takes a visibility timeout of up to 12 hours");
        let retention = Duration::from_mins(1)..=Duration::from_hours(14 * 24);
        assert!(retention.contains(&self.retention), "SQS keeps messages from one minute to 14 days");
        if let Some(DeadLetter { queue, max_receive_count }) = &self.dead_letter {
            assert!((1..=1000).contains(max_receive_count), "SQS takes a maxReceiveCount from 1 to 1000");
            assert_eq!(self.is_fifo(), queue.settings().is_fifo(), "a dead-letter queue is of its source's type");
        }
    }
}
