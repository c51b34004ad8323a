//! Whether each run of the work was told what it must know, and ended with its claim.

use std::time::Duration;

use history::Operation;

use super::invocations::{CLOCK_US, is_during};
use crate::function::Invoked;
use crate::work::Attempt;
use crate::world::Run;

impl Run {
    /// What is wrong with runs of the work. A run is told that it is a recovery if an earlier run may have had its
    /// effect, and only then. The second part is checked only without faults: with faults, a process may end between
    /// its claim and its run, and the next run is rightly a recovery.
    pub(super) fn wrong_attempts(&self) -> Vec<String> {
        let mut wrong = self.late_runs();
        for attempt in &self.attempts {
            let Attempt { key, fence, is_recovery, .. } = attempt;
            let earlier = || self.attempts.iter().filter(|other| other.key == *key && other.fence < *fence);
            let may_repeat = earlier().any(|other| !other.is_clean() && !self.is_lost_before(key, other.fence, *fence));
            if self.plan.is_quiet && earlier().any(Attempt::is_done) {
                wrong.push(format!("{key}: this run follows one that was done: {attempt:?}"));
            }
            if may_repeat && !is_recovery {
                wrong.push(format!("{key}: this run was not told of an earlier one: {attempt:?}"));
            }
            if !may_repeat && *is_recovery && self.plan.is_quiet {
                wrong.push(format!("{key}: this run was told of an earlier one that had no effect: {attempt:?}"));
            }
            let claim = self.acquire_of(key, *fence);
            if claim.is_none_or(|claim| attempt.ran_us > self.claim_ends_us(claim)) {
                wrong.push(format!("{key}: this run was polled after its claim ended: {attempt:?}"));
            }
            if attempt.running > self.plan.concurrency + self.unavailable_at(attempt) {
                wrong.push(format!("{key}: more runs than the concurrency: {attempt:?}"));
            }
            if self.plan.parks && *is_recovery {
                wrong.push(format!("{key}: this run is a recovery, which are parked: {attempt:?}"));
            }
        }
        wrong
    }

    /// Runs that were polled after the deadline of their invocation.
    fn late_runs(&self) -> Vec<String> {
        let late = self.invocations.iter().flat_map(|invoked| {
            let ends_us = self.work_ends_us(invoked) + CLOCK_US;
            self.runs_of(invoked).filter(move |run| run.ran_us > ends_us)
        });
        late.map(|run| format!("{}: this run was polled after the deadline: {run:?}", run.key)).collect()
    }

    /// The runs of an invocation.
    pub(super) fn runs_of(&self, invoked: &Invoked) -> impl Iterator<Item = &Attempt> {
        let is_own = |run: &&Attempt| run.process == invoked.process && is_during(run.began_us, invoked);
        self.attempts.iter().filter(is_own)
    }

    /// When the claim of this acquire ends, µs by the monotonic clock: the grace of its lease is for settling.
    pub(super) fn claim_ends_us(&self, acquire: &Operation) -> u64 {
        let lease = Duration::from_millis(acquire.call.request().lease_ms).saturating_sub(self.plan.grace());
        acquire.invoked_us.saturating_add(u64::try_from(lease.as_micros()).unwrap_or(u64::MAX))
    }
}
