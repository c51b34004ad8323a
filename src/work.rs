//! The contract between the core and the business logic.
//!
//! The implementations are in [`works`](crate::works), and in your own crate.

use std::error::Error;
use std::fmt;
use std::future::{Future, ready};
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::Either;
use tokio::time::Instant;

use crate::message::Message;
use crate::store::{Attempt, Claim};

/// The business logic. `T` is what it works on: a [`Message`] behind SQS, anything elsewhere.
///
/// An effect outside the store can be repeated where the process dies between the effect and its
/// record. Pass the claim's key and fence on to whatever you call, or do the effect in a
/// transaction, or answer [`recover`](Work::recover) by finding out first.
pub trait Work<T: ?Sized = Message>: Send + Sync {
    /// Do the work. The bytes it returns are its result: they are kept in the record, and handed
    /// back when the same work is asked for again.
    ///
    /// # Errors
    /// A [`WorkError`] says whether and when to try again, and whether something may have happened.
    ///
    /// ## Cancel safety
    /// The future is dropped at the deadline, wherever it is. That counts as uncertain.
    fn run(&self, claim: &Claim, input: &T) -> impl Future<Output = Result<Vec<u8>, WorkError>> + Send;

    /// Do the work where an earlier attempt may have taken effect: it died, was cut off, or was
    /// uncertain. By default the work runs again.
    ///
    /// A recovery that fails cleanly, or permanently, stays a recovery: what the earlier attempt may have done is
    /// not undone by it, so the next attempt is one too. Where the store has lost the record,
    /// [`run`](Work::run) is called instead, as nothing tells of the earlier attempt.
    ///
    /// # Errors
    /// As [`run`](Work::run).
    ///
    /// ## Cancel safety
    /// As [`run`](Work::run).
    fn recover(&self, claim: &Claim, input: &T) -> impl Future<Output = Result<Vec<u8>, WorkError>> + Send {
        self.run(claim, input)
    }

    /// One attempt, a first one or a recovery: what the core calls. A work that keeps a record of
    /// its own answers by that record; any other leaves this as it is.
    ///
    /// # Errors
    /// As [`run`](Work::run).
    ///
    /// ## Cancel safety
    /// As [`run`](Work::run).
    fn attempt(&self, claim: &Claim, input: &T) -> impl Future<Output = Result<Worked, WorkError>> + Send {
        let result = if claim.is_recovery() {
            Either::Left(self.recover(claim, input))
        } else {
            Either::Right(self.run(claim, input))
        };
        result.map_ok(Worked::Done)
    }

    /// What the work's own record says of this attempt's key and fingerprint: the result where the work is
    /// done, `None` where it is not. It is asked before the store's record alone would fail the message for
    /// good. By default there is no such record.
    ///
    /// # Errors
    /// A [`WorkError`]: unavailable, where the record could not be read, so that the message comes again; any other,
    /// where it was read and leaves the end of the work unknown, so that the message fails with this reason.
    ///
    /// ## Cancel safety
    /// Nothing is changed.
    fn recorded(
        &self,
        attempt: &Attempt,
        until: Instant,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, WorkError>> + Send {
        let _ = (attempt, until);
        ready(Ok(None))
    }

    /// Whether the work keeps a record of its own, which takes effect together with its effect. That
    /// record decides over the store's: a recovery runs whatever the policy, and what is done counts
    /// as done also where the store could not be told.
    fn keeps_record(&self) -> bool {
        false
    }
}

/// What an attempt came to, where it did not fail.
#[derive(Debug)]
pub enum Worked {
    /// The work is done, with this result.
    Done(Vec<u8>),
    /// An earlier attempt did it, with this result.
    DoneBefore(Vec<u8>),
    /// Somebody else is at this very work. Nothing happened here, and the attempt does not count.
    Busy {
        /// When they should be through.
        after: Duration,
    },
    /// The key was used for another payload. Nothing happened here.
    Mismatch,
    /// What every work needs is out of reach. Nothing happened, and the attempt does not count.
    Unreachable(Box<dyn Error + Send + Sync>),
}

/// A work that is lent runs as itself: a test keeps it, and looks at it afterwards.
impl<T: ?Sized + Sync, W: Work<T>> Work<T> for &W {
    async fn run(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        (**self).run(claim, input).await
    }

    async fn recover(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        (**self).recover(claim, input).await
    }

    async fn attempt(&self, claim: &Claim, input: &T) -> Result<Worked, WorkError> {
        (**self).attempt(claim, input).await
    }

    async fn recorded(&self, attempt: &Attempt, until: Instant) -> Result<Option<Vec<u8>>, WorkError> {
        (**self).recorded(attempt, until).await
    }

    fn keeps_record(&self) -> bool {
        (**self).keeps_record()
    }
}

/// How the work failed. There is no `From` for other errors: only the work knows which it is.
#[derive(Debug)]
pub struct WorkError {
    kind: WorkErrorKind,
    reason: Box<dyn Error + Send + Sync>,
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

/// What a failure means for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkErrorKind {
    /// Nothing happened; try again, after this long or after the usual back-off.
    Retryable {
        /// What the work asked for. SQS counts in whole seconds.
        after: Option<Duration>,
    },
    /// What the work needs is out of reach or overloaded, and nothing happened. That is not the message's
    /// fault, so the attempt is not counted. Try again after this long or after the usual back-off.
    Unavailable {
        /// What the work asked for, at least a second. SQS counts in whole seconds.
        after: Option<Duration>,
    },
    /// Something may have happened; the next attempt is a recovery.
    Uncertain,
    /// Trying again is of no use; the message goes to the dead-letter queue.
    Permanent,
}

impl WorkError {
    /// Nothing happened; try again.
    pub fn retryable(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: WorkErrorKind::Retryable { after: None }, reason: reason.into() }
    }

    /// Nothing happened; try again, but not before `after`.
    pub fn retryable_after(reason: impl Into<Box<dyn Error + Send + Sync>>, after: Duration) -> Self {
        Self { kind: WorkErrorKind::Retryable { after: Some(after) }, reason: reason.into() }
    }

    /// What the work needs is out of reach or overloaded, and nothing happened: a receiver that is down, a
    /// database that restarts, a lock that is held. The attempt is not counted, provided that the store can be told
    /// before the deadline.
    pub fn unavailable(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: WorkErrorKind::Unavailable { after: None }, reason: reason.into() }
    }

    /// As [`unavailable`](Self::unavailable), and try again no sooner than `after`.
    pub fn unavailable_after(reason: impl Into<Box<dyn Error + Send + Sync>>, after: Duration) -> Self {
        Self { kind: WorkErrorKind::Unavailable { after: Some(after) }, reason: reason.into() }
    }

    /// Something may have happened; the next attempt is a recovery.
    pub fn uncertain(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: WorkErrorKind::Uncertain, reason: reason.into() }
    }

    /// Trying again is of no use.
    pub fn permanent(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: WorkErrorKind::Permanent, reason: reason.into() }
    }

    /// What it means for the next attempt.
    #[must_use]
    pub fn kind(&self) -> WorkErrorKind {
        self.kind
    }
}
