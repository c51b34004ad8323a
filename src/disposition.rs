//! From what happened to a message to what its queue is told: the table of this project.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use crate::idempotency::{Outcome, Report};
use crate::message::Message;
use crate::offload::OffloadError;
use crate::record::{Fence, Key, State};
use crate::store::StoreError;
use crate::work::{WorkError, WorkErrorKind};

/// First step of the back-off.
const BACKOFF_FIRST: Duration = Duration::from_secs(2);

/// Shortest wait, also where a receiver asked for none: a message that comes again at once spins.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Longest step of the back-off: the longest that a function can run, and so about the time scale
/// on which people notice and mend.
const BACKOFF_LONGEST: Duration = Duration::from_secs(900);

/// Longest wait that is asked for. SQS refuses more than 12 hours from the receive, and up to 15
/// minutes of them may be gone:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
const LONGEST_WAIT: Duration = Duration::from_secs(12 * 3600 - 900);

/// By how much longer an in-batch duplicate waits than the message that ran, by half of which it varies.
const SEPARATION: Duration = Duration::from_secs(10);

/// Spread of redeliveries after a conflict, so that those who waited for one lease do not all come
/// in the same moment.
const CONFLICT_JITTER: Duration = Duration::from_secs(2);

/// Verdict on one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The queue deletes it.
    Done,
    /// It comes again.
    Redeliver {
        /// After this long; `None` leaves it to the queue's visibility timeout.
        after: Option<Duration>,
    },
}

/// What happened to one message, and what its queue is told.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Outcome of the acquire, or why there was none. A word for logs and metrics.
    pub outcome: &'static str,
    /// What the queue is told.
    pub disposition: Disposition,
    /// Why, in a sentence. Never the payload.
    pub reason: Cow<'static, str>,
    /// The idempotency key, where there is one.
    pub key: Option<Key>,
    /// Fence of the claim, where there is one.
    pub fence: Option<Fence>,
    /// Count of attempts, where it is known.
    pub attempt: Option<u8>,
    /// Whether the work ran.
    pub ran: bool,
    /// Whether the work failed for good: by its own word, or as this was its last attempt.
    pub failed_for_good: bool,
}

const LEFT_ALONE: Disposition = Disposition::Redeliver { after: None };

impl Verdict {
    /// On what the core reported of this message.
    pub(crate) fn of(report: Report, message: &Message) -> Self {
        let Report { outcome, fence, attempt, recovery } = report;
        let hopeless = || hopeless(message);
        let acquired = if recovery { "ACQUIRED_STALE" } else { "ACQUIRED" };
        let failed_for_good = matches!(&outcome, Outcome::WorkFailed { failure, .. } if failure.permanent);
        let (outcome, ran, disposition, reason) = match outcome {
            Outcome::Done { result: _ } => (acquired, true, Disposition::Done, "done".into()),
            Outcome::Duplicate { result: _ } => ("DUPLICATE", false, Disposition::Done, "it was done before".into()),
            Outcome::Conflict { lease_remains } => {
                let after = lease_remains.saturating_add(CONFLICT_JITTER.mul_f64(random()));
                let reason = format!("another owner is at work, for up to {} ms more", lease_remains.as_millis());
                ("CONFLICT", false, redeliver(after), reason.into())
            }
            Outcome::Mismatch => ("MISMATCH", false, hopeless(), "the key stands for another payload".into()),
            Outcome::Failed => {
                ("FAILED", false, hopeless(), "it failed for good, or its attempts are used up; nothing ran".into())
            }
            Outcome::NotStarted => (acquired, false, LEFT_ALONE, "no time was left to start it".into()),
            Outcome::Unavailable { error } => {
                let reason = format!("unavailable: {}", with_causes(&error));
                (acquired, true, redeliver(back_off(&error, message)), reason.into())
            }
            Outcome::WorkFailed { error, failure } if failure.permanent => {
                (acquired, true, hopeless(), format!("failed for good: {}", with_causes(&error)).into())
            }
            Outcome::WorkFailed { error, failure } => {
                let kind = if failure.uncertain { "uncertain" } else { "failed" };
                (
                    acquired,
                    true,
                    redeliver(back_off(&error, message)),
                    format!("{kind}: {}", with_causes(&error)).into(),
                )
            }
            Outcome::Lost { state: State::Completed, done: true } => {
                ("LOST", true, Disposition::Done, "another owner took it over and has completed it".into())
            }
            Outcome::Lost { state: State::Processing | State::Completed | State::Failed, done: _ } => {
                ("LOST", true, LEFT_ALONE, "another owner took it over".into())
            }
            Outcome::Kept { result: _ } => {
                (acquired, true, Disposition::Done, "done by its own record; the store's does not say so yet".into())
            }
            Outcome::Unsettled { error } => (
                acquired,
                true,
                LEFT_ALONE,
                format!("the work ran, but its end could not be recorded: {}", with_causes(&error)).into(),
            ),
        };
        Self { outcome, disposition, reason, key: None, fence, attempt, ran, failed_for_good }
    }

    /// The delivery could not be read.
    pub(crate) fn unreadable(message: &Message) -> Self {
        Self::without_claim("UNREADABLE", hopeless(message), "it has no readable body".into())
    }

    /// There is no payload where it points to. What may pass comes again by the queue's visibility
    /// timeout, within which rights can be mended too.
    pub(crate) fn no_payload(error: &OffloadError, message: &Message) -> Self {
        let disposition = if error.may_pass() { LEFT_ALONE } else { hopeless(message) };
        Self::without_claim("UNREADABLE", disposition, with_causes(error).into())
    }

    /// There is no key in it.
    pub(crate) fn no_key(reason: String, message: &Message) -> Self {
        Self::without_claim("NO_KEY", hopeless(message), reason.into())
    }

    /// It was not looked at.
    pub(crate) fn unprocessed(disposition: Disposition, reason: &'static str) -> Self {
        Self::without_claim("UNPROCESSED", disposition, reason.into())
    }

    /// It was not looked at, and comes back by the queue's visibility timeout.
    pub(crate) fn not_started(reason: &'static str) -> Self {
        Self::unprocessed(LEFT_ALONE, reason)
    }

    /// The store gave no answer for it.
    pub(crate) fn no_answer(error: &StoreError) -> Self {
        let outcome = if error.is_unavailable() { "UNAVAILABLE" } else { "FOREIGN" };
        Self::without_claim(outcome, LEFT_ALONE, with_causes(error).into())
    }

    /// With the key that it is about.
    pub(crate) fn on(self, key: &Key) -> Self {
        Self { key: Some(key.clone()), ..self }
    }

    /// On another message of the batch with the same key and payload: the work was run, or tried, once for both. Where
    /// it is not done, it comes again at another time, so that what fails one for good does not fail the other unseen.
    pub(crate) fn for_in_batch_duplicate(&self) -> Self {
        let reason = format!("same key and payload as another message of the batch: {}", self.reason);
        let disposition = match self.disposition {
            Disposition::Redeliver { after: Some(after) } => {
                redeliver(after.saturating_add(SEPARATION.mul_f64(0.5 + random())))
            }
            Disposition::Done | Disposition::Redeliver { after: None } => self.disposition,
        };
        Self { outcome: "IN_BATCH_DUPLICATE", disposition, reason: reason.into(), ran: false, ..self.clone() }
    }

    fn without_claim(outcome: &'static str, disposition: Disposition, reason: Cow<'static, str>) -> Self {
        Self { outcome, disposition, reason, key: None, fence: None, attempt: None, ran: false, failed_for_good: false }
    }
}

/// An error with its causes, in one line. Some errors tell their cause themselves; it is said once.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !line.contains(&said) {
            line.push_str(": ");
            line.push_str(&said);
        }
        cause = error.source();
    }
    line
}

fn redeliver(after: Duration) -> Disposition {
    Disposition::Redeliver { after: Some(after.min(LONGEST_WAIT)) }
}

/// For a message that no further attempt can help. It backs off by receive count, until the redrive policy moves it to
/// the dead-letter queue.
fn hopeless(message: &Message) -> Disposition {
    redeliver(step(message))
}

/// How long a failed message waits. What the work asked for counts, but what is unavailable is not asked sooner than
/// by the exponential back-off, as these attempts are not counted and only receives bound them.
fn back_off(error: &WorkError, message: &Message) -> Duration {
    match error.kind() {
        WorkErrorKind::Retryable { after: Some(after) } => after.max(SHORTEST_WAIT),
        WorkErrorKind::Unavailable { after: Some(after) } => after.max(step(message)),
        WorkErrorKind::Retryable { after: None }
        | WorkErrorKind::Unavailable { after: None }
        | WorkErrorKind::Uncertain
        | WorkErrorKind::Permanent => step(message),
    }
}

/// An exponential back-off by the receive count, of which half is jitter, so that messages which failed together do
/// not come back together: <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>
fn step(message: &Message) -> Duration {
    let doublings = message.receive_count.unwrap_or(1).saturating_sub(1);
    let step = BACKOFF_FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(BACKOFF_LONGEST);
    step.mul_f64(0.5 + random() / 2.0).max(SHORTEST_WAIT)
}

/// From 0 to 1, evenly. Without random bytes there is no jitter, and nothing worse.
fn random() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}
