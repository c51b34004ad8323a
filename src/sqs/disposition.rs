//! Whether a message is deleted or delivered again, and when.

use std::time::{Duration, SystemTime};

use super::message::Message;
use crate::idempotency::{Decision, LONGEST_BACKOFF, Outcome, Report, WorkErrorKind, backoff, random};

/// Longest visibility timeout that is asked for. SQS accepts at most 12 hours counted from the receive, and refuses a
/// longer one. Up to 20 minutes of them may have passed: the batching window has up to 5, and an invocation up to 15.
/// More have passed if Lambda throttled the invocation; less is then asked for.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>,
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-parameters.html>
const MAX_DELAY: Duration = Duration::from_secs(12 * 3600 - 1200);

/// For how long after its first receive a message may wait for longer than the [`backoff`], if its work asks for it.
/// After that, 1000 receives, the maximum of SQS before it moves a message to the dead-letter queue, take eight days and
/// the time of the invocations. So they end before SQS deletes the message at the end of its retention, 14 days at most:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>
const LONG_WAITS_END: Duration = Duration::from_hours(48);

/// Mean difference of the delay of an in-batch duplicate from that of the message that ran. The actual one is 50 to
/// 150 % of it.
const DUPLICATE_SEPARATION: Duration = Duration::from_secs(10);

/// Whether a message is deleted or delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The message is done. SQS deletes it.
    Done,
    /// The message cannot succeed and was sent to the dead-letter queue. SQS deletes it from its own queue.
    DeadLetter,
    /// The message is a batch item failure. SQS delivers it again.
    Redeliver {
        /// The new visibility timeout. `None` keeps that of the queue.
        after: Option<Duration>,
    },
}

impl Disposition {
    /// Converts the decision on this report to SQS. A message that cannot succeed is redelivered with a backoff until
    /// the redrive policy moves it to the dead-letter queue.
    pub(super) fn of(report: &Report, message: &Message) -> Self {
        match report.decision(message.receive_count.unwrap_or(1)) {
            Decision::Ack => Self::Done,
            Decision::Retry { after: Some(after) } if is_requested(report) => Self::redeliver(limited(after, message)),
            Decision::Retry { after: Some(after) } => Self::redeliver(after),
            Decision::Retry { after: None } => Self::Redeliver { after: None },
            Decision::DeadLetter => Self::back_off(message),
        }
    }

    /// Redelivers the message after the [`backoff`] of its receive count.
    pub(super) fn back_off(message: &Message) -> Self {
        Self::redeliver(backoff(message.receive_count.unwrap_or(1)))
    }

    /// Applies this disposition to another message. A delay that is longer than the longest [`backoff`] is limited by
    /// the first receive of that message.
    pub(super) fn shared_with(self, other: &Message) -> Self {
        match self {
            Self::Redeliver { after: Some(after) } if after > LONGEST_BACKOFF => Self::redeliver(limited(after, other)),
            Self::Redeliver { .. } | Self::Done | Self::DeadLetter => self,
        }
    }

    /// The disposition of an in-batch duplicate of a message with this disposition. Its delay is longer, or shorter if
    /// a longer one would exceed the maximum.
    pub(super) fn apart(self) -> Self {
        let Self::Redeliver { after: Some(after) } = self else { return self };
        let separation = DUPLICATE_SEPARATION.mul_f64(0.5 + random());
        let later = after.saturating_add(separation);
        Self::redeliver(if later > MAX_DELAY { after.min(MAX_DELAY).saturating_sub(separation) } else { later })
    }

    fn redeliver(after: Duration) -> Self {
        Self::Redeliver { after: Some(after.min(MAX_DELAY)) }
    }

    /// The new visibility timeout, if it is to be changed.
    pub(crate) fn delay(self) -> Option<Duration> {
        match self {
            Self::Redeliver { after } => after,
            Self::Done | Self::DeadLetter => None,
        }
    }
}

/// Whether the work asked for the delay.
fn is_requested(report: &Report) -> bool {
    use WorkErrorKind::{Busy, Retryable, Unavailable};
    let (Outcome::Failed { error, .. } | Outcome::Unavailable { error }) = &report.outcome else { return false };
    matches!(error.kind(), Retryable { after: Some(_) } | Unavailable { after: Some(_) } | Busy { after: Some(_) })
}

/// The delay, or at most the longest backoff if it would end later than [`LONG_WAITS_END`] after the first receive.
fn limited(after: Duration, message: &Message) -> Duration {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let ends_late = message.first_receive_ms.map(Duration::from_millis).is_some_and(|first_receive| {
        since_1970.saturating_sub(first_receive).saturating_add(after.min(MAX_DELAY)) > LONG_WAITS_END
    });
    if ends_late { after.min(backoff(u32::MAX)) } else { after }
}
