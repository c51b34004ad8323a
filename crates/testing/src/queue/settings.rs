//! Settings of a queue.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use super::Queue;

/// Longest visibility timeout:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html>
pub(super) const LONGEST_VISIBILITY: Duration = Duration::from_hours(12);

/// Longest delay:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-delay-queues.html>
pub(super) const LONGEST_DELAY: Duration = Duration::from_mins(15);

/// Message retention periods:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
const RETENTION: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(14 * 24);

/// Longest name of a queue, with its suffix `.fifo`.
const LONGEST_NAME: usize = 80;

/// Settings of a queue. By default it is a standard queue with the defaults of SQS, which does not duplicate
/// deliveries on its own.
// Exhaustive, so that tests can use update syntax: `QueueSettings { name: "payments".into(), ..Default::default() }`.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// Name. A queue whose name ends in `.fifo` is a FIFO queue, any other is a standard queue. Default: `queue`.
    pub name: String,
    /// AWS region, part of the ARN.
    pub region: String,
    /// AWS account, part of the ARN.
    pub account: String,
    /// Visibility timeout, in whole seconds, up to 12 hours. Default: 30 seconds.
    pub visibility_timeout: Duration,
    /// Message retention period, in whole seconds, from one minute to 14 days. Default: 4 days.
    pub retention: Duration,
    /// Redrive policy. With `None`, messages stay until their retention ends.
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html>
    pub dead_letter: Option<DeadLetter>,
    /// FIFO: whether a message without a `MessageDeduplicationId` gets the SHA-256 of its body.
    pub content_based_deduplication: bool,
    /// FIFO: scope of a `MessageDeduplicationId`.
    pub deduplication_scope: DeduplicationScope,
    /// Delay of every message without a delay of its own, in whole seconds, up to 15 minutes. Default: 0.
    pub delay: Duration,
    /// Longest time by which a later message may be delivered first. Standard queues guarantee no order, and FIFO
    /// queues none between message groups. No message waits longer than the retention, so more is the same. Default: 1
    /// second.
    pub max_reordering: Duration,
    /// Probability that a receive returns fewer messages than are visible, and at least one. Default: 0.
    pub partial_receive_rate: f64,
    /// Standard: probability that a delivery leaves the message visible, so that another consumer may receive it at the
    /// same time. Default: 0.
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/standard-queues-at-least-once-delivery.html>
    pub concurrent_delivery_rate: f64,
    /// Standard: probability that a deleted message is delivered again after its visibility timeout. Default: 0.
    pub redelivery_rate: f64,
    /// Standard: probability that a delete with an old receipt handle deletes the message. It succeeds in either case.
    /// Default: 0.5.
    pub stale_handle_delete_rate: f64,
    /// Standard: probability that the visibility timeout of a message that is visible again can be changed with its
    /// last receipt handle. Default: 0.5.
    pub expired_handle_change_rate: f64,
    /// Wall clock time at which the queue is created, for timestamps. The function limits the delays of a message that
    /// was first received more than two days ago. Default: now.
    pub created_at: SystemTime,
}

/// `DeduplicationScope`: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
///
/// A queue without the attribute has [`Queue`](Self::Queue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeduplicationScope {
    /// `queue`: the whole queue.
    #[default]
    Queue,
    /// `messageGroup`: each message group. The same id in another group is another message. Required for high
    /// throughput:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/high-throughput-fifo.html>
    MessageGroup,
}

/// A redrive policy.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The dead-letter queue. It must have the type, the account and the region of its source.
    pub queue: Queue,
    /// Number of receives, from 1 to 1000, after which a message is moved to the dead-letter queue instead of being
    /// delivered again.
    pub max_receive_count: u32,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            name: "queue".into(),
            region: "eu-central-1".into(),
            account: "123456789012".into(),
            visibility_timeout: Duration::from_secs(30),
            retention: Duration::from_hours(4 * 24),
            dead_letter: None,
            content_based_deduplication: false,
            deduplication_scope: DeduplicationScope::Queue,
            delay: Duration::ZERO,
            max_reordering: Duration::from_secs(1),
            partial_receive_rate: 0.0,
            concurrent_delivery_rate: 0.0,
            redelivery_rate: 0.0,
            stale_handle_delete_rate: 0.5,
            expired_handle_change_rate: 0.5,
            created_at: SystemTime::now(),
        }
    }
}

impl QueueSettings {
    /// A standard queue that delivers more than once: 10% of its deliveries are duplicated, and 10% of the deleted
    /// messages are delivered again.
    #[must_use]
    pub fn with_duplicates() -> Self {
        Self { concurrent_delivery_rate: 0.1, redelivery_rate: 0.1, ..Self::default() }
    }

    /// Whether it is a FIFO queue.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.name.strip_suffix(".fifo").is_some()
    }

    pub(super) fn arn(&self) -> String {
        format!("arn:aws:sqs:{}:{}:{}", self.region, self.account, self.name)
    }

    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
    pub(super) fn check(&self) {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let base = self.name.strip_suffix(".fifo").unwrap_or(&self.name);
        assert!(!base.is_empty() && self.name.len() <= LONGEST_NAME && base.bytes().all(is_name), "not a queue's name");
        let times = [self.delay, self.visibility_timeout, self.retention];
        assert!(times.into_iter().all(is_whole_seconds), "the times of a queue must be whole seconds");
        assert!(self.delay <= LONGEST_DELAY, "the delay must be at most 15 minutes");
        assert!(self.visibility_timeout <= LONGEST_VISIBILITY, "the visibility timeout must be at most 12 hours");
        assert!(RETENTION.contains(&self.retention), "the retention must be from one minute to 14 days");
        let deduplicates = self.content_based_deduplication || self.deduplication_scope != DeduplicationScope::Queue;
        assert!(self.is_fifo() || !deduplicates, "only a FIFO queue deduplicates");
        if let Some(DeadLetter { queue, max_receive_count }) = &self.dead_letter {
            assert!((1..=1000).contains(max_receive_count), "maxReceiveCount must be from 1 to 1000");
            let dead = queue.settings();
            assert_eq!(self.is_fifo(), dead.is_fifo(), "a dead-letter queue must have the type of its source");
            // The default of `redrivePermission`.
            let are_together = (&self.account, &self.region) == (&dead.account, &dead.region);
            assert!(are_together, "a dead-letter queue must have the account and the region of its source");
        }
    }
}

/// Whether SQS accepts it as an integer of seconds.
pub(super) fn is_whole_seconds(time: Duration) -> bool {
    time.subsec_nanos() == 0
}

pub(super) fn is_visibility_timeout(time: Duration) -> bool {
    is_whole_seconds(time) && time <= LONGEST_VISIBILITY
}
