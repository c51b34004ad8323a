//! Step 3: record how the attempt ended, or release the record if nothing ran.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::claim::Claim;
use super::deadline::Deadline;
use super::panics::ProgramError;
use super::record::{Failure, StoredResult};
use super::report::{Outcome, Report};
use super::store::{Settled, Store, StoreError};
use super::work::RecordedAttempt;
use super::work_error::{WorkError, WorkErrorKind};
use super::{AttemptResult, Idempotency};

impl<S: Store> Idempotency<S> {
    /// Settles the claim. If the work `has_own_record` and is done, the store is called once, and its reply does not
    /// affect the outcome.
    ///
    /// # Errors
    /// [`StoreError`] if a resource that all work needs is unreachable. It is not specific to this delivery.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the claim is either settled or remains until its lease ends.
    pub(crate) async fn settle(
        &self,
        claim: &Claim,
        result: AttemptResult,
        has_own_record: bool,
        deadline: &Deadline,
    ) -> Result<Report, StoreError> {
        let ran = result.ran();
        let (outcome, is_settled) = match result {
            AttemptResult::NotStarted => {
                let is_settled = is_recorded(&self.release(claim, deadline).await);
                (Outcome::NotStarted, is_settled)
            }
            AttemptResult::NotRun(error) | AttemptResult::Failed(error) if !error.is_attempt() => {
                let is_settled = is_recorded(&self.release(claim, deadline).await);
                (Outcome::Unavailable { error }, is_settled)
            }
            AttemptResult::NotRun(error) | AttemptResult::Failed(error) => {
                self.fail(claim, error, has_own_record, deadline).await
            }
            AttemptResult::Parked => {
                // Nothing ran, so it is not counted. The record still says that an earlier attempt may have taken
                // effect.
                let error = WorkError::permanent("parked: an earlier attempt may have taken effect");
                let settled = self.release(claim, deadline).await;
                failed(settled, Outcome::FailedPermanently { error, uncertain: true })
            }
            AttemptResult::DoneWithoutPayload(result) => {
                // Without a fingerprint, a completed record would make any other payload a duplicate. The work's own
                // record decides about each delivery.
                let release = || self.store.release(claim.request(), Some(claim));
                let settled = retry_until(deadline.settle, true, release).await;
                (Outcome::Duplicate { result: Some(result) }, is_recorded(&settled))
            }
            AttemptResult::Returned(attempt) => self.settle_returned(claim, attempt, has_own_record, deadline).await?,
        };
        let (fence, attempts) = (Some(claim.fence()), Some(claim.attempt()));
        Ok(Report { outcome, fence, attempts, ran, recovery: claim.is_recovery(), is_settled })
    }

    /// The outcome, and whether the store confirmed it.
    async fn settle_returned(
        &self,
        claim: &Claim,
        attempt: RecordedAttempt,
        has_own_record: bool,
        deadline: &Deadline,
    ) -> Result<(Outcome, bool), StoreError> {
        Ok(match attempt {
            RecordedAttempt::Done(result) => match self.complete(claim, &result, deadline, has_own_record).await {
                Ok(Settled::Recorded) => (Outcome::Done { result }, true),
                Ok(Settled::Lost(_)) | Err(_) if has_own_record => (Outcome::DoneByOwnRecord { result }, false),
                Ok(Settled::Lost(state)) => (Outcome::Lost { state, done: true }, false),
                Err(error) => (Outcome::Unsettled { error }, false),
            },
            RecordedAttempt::DoneBefore(result) => {
                // Its own record shows that the work is done, regardless of the store's reply.
                let settled = self.complete(claim, &result, deadline, has_own_record).await;
                (Outcome::Duplicate { result: Some(result) }, is_recorded(&settled))
            }
            RecordedAttempt::Busy { after } => {
                let is_settled = is_recorded(&self.release(claim, deadline).await);
                (Outcome::Conflict { lease_remains: after }, is_settled)
            }
            RecordedAttempt::Mismatch if claim.is_recovery() && !claim.is_without_store() => {
                // Another payload took effect under this key, so no attempt with this one did, earlier ones included.
                let failure = Failure { uncertain: false, permanent: false };
                (Outcome::Mismatch, is_recorded(&self.record_failure(&claim.uncounted(), failure, deadline).await))
            }
            // A mismatch is not counted: the next delivery is one again, however many there are. Without the store, the
            // number of the attempt is not known.
            RecordedAttempt::Mismatch => (Outcome::Mismatch, is_recorded(&self.release(claim, deadline).await)),
            RecordedAttempt::Unreachable(reason) => {
                let _released = self.release(claim, deadline).await;
                return Err(StoreError::unreachable(ProgramError::new(reason)));
            }
        })
    }

    pub(super) async fn complete(
        &self,
        claim: &Claim,
        result: &[u8],
        deadline: &Deadline,
        has_own_record: bool,
    ) -> Result<Settled, StoreError> {
        let location = self.write_large_result(claim, result).await;
        let stored = match &location {
            Some(location) => StoredResult::Object(location.as_bytes()),
            None if result.len() <= self.policy.max_in_record() => StoredResult::Inline(result),
            None => StoredResult::NotKept,
        };
        retry_until(deadline.settle, has_own_record, || self.store.complete(claim, stored)).await
    }

    /// Writes a result that is too large for the record, and returns its location. This uses the time for work, not
    /// the time for settling.
    async fn write_large_result(&self, claim: &Claim, result: &[u8]) -> Option<String> {
        let results = self.policy.results.as_ref().filter(|_| result.len() > self.policy.max_in_record())?;
        results.write(claim.key(), claim.fence(), result, claim.ends()).await
    }

    /// The outcome, and whether the store confirmed it.
    async fn fail(
        &self,
        claim: &Claim,
        error: WorkError,
        has_own_record: bool,
        deadline: &Deadline,
    ) -> (Outcome, bool) {
        let is_uncertain = error.kind() == WorkErrorKind::Uncertain;
        let was_last = claim.attempt() >= self.policy.max_attempts;
        let failure = Failure {
            // The failure of this attempt does not undo what an earlier one may have done.
            uncertain: is_uncertain || claim.is_recovery(),
            // The work's own record may show that an uncertain attempt is done, so the next attempt reads it.
            permanent: error.kind() == WorkErrorKind::Permanent || was_last && !(is_uncertain && has_own_record),
        };
        let settled = if claim.is_without_store() && !is_uncertain {
            // The number of the attempt is not known, and would replace that of a record whose acquire was executed.
            self.release(claim, deadline).await
        } else {
            self.record_failure(claim, failure, deadline).await
        };
        let Failure { uncertain, permanent } = failure;
        let outcome = if permanent {
            Outcome::FailedPermanently { error, uncertain }
        } else {
            Outcome::Failed { error, uncertain }
        };
        failed(settled, outcome)
    }

    /// Records the failure of the attempt, until the deadline.
    async fn record_failure(
        &self,
        claim: &Claim,
        failure: Failure,
        deadline: &Deadline,
    ) -> Result<Settled, StoreError> {
        retry_until(deadline.settle, claim.is_without_store(), || self.store.fail(claim, failure)).await
    }

    /// Releases the claim. If the store cannot be reached before the deadline, the lease ends, and the next attempt is
    /// a recovery.
    async fn release(&self, claim: &Claim, deadline: &Deadline) -> Result<Settled, StoreError> {
        let release = || self.store.release(claim.request(), Some(claim));
        retry_until(deadline.settle, claim.is_without_store(), release).await
    }
}

/// The outcome of an attempt that failed, and whether the store confirmed it.
fn failed(settled: Result<Settled, StoreError>, recorded: Outcome) -> (Outcome, bool) {
    match settled {
        Ok(Settled::Recorded) => (recorded, true),
        Ok(Settled::Lost(state)) => (Outcome::Lost { state, done: false }, false),
        Err(error) => (Outcome::Unsettled { error }, false),
    }
}

fn is_recorded(settled: &Result<Settled, StoreError>) -> bool {
    matches!(settled, Ok(Settled::Recorded))
}

/// Calls the store until it replies, or only `once`. Retries until the deadline, because an effect that is not recorded
/// may be repeated.
pub(super) async fn retry_until<F>(
    until: Instant,
    once: bool,
    mut call: impl FnMut() -> F,
) -> Result<Settled, StoreError>
where
    F: Future<Output = Result<Settled, StoreError>>,
{
    // Short compared to a failover, long compared to a round trip.
    const PAUSE: Duration = Duration::from_millis(50);
    let mut last = None;
    loop {
        match timeout_at(until, call()).await {
            Ok(Err(error)) if error.is_unavailable() && !once && Instant::now() + PAUSE < until => last = Some(error),
            Ok(answer) => return answer,
            Err(elapsed) => return Err(last.unwrap_or_else(|| StoreError::unavailable(elapsed))),
        }
        sleep(PAUSE).await;
    }
}
