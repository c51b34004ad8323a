//! Why work failed.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::panics::ProgramError;

/// Why the work failed, and what that means for the next attempt. There is no `From` for other errors, because only the
/// work can decide which kind an error is.
#[derive(Debug)]
pub struct WorkError {
    kind: WorkErrorKind,
    reason: ProgramError,
}

/// What a failure means for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkErrorKind {
    /// The work had no effect. Try again.
    Retryable {
        /// The delay that the work requested, at least one second. `None` uses the [`backoff`](super::backoff).
        ///
        /// On SQS it is rounded up to whole seconds. It is at most 11 h 40 min, and ends at most 12 hours after the
        /// receive. A delay that would end later than two days after the first receive of the message is limited to 7.5
        /// to 15 minutes (up to 15 seconds more for an in-batch duplicate). So SQS moves the message to the dead-letter
        /// queue before the end of its retention.
        after: Option<Duration>,
    },
    /// The work had no effect, because its receiver is unreachable or overloaded. The attempt is not counted. Try
    /// again. Other messages for the same [receiver](super::Work::receiver) are not started until it responds to one
    /// of them.
    Unavailable {
        /// The delay that the work requested, and at least the [`backoff`](super::backoff). `None` uses the backoff. On
        /// SQS it is limited as that of [`Retryable`](Self::Retryable) is.
        after: Option<Duration>,
    },
    /// The work had no effect, because something that only this message needs is in use: a lock, a row, or a receiver
    /// that still processes an earlier request with the same key. The attempt is not counted. Try again. Other messages
    /// are not affected.
    Busy {
        /// As for [`Unavailable`](Self::Unavailable).
        after: Option<Duration>,
    },
    /// The work may have taken effect. The next attempt is a recovery.
    Uncertain,
    /// No attempt can succeed. The message goes to the dead-letter queue.
    Permanent,
}

impl WorkError {
    /// The work had no effect; try again after the [`backoff`](super::backoff).
    pub fn retryable(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: WorkErrorKind::Retryable { after: None }, reason: ProgramError::new(reason) }
    }

    /// The work had no effect; try again, but not before `after`.
    pub fn retryable_after(reason: impl Into<Box<dyn Error + Send + Sync>>, after: Duration) -> Self {
        Self { kind: WorkErrorKind::Retryable { after: Some(after) }, reason: ProgramError::new(reason) }
    }

    /// The work had no effect, because its receiver is unreachable or overloaded: a service that is down, a database
    /// that restarts. The attempt is not counted if the store can be reached before the deadline. Other messages for
    /// the same [receiver](super::Work::receiver) are delivered again without a call.
    pub fn unavailable(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: WorkErrorKind::Unavailable { after: None }, reason: ProgramError::new(reason) }
    }

    /// As [`unavailable`](Self::unavailable); try again, but not before `after` and not before the
    /// [`backoff`](super::backoff).
    pub fn unavailable_after(reason: impl Into<Box<dyn Error + Send + Sync>>, after: Duration) -> Self {
        Self { kind: WorkErrorKind::Unavailable { after: Some(after) }, reason: ProgramError::new(reason) }
    }

    /// The work had no effect, because something that only this message needs is in use, such as a lock that another
    /// transaction holds. The attempt is not counted if the store can be reached before the deadline.
    pub fn busy(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: WorkErrorKind::Busy { after: None }, reason: ProgramError::new(reason) }
    }

    /// As [`busy`](Self::busy); try again, but not before `after` and not before the [`backoff`](super::backoff).
    pub fn busy_after(reason: impl Into<Box<dyn Error + Send + Sync>>, after: Duration) -> Self {
        Self { kind: WorkErrorKind::Busy { after: Some(after) }, reason: ProgramError::new(reason) }
    }

    /// The work may have taken effect. The next attempt is a recovery.
    pub fn uncertain(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: WorkErrorKind::Uncertain, reason: ProgramError::new(reason) }
    }

    /// No attempt can succeed.
    pub fn permanent(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: WorkErrorKind::Permanent, reason: ProgramError::new(reason) }
    }

    /// What the failure means for the next attempt.
    #[must_use]
    pub fn kind(&self) -> WorkErrorKind {
        self.kind
    }

    /// Whether the error is [`WorkErrorKind::Unavailable`].
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self.kind, WorkErrorKind::Unavailable { .. })
    }

    /// Whether the error counts as an attempt: every kind except [`WorkErrorKind::Unavailable`] and
    /// [`WorkErrorKind::Busy`].
    #[must_use]
    pub fn is_attempt(&self) -> bool {
        !matches!(self.kind, WorkErrorKind::Unavailable { .. } | WorkErrorKind::Busy { .. })
    }

    /// The error that this one was created from, as of [`std::io::Error::get_ref`].
    #[must_use]
    pub fn get_ref(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.reason.get_ref()
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl Error for WorkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.source()
    }
}
