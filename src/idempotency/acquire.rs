//! The first step: own the record, or learn why the work does not run.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

use super::{Delivery, Idempotency, Next, Outcome, Report};
use crate::deadline::Deadline;
use crate::record::{Failure, Fence, Kept, Owner};
use crate::store::{Acquire, Attempt, Claim, Store, StoreError};
use crate::work::{Work, WorkError, WorkErrorKind};

impl<S: Store> Idempotency<S> {
    /// Try to own the record of this delivery.
    ///
    /// # Errors
    /// [`StoreError`], where the store gave no answer. An acquire that may have been executed all the same was
    /// given back, if the store could be told in time.
    pub(crate) async fn acquire<T, W>(&self, delivery: &Delivery, work: &W) -> Result<Next, StoreError>
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        // The store's lease may run from here on, however late the reply is.
        let asked = Instant::now();
        let attempt = self.attempt(delivery);
        let deadline = &delivery.deadline;
        let answer = timeout_at(deadline.work, self.store.acquire(attempt.clone())).await;
        let answer = answer.unwrap_or_else(|elapsed| Err(StoreError::unavailable(elapsed)));
        if answer.as_ref().is_err_and(StoreError::may_have_run) {
            self.release(&attempt, None, deadline).await;
        }
        let (outcome, fence, attempt) = match answer? {
            Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => {
                let lease = attempt.lease.saturating_sub(self.policy.lease_grace);
                return Ok(Next::Work(claim.until(deadline.work.min(asked + lease))));
            }
            Acquire::Duplicate { fence, attempts, result } => {
                let result = self.result(result, delivery).await;
                (Outcome::Duplicate { result }, Some(fence), Some(attempts))
            }
            Acquire::Conflict { lease_remains } => (Outcome::Conflict { lease_remains }, None, None),
            Acquire::Mismatch => (Outcome::Mismatch, None, None),
            Acquire::Failed if work.keeps_record() => {
                // Boxed, as it is rare, and the future of every message would have room for it.
                (Box::pin(self.by_its_own_record(attempt, work, deadline)).await, None, None)
            }
            Acquire::Failed => (Outcome::Failed, None, None),
        };
        Ok(Next::Report(Report { outcome, fence, attempt, recovery: false }))
    }

    fn attempt(&self, delivery: &Delivery) -> Attempt {
        let remaining = delivery.deadline.end.saturating_duration_since(Instant::now());
        let longest_lease = self.policy.longest_lease;
        Attempt {
            key: delivery.key.clone(),
            owner: delivery.owner.unwrap_or_else(Owner::random),
            fingerprint: delivery.fingerprint,
            message: delivery.message,
            lease: remaining.saturating_add(self.policy.lease_grace).min(longest_lease),
            longest_lease,
            retention: self.policy.retention,
            max_attempts: self.policy.max_attempts,
        }
    }

    /// The result of a duplicate, where it was kept and is asked for.
    async fn result(&self, kept: Kept<Vec<u8>>, delivery: &Delivery) -> Option<Vec<u8>> {
        match (kept, &self.policy.results) {
            (Kept::Inline(result), _) => Some(result),
            (Kept::Object(place), Some(results)) if delivery.result_is_read => {
                results.get(&place, delivery.deadline.settle).await
            }
            (Kept::Object(_) | Kept::Nowhere, _) => None,
        }
    }

    /// The store would fail the message for good. A work that keeps its own record may know that it is done, as
    /// where the reply to the commit of its last attempt was lost.
    async fn by_its_own_record<T, W>(&self, attempt: Attempt, work: &W, deadline: &Deadline) -> Outcome
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        match self.recorded(&attempt, work, deadline).await {
            Ok(Some(result)) => {
                let claim = Claim::of_done(attempt, Fence(0), self.policy.max_attempts);
                // The work is done whatever the store says to this.
                let _settled = self.complete(&claim, &result, deadline, true).await;
                Outcome::Duplicate { result: Some(result) }
            }
            Ok(None) => Outcome::Failed,
            Err(error) if matches!(error.kind(), WorkErrorKind::Unavailable { .. }) => Outcome::Unavailable { error },
            // The record is there, and does not say that the work is done.
            Err(error) => Outcome::WorkFailed { error, failure: Failure { uncertain: true, permanent: true } },
        }
    }

    /// What the work's own record says, where it has one.
    pub(crate) async fn recorded<T, W>(
        &self,
        attempt: &Attempt,
        work: &W,
        deadline: &Deadline,
    ) -> Result<Option<Vec<u8>>, WorkError>
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        let look = async { timeout_at(deadline.work, work.recorded(attempt, deadline.work)).await };
        match AssertUnwindSafe(look).catch_unwind().await {
            Ok(Ok(recorded)) => recorded,
            Ok(Err(elapsed)) => Err(WorkError::unavailable(elapsed)),
            Err(_panic) => Err(WorkError::unavailable("the look at the work's own record panicked")),
        }
    }
}
