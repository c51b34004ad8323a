//! Whether each run of the work is settled as it ended, and settled again until the store replies.

use history::{Call, Hex, Operation};
use idempotent_sqs::idempotency::{MessageIdHash, WorkErrorKind};

use crate::function::Invoked;
use crate::plan::Fault;
use crate::work::{Attempt, receiver};
use crate::world::Run;

use super::invocations::{CLOCK_US, PAUSE_US, is_during};

impl Run {
    /// What is wrong with the calls that settle.
    pub(super) fn wrong_settling(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let calls = self.history.keys.values().flatten().chain(&self.history.not_executed);
        for call in calls.filter(|call| !call.is_of_dead_letter()) {
            let Some(claim) = call.claim() else { continue };
            let run = self.attempts.iter().find(|run| run.key == claim.request.key && run.fence == claim.fence);
            if !run.map_or_else(|| self.may_settle_without_run(call), |run| self.is_expected(run, call)) {
                wrong.push(format!("{}: {call} is not how this run ended: {run:?}", claim.request.key));
            }
        }
        for invoked in &self.invocations {
            wrong.extend(self.runs_of(invoked).filter_map(|run| self.given_up(run, invoked)));
            wrong.extend(self.settled_late(invoked));
        }
        wrong
    }

    /// Whether a claim whose work did not run may be settled by this call. A payload that is gone is a permanent
    /// failure. Other claims are released if they are parked, their payload cannot be read, their receiver was found
    /// unavailable, or no time was left.
    fn may_settle_without_run(&self, call: &Operation) -> bool {
        let Some(claim) = call.claim() else { return false };
        let mut ids = self.messages.iter().flat_map(|message| &message.message_ids);
        let id = ids.find(|id| Hex(*MessageIdHash::of(id).as_bytes()) == claim.request.message);
        let Some(sent) = id.and_then(|id| self.sent(id)) else { return false };
        let is_missing = self.is_payload_missing(id.map_or("", String::as_str), &call.process, call.invoked_us);
        match call.call {
            Call::Fail { uncertain, permanent, .. } => is_missing && permanent && uncertain == claim.recovery,
            Call::Release { .. } => {
                let is_own =
                    |invoked: &&Invoked| invoked.process == call.process && is_during(call.invoked_us, invoked);
                // An invocation that timed out has no end.
                let is_parked = self.plan.parks && claim.recovery;
                !is_missing
                    && (is_parked
                        || sent.is_unreadable()
                        || self.invocations.iter().find(is_own).is_none_or(|invoked| {
                            let receiver = receiver(sent.payment, self.plan.receivers);
                            let mut runs = self.runs_of(invoked).filter(|run| run.receiver == receiver);
                            let acquire = self.acquire_of(&claim.request.key, claim.fence);
                            let claim_ends_us = acquire.map_or(0, |acquire| self.claim_ends_us(acquire));
                            let ends_us = self.work_ends_us(invoked).min(claim_ends_us);
                            runs.any(Attempt::is_unavailable) || call.invoked_us + CLOCK_US >= ends_us
                        }))
            }
            Call::Acquire { .. } | Call::Complete { .. } => false,
        }
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

    /// Calls that settle after the time for settling, because of an earlier one that failed.
    fn settled_late(&self, invoked: &Invoked) -> Vec<String> {
        if self.plan.has(Fault::Freeze) {
            return Vec::new();
        }
        let ends_us = self.settling_ends_us(invoked) + PAUSE_US + CLOCK_US;
        let calls = self.calls(invoked).into_iter().filter(|call| !matches!(call.call, Call::Acquire { .. }));
        let late = calls.filter(|call| call.invoked_us > ends_us);
        late.map(|call| format!("{}: settled after the time for settling: {call}", call.call.key())).collect()
    }

    /// Whether the last call that settles this run has no answer, although there was time for another one.
    fn given_up(&self, run: &Attempt, invoked: &Invoked) -> Option<String> {
        let calls = self.history.keys.get(&run.key).into_iter().flatten().chain(&self.history.not_executed);
        let of_run = |call: &&Operation| {
            call.call.key() == run.key && call.claim().is_some_and(|claim| claim.fence == run.fence)
        };
        let last = calls.filter(of_run).max_by_key(|call| (call.invoked_us, call.number))?;
        let had_time = invoked.until_us < self.settling_ends_us(invoked);
        (last.is_failed() && had_time).then(|| format!("{}: given up with time left: {last}", run.key))
    }
}
