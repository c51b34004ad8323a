//! How records are kept and attempts are counted.

use std::time::Duration;

use tokio::time::Instant;

use super::results::{MAX_RESULT_BYTES, Results};

/// How records are kept and attempts are counted.
///
/// ```
/// use std::time::Duration;
/// use idempotent_sqs::Policy;
///
/// let mut policy = Policy::default();
/// policy.retention = Duration::from_hours(24);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// How long a record is kept after its last acquire. Set it to at least the time that a message can stay in its
    /// queues. Default: 14 days, the longest retention of SQS.
    pub retention: Duration,
    /// Number of attempts after which a failure is permanent. Default: 200, which last 36 hours on average with the
    /// [`backoff`](super::backoff).
    pub max_attempts: u8,
    /// How long a permanent failure and used-up attempts apply to the message that failed, from the acquire of its last
    /// attempt. After that, the next delivery runs, as a recovery if an attempt may have taken effect, and the attempts
    /// are counted from 1 again if they were used up. Set it where deliveries have no messageId, such as retried HTTP
    /// requests. Default: [`Duration::MAX`], as long as the record.
    pub failed_retention: Duration,
    /// What to do if an earlier attempt may have taken effect. Default: [`Recovery::Rerun`].
    pub recovery: Recovery,
    /// Largest result stored in the record, bytes. More than [`MAX_RESULT_BYTES`] counts as this. Default: 4,096.
    pub result_max_bytes: usize,
    /// Where larger results are stored. Default: `None`, they are not kept.
    pub results: Option<Results>,
    /// How much longer than the deadline a lease lasts, for requests that are still in flight. More than half of
    /// [`longest_lease`](Self::longest_lease) counts as this half, so that work has the other. Default: 1 second.
    pub lease_grace: Duration,
    /// Maximum lease. Work with a later deadline is cancelled [`lease_grace`](Self::lease_grace) before the lease ends,
    /// or half of this value before it if that is less. All consumers of a namespace must use the same value. A longer
    /// lease is assumed to have been acquired while the store's clock was ahead, and is shortened to this value.
    /// Default: 24 hours.
    pub longest_lease: Duration,
}

/// What to do if an earlier attempt may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Run [`Work::recover`](super::Work::recover).
    Rerun,
    /// Do not run the work, unless it has its [own record](super::OwnRecord), which shows what took effect. The message
    /// fails permanently, and an operator handles it in the dead-letter queue.
    Park,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            retention: Duration::from_hours(14 * 24),
            // An outage of 24 hours uses up about 140, if each attempt may have taken effect. Attempts whose process
            // died before it released the record are also counted.
            max_attempts: 200,
            failed_retention: Duration::MAX,
            recovery: Recovery::Rerun,
            result_max_bytes: 4096,
            results: None,
            lease_grace: Duration::from_secs(1),
            longest_lease: Duration::from_hours(24),
        }
    }
}

impl Policy {
    /// The lease of a claim that is made now and ends at `end`, [`Deadline::end`](super::Deadline::end).
    #[must_use]
    pub fn lease_until(&self, end: Instant) -> Duration {
        let remaining = end.saturating_duration_since(Instant::now());
        remaining.saturating_add(self.grace()).min(self.longest_lease)
    }

    /// Largest result that is kept, in the record or in [`results`](Self::results), bytes.
    #[must_use]
    pub fn max_kept_result(&self) -> usize {
        if self.results.is_some() { MAX_RESULT_BYTES } else { self.max_in_record() }
    }

    /// Largest result in a record, bytes.
    pub(super) fn max_in_record(&self) -> usize {
        self.result_max_bytes.min(MAX_RESULT_BYTES)
    }

    /// How much earlier than its lease work ends. A grace of the longest lease would leave no time for work.
    pub(super) fn grace(&self) -> Duration {
        self.lease_grace.min(self.longest_lease / 2)
    }
}
