//! Whether a message is deleted or delivered again, and when.

use std::time::{Duration, SystemTime};

use super::message::Message;
use crate::idempotency::{Decision, LONGEST_BACKOFF, backoff, random};

/// Longest visibility timeout that is asked for. SQS accepts at most 12 hours counted from the receive, and refuses a
/// longer one. Up to 20 minutes of them may have passed: the batching window has up to 5, and an invocation up to 15.
/// More have passed if Lambda throttled the invocation; less is then asked for.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>,
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-parameters.html>
const MAX_DELAY: Duration = Duration::from_secs(12 * 3600 - 1200);

/// For how long after its first receive a message may wait for longer than the longest backoff. 1000 receives, the
/// maximum of SQS before it moves a message to the dead-letter queue, take eight days by the backoff. So they end
/// before SQS deletes the message at the end of its retention, which is 14 days at most, also if each run takes
/// minutes: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>
const LONG_DELAYS_LAST: Duration = Duration::from_hours(48);

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
    /// Converts the decision to SQS. A message that cannot succeed is redelivered with a backoff until the redrive
    /// policy moves it to the dead-letter queue.
    pub(super) fn of(decision: Decision, message: &Message) -> Self {
        match decision {
            Decision::Ack => Self::Done,
            Decision::Retry { after: Some(after) } if after > LONGEST_BACKOFF && is_old(message) => {
                Self::back_off(message)
            }
            Decision::Retry { after: Some(after) } => Self::redeliver(after),
            Decision::Retry { after: None } => Self::Redeliver { after: None },
            Decision::DeadLetter => Self::back_off(message),
        }
    }

    /// Redelivers the message after the [`backoff`] of its receive count.
    pub(super) fn back_off(message: &Message) -> Self {
        Self::redeliver(backoff(message.receive_count.unwrap_or(1)))
    }

    /// That of an in-batch duplicate of a message with this one: a longer delay, unless that has the longest.
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

/// Whether the message was first received longer ago than [`LONG_DELAYS_LAST`].
fn is_old(message: &Message) -> bool {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let first_receive = message.first_receive_ms.map(Duration::from_millis);
    first_receive.is_some_and(|first_receive| since_1970.saturating_sub(first_receive) > LONG_DELAYS_LAST)
}
