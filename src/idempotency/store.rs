//! The contract between the core and a store of idempotency records: one method for each transition. Outcomes are
//! values; an error means that the store is unavailable, or that the value under the key is not a record.
//!
//! The implementations are in [`stores`](crate::stores).

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use super::Fingerprint;
use super::claim::{AcquireRequest, Claim};
use super::key::Key;
use super::owner::Fence;
use super::record::{Failure, State, StoredResult};

/// Keeps idempotency records. Each call reads and changes one record atomically, by the store's own clock.
///
/// Every method may be called again with the same arguments, and a retrying client may execute a call late or twice:
/// the reply is the same, and the record changes once. An acquire that is executed after its owner has settled changes
/// nothing, unless another owner has acquired the record since.
///
/// ```text
/// absent      acquire                           PROCESSING, attempt 1
///             complete, fail                    COMPLETED, FAILED: the record was lost
///             release of a recovery             FAILED, uncertain: the record was lost, its uncertainty is kept
/// PROCESSING  acquire, same owner               the same reply
///             acquire, live lease               (same) CONFLICT; the payload is not compared
///             acquire, lease ended              PROCESSING, a recovery; MISMATCH for another payload
///             acquire, lease ended and          (same) FAILED for the same message, PROCESSING for another
///                      attempts used up
///             complete, fail, by the owner      COMPLETED, FAILED
///             release, by the owner             FAILED, attempt not counted, uncertain as before the acquire
/// COMPLETED   acquire                           (same) DUPLICATE; MISMATCH for another payload
/// FAILED      acquire                           PROCESSING, a recovery if uncertain
///             acquire, the owner that failed    (same) FAILED
///             acquire, permanent or attempts    (same) FAILED for the same message, PROCESSING for another
///                      used up
///             acquire, uncertain                (same) MISMATCH for another payload
///             complete, same payload            COMPLETED: completed work stays completed
///             fail, another owner, uncertain;   (same) marked as uncertain, if the payload is the same
///             release of a recovery
/// ```
///
/// - In every other case complete, fail and release return [`Settled::Lost`] and change nothing.
/// - Each successful acquire by a new owner counts one attempt, and a release subtracts it. The count restarts at 1
///   when a key whose attempts are used up is delivered with another messageId.
/// - FAILED for the same message applies for `failed_retention` from the acquire of the last attempt, whose time is the
///   record's fence. After that the same message counts as another one.
/// - A fence grows with every claim, even after its record was lost, unless the store's clock is then behind the clock
///   that produced the lost fence.
/// - [`Fingerprint::NONE`] agrees with every payload and never replaces a stored fingerprint.
/// - A record is kept for its retention, and for at least its lease. Each acquire that succeeds renews the retention.
/// - A conflicting acquire shortens a lease that remains longer than its `longest_lease`, or its `lease` if that is
///   longer, to that time.
///
/// [`protocol`](super::protocol) has these rules as pure functions, which a store with transactions can call, as
/// [`MemoryStore`](crate::MemoryStore) does. The crate `idempotent-sqs-testing` has a conformance suite for
/// implementations.
///
/// ## Cancel safety
/// If the future is dropped, the outcome is unknown: the store may or may not have executed the call. Call the same
/// method with the same owner to determine it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store of idempotency records",
    note = "use `RedisStore` (feature `redis`), `MemoryStore` in tests, or implement `idempotent_sqs::Store`",
    note = "`&S`, `Arc<S>` and `Box<S>` implement `Store` if `S` does"
)]
pub trait Store: Send + Sync {
    /// Tries to acquire the record of `request.key`.
    ///
    /// # Errors
    /// [`StoreError`]. If [`may_have_run`](StoreError::may_have_run), the record may nevertheless be owned.
    fn acquire(&self, request: AcquireRequest) -> impl Future<Output = Result<Acquire, StoreError>> + Send;

    /// Records that the work of the claim is done, and where its result is.
    ///
    /// # Errors
    /// [`StoreError`]. If [`may_have_run`](StoreError::may_have_run), the outcome is unknown.
    fn complete(
        &self,
        claim: &Claim,
        result: StoredResult<&[u8]>,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Records that the attempt of the claim failed. For a recovery the caller sets `failure.uncertain`, unless it
    /// is certain that no attempt took effect.
    ///
    /// # Errors
    /// [`StoreError`]. If [`may_have_run`](StoreError::may_have_run), the outcome is unknown.
    fn fail(&self, claim: &Claim, failure: Failure) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Undoes the acquire: the attempt is not counted. Use it only if nothing ran. The uncertainty of earlier attempts
    /// stays; a permanent failure and the attempts of another message are not restored.
    ///
    /// Without a `claim`, it is unknown whether the acquire was executed. If it is executed after this call and finds
    /// no record, it acquires the record, which then remains owned until its lease ends.
    ///
    /// # Errors
    /// [`StoreError`]. If [`may_have_run`](StoreError::may_have_run), the outcome is unknown.
    fn release(
        &self,
        request: &AcquireRequest,
        claim: Option<&Claim>,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// The part of the store that has this key. A store has several parts if they fail separately, such as the shards
    /// of a cluster. While a part is unavailable, a batch continues with the messages whose keys are in other parts.
    /// The part of a key may change between two calls. The method sends nothing to the store. Default: 0 for every key,
    /// for a store that fails as a whole.
    ///
    /// A store that wraps another store should return the part that the inner store returns.
    fn part(&self, _key: &Key) -> usize {
        0
    }
}

/// Implements [`Store`] for pointers to stores.
macro_rules! impl_store_for_pointer {
    ($($pointer:ty),*) => {$(
        impl<S: Store> Store for $pointer {
            async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
                (**self).acquire(request).await
            }

            async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
                (**self).complete(claim, result).await
            }

            async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
                (**self).fail(claim, failure).await
            }

            async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
                (**self).release(request, claim).await
            }

            fn part(&self, key: &Key) -> usize {
                (**self).part(key)
            }
        }
    )*};
}

impl_store_for_pointer!(&S, Arc<S>, Box<S>);

/// Outcome of an acquire.
#[derive(Debug)]
pub enum Acquire {
    /// The caller owns the record. No earlier attempt took effect.
    Acquired(Claim),
    /// The caller owns the record. An earlier attempt may have taken effect.
    AcquiredStale(Claim),
    /// The work was done before.
    Duplicate {
        /// Fence of the claim that did it.
        fence: Fence,
        /// Number of attempts that it took.
        attempts: u8,
        /// Its result, or where the result is.
        result: StoredResult<Vec<u8>>,
    },
    /// Another owner holds the lease.
    Conflict {
        /// Remaining time of that lease.
        lease_remains: Duration,
    },
    /// Another payload was completed under this key, or may have taken effect. During a lease another payload is a
    /// conflict; after a clean failure it may run.
    Mismatch,
    /// An earlier attempt failed permanently, or all attempts are used up. Applies for the `failed_retention`, or until
    /// the key is delivered with another messageId.
    Failed,
}

impl Acquire {
    /// For implementations of [`Store`]: `attempt` now owns its record. `number` counts the attempts including this
    /// one; `recovery` means that an earlier one may have taken effect.
    #[must_use]
    pub fn claimed(request: AcquireRequest, fence: Fence, number: u8, recovery: bool) -> Self {
        let claim = Claim::new(request, fence, number, recovery);
        if recovery { Self::AcquiredStale(claim) } else { Self::Acquired(claim) }
    }

    /// For implementations of [`Store`] that wrap another one, while that is out of reach: `attempt` runs as a recovery
    /// and owns no record. Only for work with its own record, which alone prevents duplicates. The claim is settled by
    /// one call, which is not repeated.
    #[must_use]
    pub fn claimed_without_store(request: AcquireRequest, fence: Fence) -> Self {
        Self::AcquiredStale(Claim::without_store(request, fence))
    }
}

/// Outcome of complete, fail and release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Recorded, now or by an earlier call with the same claim.
    Recorded,
    /// This owner no longer holds the record; it is unchanged. Contains its state.
    Lost(State),
}

/// Error of a store call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no connection to the store. Nothing was executed.
    #[error("the idempotency store is unavailable")]
    Unreachable(#[source] Arc<dyn Error + Send + Sync>),
    /// The call was sent and no valid reply was received. It is unknown whether it was executed.
    #[error("the idempotency store is unavailable")]
    Unavailable(#[source] Arc<dyn Error + Send + Sync>),
    /// The value under this key of the store is not an idempotency record. It is unchanged.
    #[error("the value under the Redis key {0:?} is not an idempotency record, or cannot be read; it was not changed")]
    NotARecord(String),
}

impl StoreError {
    /// Creates an [`Unreachable`](Self::Unreachable) error.
    pub fn unreachable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreachable(Arc::from(source.into()))
    }

    /// Creates an [`Unavailable`](Self::Unavailable) error.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(Arc::from(source.into()))
    }

    /// Whether a later call may succeed.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unavailable(_))
    }

    /// Whether the store may have executed the call.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}
