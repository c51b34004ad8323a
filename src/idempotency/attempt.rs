//! Step 2: one attempt at the work, up to the deadline.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, timeout_at};

use super::claim::Claim;
use super::deadline::Deadline;
use super::panics::catch_async;
use super::policy::Recovery;
use super::store::Store;
use super::work::{RecordedAttempt, Work, own_record};
use super::work_error::WorkError;
use super::{AttemptResult, Idempotency};

impl<S: Store> Idempotency<S> {
    /// Runs the work under this claim, unless no time is left or the policy parks recoveries.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the work is dropped and the claim remains until its lease ends.
    pub(crate) async fn attempt_work<T, W>(
        &self,
        claim: &Claim,
        work: &W,
        input: &T,
        deadline: &Deadline,
    ) -> AttemptResult
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        // A lease shortened to the longest one may end before the deadline.
        let is_shortened = claim.request().lease == claim.request().longest_lease;
        let until = if is_shortened { claim.ends() } else { deadline.work };
        if Instant::now() >= until {
            return AttemptResult::NotStarted;
        }
        if self.parks(claim, work) {
            return AttemptResult::Parked;
        }
        let own_record = own_record(work);
        let run = async {
            let mut run = pin!(async {
                match own_record {
                    Some(record) => record.attempt(claim, input).await,
                    None if claim.is_recovery() => work.recover(claim, input).await.map(RecordedAttempt::Done),
                    None => work.run(claim, input).await.map(RecordedAttempt::Done),
                }
            });
            // A frozen process resumes in the middle of this poll loop, so the deadline is checked before each poll.
            let in_time = poll_fn(|cx| if Instant::now() >= until { Poll::Pending } else { run.as_mut().poll(cx) });
            match timeout_at(until, in_time).await {
                Ok(Ok(attempt)) => AttemptResult::Returned(attempt),
                Ok(Err(error)) => AttemptResult::Failed(error),
                Err(_elapsed) => AttemptResult::Failed(WorkError::uncertain("the work was cancelled at the deadline")),
            }
        };
        // Cancelled work is dropped inside `run`, so a panic in its destructor is also caught. The panic message may
        // contain the payload; only the panic hook prints it.
        let result = catch_async(run).await;
        result.unwrap_or_else(|| AttemptResult::Failed(WorkError::uncertain("the work panicked")))
    }

    /// Whether the policy parks this claim, so that its work does not run.
    pub(crate) fn parks<T: ?Sized + Sync, W: Work<T>>(&self, claim: &Claim, work: &W) -> bool {
        claim.is_recovery() && self.policy.recovery == Recovery::Park && own_record(work).is_none()
    }
}
