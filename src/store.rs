//! The contract between the core and a store of idempotency records. One verb for each transition; the answers
//! are values, and only a store that cannot answer is an error.
//!
//! The implementations are in [`stores`](crate::stores).

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::deadline::Deadline;
use crate::record::{Failure, Fence, Fingerprint, Kept, Key, MessageTag, Owner, State};

/// Keeps idempotency records, each judged and changed atomically, by the store's own clock.
///
/// Every verb may be repeated with the same arguments, and may be executed late or twice by a client that
/// retries: the answer is the same, and nothing is done twice.
///
/// ```text
/// absent      acquire                           PROCESSING, attempt 1
///             complete, fail                    COMPLETED, FAILED: the record was lost
///             release of a recovery             FAILED, uncertain: the record was lost, its doubt is not
/// PROCESSING  acquire, same owner               the same answer
///             acquire, live lease               (same) CONFLICT, whatever the payload
///             acquire, lease ended              PROCESSING, a recovery; MISMATCH for another payload
///             complete, fail, by the owner      COMPLETED, FAILED
///             release, by the owner             FAILED, attempt not counted, doubt as before the acquire
/// COMPLETED   acquire                           (same) DUPLICATE; MISMATCH for another payload
/// FAILED      acquire                           PROCESSING, a recovery where uncertain
///             acquire, the owner that failed    (same) FAILED
///             acquire, permanent or attempts    (same) FAILED for the message that met it, PROCESSING for another
///                      used up
///             acquire, uncertain                (same) MISMATCH for another payload
///             complete, same payload            COMPLETED: what is done is done
///             fail, another owner, uncertain;   (same) marked as uncertain, where the payload is the same
///             release of a recovery
/// ```
///
/// - Whatever else complete, fail and release meet is [`Settled::Lost`], and is left alone.
/// - Each acquire that takes a record over counts one attempt, and release takes it back. Attempts begin at 1
///   again where another message brings a key whose attempts are used up.
/// - A fence only grows, also over the loss of its record, unless the store's clock is then behind the one that gave
///   the lost fence.
/// - [`Fingerprint::NONE`] agrees with every payload, and never replaces a stored fingerprint.
/// - A record lives for its retention, and never less than its lease.
///
/// ## Cancel safety
/// A dropped future leaves the outcome unknown: the store may or may not have done what was asked.
/// The same verb with the same owner finds out.
pub trait Store: Send + Sync {
    /// Try to own the record of `attempt`'s key.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::may_have_run`] says whether the record may be taken all the same.
    fn acquire(&self, attempt: Attempt) -> impl Future<Output = Result<Acquire, StoreError>> + Send;

    /// Record that the claim's work is done, and where its result is.
    ///
    /// # Errors
    /// [`StoreError`], with the outcome unknown where the store is unavailable.
    fn complete(&self, claim: &Claim, result: Kept<&[u8]>) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Record that the claim's attempt failed. Where that claim is a recovery, the caller says so by
    /// `failure.uncertain`, unless it knows that nothing took effect.
    ///
    /// # Errors
    /// [`StoreError`], with the outcome unknown where the store is unavailable.
    fn fail(&self, claim: &Claim, failure: Failure) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Give the record back as if this attempt had not been made: nothing ran, so it is not counted and leaves no
    /// doubt, and the doubt of earlier attempts stays. A permanent failure that held for another message is not
    /// restored.
    ///
    /// The caller need not know whether its acquire was executed, and has no `claim` then. An acquire that is executed
    /// later, where there is no record, takes the record all the same, and leaves it to its lease.
    ///
    /// # Errors
    /// [`StoreError`], with the outcome unknown where the store is unavailable.
    fn release(
        &self,
        attempt: &Attempt,
        claim: Option<&Claim>,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;
}

/// A store that is lent keeps records as itself: several consumers may share one.
impl<S: Store> Store for &S {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        (**self).acquire(attempt).await
    }

    async fn complete(&self, claim: &Claim, result: Kept<&[u8]>) -> Result<Settled, StoreError> {
        (**self).complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        (**self).fail(claim, failure).await
    }

    async fn release(&self, attempt: &Attempt, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        (**self).release(attempt, claim).await
    }
}

/// One attempt at a key: all that a store has to know of it.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Whose record.
    pub key: Key,
    /// Token of this attempt.
    pub owner: Owner,
    /// Hash of the payload.
    pub fingerprint: Fingerprint,
    /// The delivery that brought the key.
    pub message: MessageTag,
    /// How long the owner may hold the record, from the moment the store executes the acquire.
    /// Whole milliseconds.
    pub lease: Duration,
    /// The longest lease that any owner of the namespace asks for. What lasts longer was taken under a clock that ran
    /// ahead, and is shortened to this. Whole milliseconds.
    pub longest_lease: Duration,
    /// Life of the record, from this claim on, and no less than the lease. Whole milliseconds.
    pub retention: Duration,
    /// Attempts after which the answer is [`Acquire::Failed`], until another message brings the key.
    pub max_attempts: u8,
}

/// The proof that an attempt owns its record. It cannot be cloned, and holds all that settling
/// needs, captured before the work sees the message.
#[derive(Debug)]
pub struct Claim {
    attempt: Attempt,
    fence: Fence,
    number: u8,
    recovery: bool,
    lease_ends: Instant,
    ends: Instant,
}

impl Claim {
    /// The key, to be passed on to whatever the work calls.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.attempt.key
    }

    /// The fence, to be passed on to a resource that refuses lower ones.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Which attempt at this work it is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u8 {
        self.number
    }

    /// Whether an earlier attempt may have taken effect: it died, was cut off, or said so itself.
    #[must_use]
    pub fn is_recovery(&self) -> bool {
        self.recovery
    }

    /// When its work is cut off: at the deadline, and never later than the lease ends.
    #[must_use]
    pub fn ends(&self) -> Instant {
        self.ends
    }

    /// The claim of a work that is done, as another record than the store's says. It owns nothing any more: it
    /// can only be completed, where the store has no record of the key or a failed one.
    pub(crate) fn of_done(attempt: Attempt, fence: Fence, number: u8) -> Self {
        let now = Instant::now();
        Self { attempt, fence, number, recovery: false, lease_ends: now, ends: now }
    }

    /// When the lease ends, by this machine's clock.
    pub(crate) fn lease_ends(&self) -> Instant {
        self.lease_ends
    }

    /// The same claim, whose work is cut off at `deadline`.
    pub(crate) fn until(self, deadline: Instant) -> Self {
        Self { ends: self.ends.min(deadline), ..self }
    }

    /// What was asked for when this claim was acquired.
    #[must_use]
    pub fn asked(&self) -> &Attempt {
        &self.attempt
    }
}

/// Outcome of an acquire.
#[derive(Debug)]
pub enum Acquire {
    /// The record is the caller's; no earlier attempt took effect.
    Acquired(Claim),
    /// The record is the caller's; an earlier attempt may have taken effect.
    AcquiredStale(Claim),
    /// The work was done before.
    Duplicate {
        /// Fence of the claim that did it.
        fence: Fence,
        /// Attempts that it took.
        attempts: u8,
        /// What it returned, or where that is.
        result: Kept<Vec<u8>>,
    },
    /// Somebody else is at work.
    Conflict {
        /// How long their lease lasts.
        lease_remains: Duration,
    },
    /// The key stands for another payload, which was completed or may have taken effect. During a lease another
    /// payload is a conflict, and after a clean failure it may run.
    Mismatch,
    /// A permanent failure, or all attempts used up, until another message brings the key.
    Failed,
}

impl Acquire {
    /// For a [`Store`]: `attempt` now owns its record. `number` is the count of attempts including
    /// this one; `recovery` says that an earlier one may have taken effect.
    #[must_use]
    pub fn claimed(attempt: Attempt, fence: Fence, number: u8, recovery: bool) -> Self {
        let lease_ends = Deadline::within(attempt.lease).end;
        let claim = Claim { attempt, fence, number, recovery, lease_ends, ends: lease_ends };
        if recovery { Self::AcquiredStale(claim) } else { Self::Acquired(claim) }
    }
}

/// Outcome of complete, fail and release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Recorded, now or by an earlier call with the same claim.
    Recorded,
    /// The record is no longer this owner's, and was left alone.
    Lost(State),
}

/// Why a store gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store could not be asked: there is no connection to it. Nothing was done.
    #[error("the idempotency store is unavailable")]
    Unreachable(#[source] Arc<dyn Error + Send + Sync>),
    /// The store was asked and gave no answer, or one that is not understood. Whether it did what was asked is
    /// unknown.
    #[error("the idempotency store is unavailable")]
    Unavailable(#[source] Arc<dyn Error + Send + Sync>),
    /// The value under the key is not an idempotency record; it was left alone.
    #[error("the value under the Redis key {0:?} is not an idempotency record, or may not be read; it was left alone")]
    Foreign(String),
}

impl StoreError {
    /// The store could not be asked, for this reason.
    pub fn unreachable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreachable(Arc::from(source.into()))
    }

    /// The store gave no answer, for this reason.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(Arc::from(source.into()))
    }

    /// Whether to ask again later may help.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unavailable(_))
    }

    /// Whether the store may have done what was asked.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}
