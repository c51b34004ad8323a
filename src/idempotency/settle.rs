//! The third step: record how the attempt ended, or give the record back where nothing ran.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::{Ended, Idempotency, Outcome, Report};
use crate::deadline::Deadline;
use crate::record::{Failure, Kept};
use crate::store::{Attempt, Claim, Settled, Store, StoreError};
use crate::work::{WorkError, WorkErrorKind, Worked};

impl<S: Store> Idempotency<S> {
    /// Settle the claim. `keeps_record` says that the work has a record of its own, so that the store is told once
    /// and nothing depends on its answer.
    ///
    /// # Errors
    /// [`StoreError`], where what every work needs is out of reach. That does not concern this delivery alone.
    ///
    /// ## Cancel safety
    /// A dropped future leaves the claim settled or to its lease.
    pub(crate) async fn settle(
        &self,
        claim: &Claim,
        ended: Ended,
        keeps_record: bool,
        deadline: &Deadline,
    ) -> Result<Report, StoreError> {
        let outcome = match ended {
            Ended::NotStarted => {
                self.release(claim.asked(), Some(claim), deadline).await;
                Outcome::NotStarted
            }
            Ended::Parked => {
                let error = WorkError::permanent("parked: an earlier attempt may have taken effect");
                self.fail(claim, error, keeps_record, deadline).await
            }
            Ended::Failed(error) if matches!(error.kind(), WorkErrorKind::Unavailable { .. }) => {
                self.release(claim.asked(), Some(claim), deadline).await;
                Outcome::Unavailable { error }
            }
            Ended::Failed(error) => self.fail(claim, error, keeps_record, deadline).await,
            Ended::Worked(worked) => self.settle_worked(claim, worked, keeps_record, deadline).await?,
        };
        let (fence, attempt) = (Some(claim.fence()), Some(claim.attempt()));
        Ok(Report { outcome, fence, attempt, recovery: claim.is_recovery() })
    }

    async fn settle_worked(
        &self,
        claim: &Claim,
        worked: Worked,
        keeps_record: bool,
        deadline: &Deadline,
    ) -> Result<Outcome, StoreError> {
        match worked {
            Worked::Done(result) => Ok(match self.complete(claim, &result, deadline, keeps_record).await {
                Ok(Settled::Recorded) => Outcome::Done { result },
                Ok(Settled::Lost(_)) | Err(_) if keeps_record => Outcome::Kept { result },
                Ok(Settled::Lost(state)) => Outcome::Lost { state, done: true },
                Err(error) => Outcome::Unsettled { error },
            }),
            Worked::DoneBefore(result) => {
                // By the work's own record it is done, whatever the store says to this.
                let _settled = self.complete(claim, &result, deadline, keeps_record).await;
                Ok(Outcome::Duplicate { result: Some(result) })
            }
            Worked::Busy { after } => {
                self.release(claim.asked(), Some(claim), deadline).await;
                Ok(Outcome::Conflict { lease_remains: after })
            }
            Worked::Mismatch => {
                // What the key stands for took effect under another payload, so nothing of this one did.
                let failure = Failure { uncertain: false, permanent: true };
                let fail = || self.store.fail(claim, failure);
                let _settled = retry_until(deadline.settle, keeps_record, fail).await;
                Ok(Outcome::Mismatch)
            }
            Worked::Unreachable(reason) => {
                self.release(claim.asked(), Some(claim), deadline).await;
                Err(StoreError::unreachable(reason))
            }
        }
    }

    pub(super) async fn complete(
        &self,
        claim: &Claim,
        result: &[u8],
        deadline: &Deadline,
        keeps_record: bool,
    ) -> Result<Settled, StoreError> {
        let place = self.keep(claim, result).await;
        let kept = match &place {
            Some(place) => Kept::Object(place.as_bytes()),
            None if result.len() <= self.policy.result_max_bytes => Kept::Inline(result),
            None => Kept::Nowhere,
        };
        retry_until(deadline.settle, keeps_record, || self.store.complete(claim, kept)).await
    }

    /// Where a result is kept that is too large for the record. The time for settling is not for this.
    async fn keep(&self, claim: &Claim, result: &[u8]) -> Option<String> {
        let results = self.policy.results.as_ref().filter(|_| result.len() > self.policy.result_max_bytes)?;
        results.keep(claim, result, claim.ends()).await
    }

    async fn fail(&self, claim: &Claim, error: WorkError, keeps_record: bool, deadline: &Deadline) -> Outcome {
        let uncertain = error.kind() == WorkErrorKind::Uncertain;
        let was_last = claim.attempt() >= self.policy.max_attempts;
        let failure = Failure {
            // What an earlier attempt may have done is not undone by the failure of this one.
            uncertain: uncertain || claim.is_recovery(),
            // The work's own record may say that an uncertain attempt is done, so that is looked at first.
            permanent: error.kind() == WorkErrorKind::Permanent || was_last && !(uncertain && keeps_record),
        };
        match retry_until(deadline.settle, keeps_record, || self.store.fail(claim, failure)).await {
            Ok(Settled::Recorded) => Outcome::WorkFailed { error, failure },
            Ok(Settled::Lost(state)) => Outcome::Lost { state, done: false },
            Err(error) => Outcome::Unsettled { error },
        }
    }

    /// Give the record back. Where the store cannot be told in time, the lease ends by itself, and the next attempt
    /// is a recovery.
    pub(super) async fn release(&self, attempt: &Attempt, claim: Option<&Claim>, deadline: &Deadline) {
        let _settled = retry_until(deadline.settle, false, || self.store.release(attempt, claim)).await;
    }
}

/// Asks until there is an answer, or once: an effect without its record would be repeated, so only the end of the
/// time ends this.
async fn retry_until<F>(until: Instant, once: bool, mut ask: impl FnMut() -> F) -> Result<Settled, StoreError>
where
    F: Future<Output = Result<Settled, StoreError>>,
{
    // Short against a failover, long against a round trip.
    const PAUSE: Duration = Duration::from_millis(50);
    let mut last = None;
    loop {
        match timeout_at(until, ask()).await {
            Ok(Err(error)) if error.is_unavailable() && !once && Instant::now() + PAUSE < until => last = Some(error),
            Ok(answer) => return answer,
            Err(elapsed) => return Err(last.unwrap_or_else(|| StoreError::unavailable(elapsed))),
        }
        sleep(PAUSE).await;
    }
}
