//! The proof of ownership that a work runs under.

use tokio::time::Instant;

use super::deadline::Deadline;
use super::key::Key;
use super::owner::Fence;
use super::store::Attempt;

/// Proof that an attempt owns its record. It holds all that settling needs. It cannot be cloned, so an attempt is
/// settled by its owner only.
#[derive(Debug)]
pub struct Claim {
    attempt: Attempt,
    fence: Fence,
    number: u8,
    recovery: bool,
    #[cfg_attr(not(feature = "lambda"), expect(dead_code, reason = "only batches measure leases"))]
    lease_ends: Instant,
    ends: Instant,
}

impl Claim {
    /// The claim of an attempt that now owns its record.
    pub(super) fn new(attempt: Attempt, fence: Fence, number: u8, recovery: bool) -> Self {
        let lease_ends = Deadline::within(attempt.lease).end;
        Self { attempt, fence, number, recovery, lease_ends, ends: lease_ends }
    }

    /// The claim of work that another record shows as done, such as the row of an inbox. It owns nothing and can
    /// only be completed, if the store has no record of the key or a failed one.
    #[must_use]
    pub fn of_completed_work(attempt: Attempt, fence: Fence, number: u8) -> Self {
        let now = Instant::now();
        Self { attempt, fence, number, recovery: false, lease_ends: now, ends: now }
    }

    /// The idempotency key. Pass it on to the services that the work calls.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.attempt.key
    }

    /// The fence. Pass it on to a resource that rejects lower ones.
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

    /// The arguments of the acquire.
    #[must_use]
    pub fn asked(&self) -> &Attempt {
        &self.attempt
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
}
