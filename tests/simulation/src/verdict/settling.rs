//! Whether each run of the work is settled as it ended, and settled again until the store replies.

use history::{Answer, Call, Operation};
use idempotent_sqs::idempotency::WorkErrorKind;

use crate::function::Invoked;
use crate::work::Attempt;
use crate::world::Run;

use super::invocations::is_during;

impl Run {
    /// What is wrong with the calls that settle.
    pub(super) fn wrong_settling(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let calls = self.history.keys.values().flatten().chain(&self.history.not_executed);
        for call in calls.filter(|call| !call.call.key().starts_with("dead-letter:")) {
            let Some(claim) = call.claim() else { continue };
            let run = self.attempts.iter().find(|run| run.key == claim.request.key && run.fence == claim.fence);
            if !run.map_or(is_release(call), |run| self.is_expected(run, call)) {
                wrong.push(format!("{}: {call} is not how this run ended: {run:?}", claim.request.key));
            }
        }
        for invoked in &self.invocations {
            let runs = self.attempts.iter().filter(|run| run.process == invoked.process);
            let runs = runs.filter(|run| is_during(run.began_us, invoked));
            wrong.extend(runs.filter_map(|run| self.given_up(run, invoked)));
        }
        wrong
    }

    /// Whether this call settles as this run ended. The failure of a recovery is uncertain, and the last one permanent.
    fn is_expected(&self, run: &Attempt, call: &Operation) -> bool {
        let is_last = call.claim().is_some_and(|claim| claim.attempt >= self.plan.max_attempts);
        let (doubt, last) = (run.is_recovery, is_last);
        match (run.returned, &call.call) {
            (Some(Ok(())), Call::Complete { .. })
            | (Some(Err(WorkErrorKind::Unavailable { .. } | WorkErrorKind::Busy { .. })), Call::Release { .. }) => true,
            (Some(Err(kind)), Call::Fail { uncertain, permanent, .. }) => match kind {
                WorkErrorKind::Retryable { .. } => (*uncertain, *permanent) == (doubt, last),
                WorkErrorKind::Uncertain => *uncertain && *permanent == last,
                WorkErrorKind::Permanent => *uncertain == doubt && *permanent,
                _ => false,
            },
            // It panicked, or was cancelled at the deadline.
            (None, Call::Fail { uncertain, permanent, .. }) => *uncertain && *permanent == last,
            _ => false,
        }
    }

    /// Whether the last call that settles this run has no answer, although there was time for another one.
    fn given_up(&self, run: &Attempt, invoked: &Invoked) -> Option<String> {
        let calls = self.history.keys.get(&run.key).into_iter().flatten().chain(&self.history.not_executed);
        let of_run = |call: &&Operation| {
            call.call.key() == run.key && call.claim().is_some_and(|claim| claim.fence == run.fence)
        };
        let last = calls.filter(of_run).max_by_key(|call| (call.invoked_us, call.number))?;
        let is_unanswered = matches!(last.answer, Answer::Unknown | Answer::NotExecuted);
        let had_time = invoked.until_us < self.settling_ends_us(invoked);
        (is_unanswered && had_time).then(|| format!("{}: given up with time left: {last}", run.key))
    }
}

fn is_release(call: &Operation) -> bool {
    matches!(call.call, Call::Release { .. })
}
