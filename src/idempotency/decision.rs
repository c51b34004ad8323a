//! Turns the outcome of a delivery into a decision for the broker: acknowledge, deliver again, or dead-letter.

use std::time::Duration;

use super::report::{Outcome, Report};
use super::work_error::{WorkError, WorkErrorKind};

/// First step of the backoff.
const FIRST_BACKOFF: Duration = Duration::from_secs(2);

/// Longest step of the backoff: the longest time that a Lambda function can run.
pub(crate) const LONGEST_BACKOFF: Duration = Duration::from_secs(900);

/// Minimum delay, even if the work requested none. Without it, a message could be redelivered in a loop.
const SHORTEST_DELAY: Duration = Duration::from_secs(1);

/// Spread of redeliveries after a conflict, so that messages that conflicted with one lease are not redelivered at the
/// same time.
const CONFLICT_JITTER: Duration = Duration::from_secs(2);

/// What to do with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Acknowledge the message: its work is done.
    Ack,
    /// Deliver the message again.
    Retry {
        /// After this delay. `None` leaves the time to the broker, such as the visibility timeout of SQS.
        after: Option<Duration>,
    },
    /// No further attempt can succeed: move the message to a dead-letter queue. If that is not possible immediately,
    /// deliver it again with a [`backoff`].
    DeadLetter,
}

impl Report {
    /// What to do with the delivery. `deliveries` is how often the broker has delivered this message, from 1; it
    /// determines the backoff.
    #[must_use]
    pub fn decision(&self, deliveries: u32) -> Decision {
        match &self.outcome {
            Outcome::Done { .. }
            | Outcome::Duplicate { .. }
            | Outcome::DoneByOwnRecord { .. }
            // Another attempt could repeat the effect. If the other owner failed with another payload, it would not
            // even be a recovery.
            | Outcome::Lost { state: _, done: true } => Decision::Ack,
            Outcome::Conflict { lease_remains } => {
                let after = lease_remains.saturating_add(CONFLICT_JITTER.mul_f64(random()));
                Decision::Retry { after: Some(after) }
            }
            Outcome::Failed { error, .. } | Outcome::Unavailable { error } => {
                Decision::Retry { after: Some(delay(error, deliveries)) }
            }
            // The store is unavailable.
            Outcome::Unsettled { .. } => Decision::Retry { after: Some(backoff(deliveries)) },
            Outcome::NotStarted | Outcome::Lost { state: _, done: false } => Decision::Retry { after: None },
            Outcome::Mismatch | Outcome::FailedBefore | Outcome::FailedPermanently { .. } => Decision::DeadLetter,
        }
    }
}

/// Delay of a failed message. A receiver that is unavailable or busy is not called again before the backoff, even if it
/// requested a shorter delay: these attempts are not counted, so only the number of deliveries limits them.
fn delay(error: &WorkError, deliveries: u32) -> Duration {
    match error.kind() {
        WorkErrorKind::Retryable { after: Some(after) } => after.max(SHORTEST_DELAY),
        WorkErrorKind::Unavailable { after: Some(after) } | WorkErrorKind::Busy { after: Some(after) } => {
            after.max(backoff(deliveries))
        }
        WorkErrorKind::Retryable { after: None }
        | WorkErrorKind::Unavailable { after: None }
        | WorkErrorKind::Busy { after: None }
        | WorkErrorKind::Uncertain
        | WorkErrorKind::Permanent => backoff(deliveries),
    }
}

/// Exponential backoff by the number of deliveries: 2 s doubled each time, up to 15 minutes. Half of each step is
/// jitter, so that messages that failed together are not redelivered together:
/// <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>
#[must_use]
pub fn backoff(deliveries: u32) -> Duration {
    let doublings = deliveries.saturating_sub(1);
    let step = FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_BACKOFF);
    step.mul_f64(0.5 + random() / 2.0).max(SHORTEST_DELAY)
}

/// A random number from 0 to 1, and 1 if the operating system returns no random bytes.
pub(crate) fn random() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}
