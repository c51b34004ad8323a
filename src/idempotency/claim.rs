//! An attempt at a key, and the proof of ownership that it runs under.

use std::time::Duration;

use tokio::time::Instant;

use super::deadline::Deadline;
use super::fingerprint::{Fingerprint, MessageIdHash};
use super::key::Key;
use super::owner::{Fence, Owner};
use super::policy::Policy;
use super::results::MAX_RESULT_BYTES;

/// One attempt at a key: the arguments of an acquire.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The key of the record.
    pub key: Key,
    /// Token of this attempt.
    pub owner: Owner,
    /// Hash of the payload.
    pub fingerprint: Fingerprint,
    /// Hash of the messageId of this delivery.
    pub message: MessageIdHash,
    /// How long the owner may hold the record, from the moment at which the store executes the acquire.
    /// Whole milliseconds.
    pub lease: Duration,
    /// Maximum lease in the namespace. A longer lease was acquired while the store's clock was ahead, and is shortened
    /// to this. Whole milliseconds.
    pub longest_lease: Duration,
    /// How long the record is kept after this acquire. It is kept for at least the lease. Whole milliseconds.
    pub retention: Duration,
    /// Number of attempts after which acquire returns [`Acquire::Failed`](super::Acquire::Failed) until the key is
    /// delivered with another messageId.
    pub max_attempts: u8,
    /// How long a permanent failure and used-up attempts apply to the message that failed, from the acquire of its last
    /// attempt. After that, the same message counts as another one. Whole milliseconds.
    pub failed_retention: Duration,
}

impl AcquireRequest {
    /// An attempt at this key by a new owner: without a fingerprint and a messageId, with a lease of one minute, a
    /// longest lease of one day, a retention of 14 days and 200 attempts. A failure applies for as long as its record.
    #[must_use]
    pub fn new(key: Key) -> Self {
        let Policy { retention, max_attempts, longest_lease, failed_retention, .. } = Policy::default();
        Self {
            key,
            owner: Owner::random(),
            fingerprint: Fingerprint::NONE,
            message: MessageIdHash::of(""),
            lease: Duration::from_mins(1),
            longest_lease,
            retention,
            max_attempts,
            failed_retention,
        }
    }
}

/// Proof that an attempt owns its record. It contains everything that is needed to settle the record. It cannot be
/// cloned, so only the owner settles the attempt.
#[derive(Debug)]
pub struct Claim {
    request: AcquireRequest,
    fence: Fence,
    number: u8,
    recovery: bool,
    /// Whether the store did not reply to the acquire.
    without_store: bool,
    #[cfg_attr(not(feature = "lambda"), expect(dead_code, reason = "only batches measure leases"))]
    lease_ends: Instant,
    ends: Instant,
    max_kept_result: usize,
}

impl Claim {
    /// The claim of an attempt that now owns its record.
    pub(super) fn new(request: AcquireRequest, fence: Fence, number: u8, recovery: bool) -> Self {
        let lease_ends = Deadline::within(request.lease).end;
        Self {
            request,
            fence,
            number,
            recovery,
            without_store: false,
            lease_ends,
            ends: lease_ends,
            max_kept_result: MAX_RESULT_BYTES,
        }
    }

    /// The claim of an attempt whose work has its own record, while the store is out of reach. Earlier attempts are
    /// unknown, so it is a recovery.
    pub(super) fn without_store(request: AcquireRequest, fence: Fence) -> Self {
        Self { without_store: true, ..Self::new(request, fence, 1, true) }
    }

    /// The same claim, to settle an attempt that is not counted.
    pub(super) fn uncounted(&self) -> Self {
        Self::new(self.request.clone(), self.fence, self.number.saturating_sub(1), self.recovery)
    }

    /// The claim of work that another record shows as done, such as the row of an inbox. It owns no record and can only
    /// be completed. That succeeds if the store has no record of the key, or a failed one with the same payload.
    #[must_use]
    pub fn of_completed_work(request: AcquireRequest, fence: Fence, number: u8) -> Self {
        Self::new(request, fence, number, false)
    }

    /// The idempotency key. Pass it to the services that the work calls.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.request.key
    }

    /// The fence. Pass it to a resource that rejects lower ones.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u8 {
        self.number
    }

    /// Whether an earlier attempt may have taken effect: its process died, it was cancelled at its deadline, or it
    /// returned [`WorkError::uncertain`](super::WorkError::uncertain).
    #[must_use]
    pub fn is_recovery(&self) -> bool {
        self.recovery
    }

    /// When the work is cancelled: at the deadline, and no later than the end of the lease.
    #[must_use]
    pub fn ends(&self) -> Instant {
        self.ends
    }

    /// Largest result of this attempt that is kept, bytes. A longer one is returned once, and duplicates get none.
    #[must_use]
    pub fn max_kept_result(&self) -> usize {
        self.max_kept_result
    }

    /// The arguments of the acquire.
    #[must_use]
    pub fn request(&self) -> &AcquireRequest {
        &self.request
    }

    /// Whether the store did not reply to the acquire, so that it probably will not reply now.
    pub(super) fn is_without_store(&self) -> bool {
        self.without_store
    }

    /// When the lease ends, by this machine's clock.
    #[cfg(feature = "lambda")]
    pub(crate) fn lease_ends(&self) -> Instant {
        self.lease_ends
    }

    /// Returns the claim with its work cancelled no later than `deadline`.
    pub(super) fn until(self, deadline: Instant) -> Self {
        Self { ends: self.ends.min(deadline), ..self }
    }

    /// The same claim, whose result is kept as this policy says.
    pub(super) fn with_policy(self, policy: &Policy) -> Self {
        Self { max_kept_result: policy.max_kept_result(), ..self }
    }
}
