//! Step 1: acquire the record, or determine why the work must not run.

use tokio::time::{Instant, timeout_at};

use super::claim::{AcquireRequest, Claim};
use super::deadline::Deadline;
use super::delivery::Delivery;
use super::fingerprint::Fingerprint;
use super::owner::{Fence, Owner};
use super::panics::catch_async;
use super::record::StoredResult;
use super::report::{Outcome, Report};
use super::settle::retry_until;
use super::store::{Acquire, Store, StoreError};
use super::work::{OwnRecord, Work, own_record};
use super::work_error::WorkError;
use super::{Idempotency, NextStep};

/// An acquire that the store did not answer.
pub(crate) struct FailedAcquire {
    // Boxed, because this rare case would enlarge the future of every delivery.
    pub(crate) request: Box<AcquireRequest>,
    pub(crate) error: StoreError,
}

impl<S: Store> Idempotency<S> {
    /// Tries to acquire the record of this delivery.
    ///
    /// # Errors
    /// [`FailedAcquire`] if the store did not reply. Pass it to [`release_failed`](Self::release_failed): the acquire
    /// may have been executed.
    pub(crate) async fn acquire<T, W>(&self, delivery: &Delivery, work: &W) -> Result<NextStep, FailedAcquire>
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        let deadline = &delivery.deadline;
        if deadline.has_passed() {
            // An acquire whose reply comes too late would look like an attempt.
            return Ok(NextStep::Report(Report::without_claim(Outcome::NotStarted, None, None)));
        }
        // The store may start the lease at any time after this.
        let asked = Instant::now();
        let request = self.new_request(delivery);
        let answer = timeout_at(deadline.work, self.store.acquire(request.clone())).await;
        let answer = answer.unwrap_or_else(|elapsed| Err(StoreError::unavailable(elapsed)));
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(FailedAcquire { request: Box::new(request), error }),
        };
        let (mut outcome, fence, attempts) = match answer {
            Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => {
                let lease = request.lease.saturating_sub(self.policy.grace());
                return Ok(NextStep::Work(claim.until(deadline.work.min(asked + lease)).with_policy(&self.policy)));
            }
            Acquire::Duplicate { fence, attempts, result } => {
                let result = self.read_result(result, delivery).await;
                (Outcome::Duplicate { result }, Some(fence), Some(attempts))
            }
            Acquire::Conflict { lease_remains } => (Outcome::Conflict { lease_remains }, None, None),
            Acquire::Mismatch => (Outcome::Mismatch, None, None),
            Acquire::Failed => (Outcome::FailedBefore, None, None),
        };
        let lacks_result = delivery.reads_result && matches!(outcome, Outcome::Duplicate { result: None });
        if (lacks_result || matches!(outcome, Outcome::Mismatch | Outcome::FailedBefore))
            && let Some(record) = own_record(work)
        {
            // Boxed, because these rare cases would enlarge the future of every message.
            outcome = Box::pin(self.check_own_record(outcome, request, record, deadline)).await;
        }
        Ok(NextStep::Report(Report::without_claim(outcome, fence, attempts)))
    }

    /// Releases the record if the acquire may have been executed and the store is reachable before the deadline.
    /// Returns the error of the acquire.
    pub(crate) async fn release_failed(&self, failed: FailedAcquire, deadline: &Deadline) -> StoreError {
        let FailedAcquire { request, error } = failed;
        if error.may_have_run() {
            let _released = retry_until(deadline.settle, false, || self.store.release(&request, None)).await;
        }
        error
    }

    fn new_request(&self, delivery: &Delivery) -> AcquireRequest {
        AcquireRequest {
            key: delivery.key.clone(),
            owner: delivery.owner.unwrap_or_else(Owner::random),
            fingerprint: delivery.fingerprint,
            message: delivery.message,
            lease: self.policy.lease_until(delivery.deadline.end),
            longest_lease: self.policy.longest_lease,
            retention: self.policy.retention,
            max_attempts: self.policy.max_attempts,
            failed_retention: self.policy.failed_retention,
        }
    }

    /// The result of a duplicate, if it was kept and is requested.
    async fn read_result(&self, stored: StoredResult<Vec<u8>>, delivery: &Delivery) -> Option<Vec<u8>> {
        match (stored, &self.policy.results) {
            (StoredResult::Inline(result), _) => Some(result),
            (StoredResult::Object(location), Some(results)) if delivery.reads_result => {
                results.read(&location, delivery.deadline.settle).await
            }
            (StoredResult::Object(_) | StoredResult::NotKept, _) => None,
        }
    }

    /// The outcome by the work's own record. If the store reports that no attempt can succeed, the work may still be
    /// done: if the reply to the commit of its last attempt was lost, or if the store lost its record and another
    /// payload was acquired under the key since. The record may also have a result that the store did not keep.
    async fn check_own_record<T>(
        &self,
        by_store: Outcome,
        request: AcquireRequest,
        record: &dyn OwnRecord<T>,
        deadline: &Deadline,
    ) -> Outcome
    where
        T: ?Sized + Sync,
    {
        match (read_own_record(record, &request, deadline.work).await, by_store) {
            (recorded, Outcome::Duplicate { .. }) => Outcome::Duplicate { result: recorded.ok().flatten() },
            (Ok(Some(result)), _) => {
                // Without a fingerprint, a completed record would make any other payload a duplicate.
                if request.fingerprint != Fingerprint::NONE {
                    let claim = Claim::of_completed_work(request, Fence(0), self.policy.max_attempts);
                    // The work is done, regardless of the store's reply. It does not replace the record of another
                    // payload.
                    let _settled = self.complete(&claim.until(deadline.work), &result, deadline, true).await;
                }
                Outcome::Duplicate { result: Some(result) }
            }
            (Ok(None), by_store) => by_store,
            // The record exists and does not show that the work is done, and all attempts are used up.
            (Err(error), Outcome::FailedBefore) if error.is_attempt() => {
                Outcome::FailedPermanently { error, uncertain: true }
            }
            (Err(error), _) => Outcome::Unavailable { error },
        }
    }
}

/// Reads the work's own record, up to this time. A panic is an unavailable record.
pub(crate) async fn read_own_record<T: ?Sized + Sync>(
    record: &dyn OwnRecord<T>,
    request: &AcquireRequest,
    until: Instant,
) -> Result<Option<Vec<u8>>, WorkError> {
    let read = async { timeout_at(until, record.recorded(request, until)).await };
    match catch_async(read).await {
        Some(Ok(recorded)) => recorded,
        Some(Err(elapsed)) => Err(WorkError::unavailable(elapsed)),
        None => Err(WorkError::unavailable("reading the work's own record panicked")),
    }
}
