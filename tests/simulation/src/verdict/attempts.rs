//! Whether each run of the work was told what it must know, and ended with its claim.

use std::time::Duration;

use super::invocations::{CLOCK_US, is_during};
use crate::work::Attempt;
use crate::world::Run;

impl Run {
    /// What is wrong with runs of the work. A run is told that it is a recovery if an earlier run may have had its effect, and
    /// only then. The second part is checked only without faults: with faults, a process may end between its claim and its
    /// run, and the next run is rightly a recovery.
    pub(super) fn wrong_attempts(&self) -> Vec<String> {
        let mut wrong = self.wrong_receivers();
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
            if self.ends_us(attempt).is_none_or(|ends_us| attempt.ran_us > ends_us) {
                wrong.push(format!("{key}: this run was polled after its claim ended: {attempt:?}"));
            }
            if attempt.running > self.plan.concurrency {
                wrong.push(format!("{key}: more runs than the concurrency: {attempt:?}"));
            }
            if self.expected_key(&attempt.message_id) != Some(key) {
                wrong.push(format!("{key}: this is not the key of the message: {attempt:?}"));
            }
        }
        wrong
    }

    /// Runs that were polled after the deadline, or at a receiver that is unavailable: none follows in the invocation that found it so, and later invocations of the
    /// process call it once at a time, until it does the work of one.
    fn wrong_receivers(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for invoked in &self.invocations {
            let is_own = |attempt: &&Attempt| attempt.process == invoked.process;
            let runs = || self.attempts.iter().filter(is_own).filter(|run| is_during(run.began_us, invoked));
            for run in runs() {
                if run.ran_us > self.work_ends_us(invoked) + CLOCK_US {
                    wrong.push(format!("{}: this run was polled after the deadline: {run:?}", run.key));
                }
                let is_before = |other: &Attempt| other.ran_us < run.began_us;
                if runs().any(|other| other.is_unavailable() && is_before(other)) {
                    wrong.push(format!("{}: this run follows one whose receiver was unavailable: {run:?}", run.key));
                }
                let before = self.attempts.iter().filter(is_own).filter(|other| is_before(other));
                let last =
                    before.filter(|other| other.is_done() || other.is_unavailable()).max_by_key(|other| other.ran_us);
                if last.is_some_and(Attempt::is_unavailable) && run.running > 1 {
                    wrong.push(format!("{}: the receiver was unavailable, and is called by several: {run:?}", run.key));
                }
            }
        }
        wrong
    }

    /// When the claim of this run ended, µs by the monotonic clock: the grace of its lease is for settling.
    fn ends_us(&self, run: &Attempt) -> Option<u64> {
        let acquire = self.acquire_of(&run.key, run.fence)?;
        let lease = Duration::from_millis(acquire.call.request().lease_ms).saturating_sub(self.plan.lease_grace);
        Some(acquire.invoked_us.saturating_add(u64::try_from(lease.as_micros()).unwrap_or(u64::MAX)))
    }
}
