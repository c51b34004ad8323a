//! The second step: one attempt at the work, up to the deadline.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

use super::{Ended, Idempotency, Recovery};
use crate::deadline::Deadline;
use crate::store::{Claim, Store};
use crate::work::{Work, WorkError};

impl<S: Store> Idempotency<S> {
    /// Run the work under this claim, unless there is no time left or its recoveries are parked.
    ///
    /// ## Cancel safety
    /// A dropped future drops the work, and leaves the claim to its lease.
    pub(crate) async fn attempt_work<T, W>(&self, claim: &Claim, work: &W, input: &T, deadline: &Deadline) -> Ended
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        if deadline.is_too_late() {
            return Ended::NotStarted;
        }
        if claim.is_recovery() && self.policy.recovery == Recovery::Park && !work.keeps_record() {
            return Ended::Parked;
        }
        // A lease that was cut to the longest one may end before the deadline.
        let is_cut = claim.asked().lease == claim.asked().longest_lease;
        let until = if is_cut { claim.ends() } else { deadline.work };
        let run = async {
            let mut run = pin!(work.attempt(claim, input));
            // A process that was frozen goes on where it was. It must not take another step of the work before it
            // has looked at the time.
            let in_time = poll_fn(|cx| if Instant::now() >= until { Poll::Pending } else { run.as_mut().poll(cx) });
            match timeout_at(until, in_time).await {
                Ok(Ok(worked)) => Ended::Worked(worked),
                Ok(Err(error)) => Ended::Failed(error),
                Err(_elapsed) => Ended::Failed(WorkError::uncertain("the work was cancelled at the deadline")),
            }
        };
        // A work that is cancelled is dropped within, so that a panic of that is its own too. Its message may quote the
        // payload, and goes only where the panic hook sends it.
        let ended = AssertUnwindSafe(run).catch_unwind().await;
        ended.unwrap_or_else(|_panic| Ended::Failed(WorkError::uncertain("the work panicked")))
    }
}
