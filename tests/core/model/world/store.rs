//! Steps of the store: a script runs, and each run is checked against the rules.

use super::*;

impl World {
    pub(super) fn execute(
        &mut self,
        at: u8,
        call: Call,
        reply_received: bool,
        request_remains: bool,
        protocol: &Protocol,
    ) {
        let at = usize::from(at);
        let attempt = self.attempts[at];
        let caller = Caller { owner: u8::try_from(at).unwrap(), payload: attempt.payload, message: attempt.id };
        let (before, scripts) = (self.record, protocol.scripts);
        let now = self.clock + 1;
        let (answer, written) = match call {
            Call::Acquire => scripts.acquire(before, caller, now, |fence| self.has_ended(fence)),
            Call::Complete => scripts.complete(before, caller, attempt.claim.unwrap()),
            Call::Fail => scripts.fail(before, caller, attempt.claim.unwrap(), attempt.failure),
            Call::Release => scripts.release(before, caller, attempt.claim),
        };
        self.check(at, call, answer, written);
        if written.is_some() {
            self.write(written);
        }
        let attempt = &mut self.attempts[at];
        attempt.requests[call as usize] = request_remains;
        if reply_received && attempt.waits_for(call) {
            attempt.phase = match call {
                Call::Acquire => Phase::Acquiring(Some(answer)),
                Call::Complete => Phase::Completing(Some(answer)),
                Call::Fail => Phase::Failing(Some(answer)),
                Call::Release => Phase::Releasing(Some(answer)),
            };
        }
    }

    pub(super) fn write(&mut self, record: Option<Record>) {
        self.behind = [self.record, self.behind[0]];
        self.record = record;
    }

    /// Checks one run of a script against the rules, before its write.
    pub(super) fn check(&mut self, at: usize, call: Call, answer: Answer, written: Option<Record>) {
        let owner = u8::try_from(at).unwrap();
        let changes = written.is_some() && written != self.record;
        if let Some(before) = self.record {
            let same_completion =
                written.is_none_or(|after| after.state == State::Completed && after.owner == before.owner);
            let uncompleted = before.state == State::Completed && !same_completion;
            self.ghost.broken.set_if(uncompleted, Rule::CompletedStays);
            let stale = match call {
                Call::Acquire => before.state == State::Failed && before.owner == owner,
                Call::Complete | Call::Fail | Call::Release => {
                    before.owner != owner || before.state != State::Processing
                }
            };
            // A completion replaces a failure of the same payload, and late uncertainty marks it.
            let gives_way = before.state == State::Failed
                && before.payload == self.attempts[at].payload
                && match call {
                    Call::Complete => true,
                    Call::Fail | Call::Release => written == Some(Record { uncertain: true, ..before }),
                    Call::Acquire => false,
                };
            let stale = stale && !gives_way;
            self.ghost.broken.set_if(stale && changes, Rule::StaleOwnerChangesNothing);
            let with_itself = matches!(answer, Answer::Conflict(_)) && before.owner == owner;
            self.ghost.broken.set_if(with_itself, Rule::NoConflictWithItself);
        }
        match call {
            Call::Acquire => {
                if let (Answer::Acquired(claim), Some(_)) = (answer, written) {
                    self.check_claim(owner, claim);
                }
            }
            Call::Release => {
                let counted = self.record.is_some_and(|before| {
                    before.owner == owner
                        && before.state == State::Processing
                        && written.is_some_and(|after| after.attempts >= before.attempts)
                });
                self.ghost.broken.set_if(counted, Rule::ReleasedIsNotCounted);
                // The release restored the uncertainty, as a failure of the same owner would.
                if self.record.is_none() && written.is_some() && self.ghost.last_owner == Some(owner) {
                    self.ghost.loss_pending = false;
                }
            }
            Call::Complete | Call::Fail => {
                let alone = self.record.is_none_or(|record| record.owner == owner);
                if alone && (call == Call::Complete || self.ghost.last_owner == Some(owner)) {
                    self.ghost.loss_pending = false;
                }
                if call == Call::Complete && matches!(answer, Answer::Recorded) {
                    self.attempts[at].unrecorded = false;
                }
            }
        }
    }

    pub(super) fn check_claim(&mut self, owner: u8, claim: Claim) {
        let attempt = self.attempts[usize::from(owner)];
        let ghost = &mut self.ghost;
        let excused = ghost.jumped_back && ghost.any_loss;
        ghost.broken.set_if(claim.fence <= ghost.highest_fence && !excused, Rule::FenceGrows);
        ghost.highest_fence = ghost.highest_fence.max(claim.fence);
        self.clock += 1;

        let nothing_happened = ghost.effects == [0; MESSAGES] || ghost.lost > 0 || ghost.loss_pending;
        ghost.broken.set_if(!claim.recovery && !nothing_happened, Rule::RunAfterEffectIsRecovery);

        if let Some(record) = self.record {
            let permanent = record.state == State::Failed && record.permanent;
            ghost.broken.set_if(permanent && record.message == attempt.id, Rule::PermanentFailureStays);
        }

        let previous = ghost.last_owner.replace(owner).map(usize::from);
        let goes_on = previous.filter(|at| *at != usize::from(owner) && self.attempts[*at].may_take_effect());
        let took_over =
            self.record.filter(|record| record.state == State::Processing && self.ended & 1 << record.fence != 0);
        let early = goes_on.is_some() && took_over.map(|record| usize::from(record.owner)) == goes_on;
        if early {
            ghost.early += 1;
        } else if ghost.loss_pending {
            ghost.lost += 1;
            ghost.loss_pending = false;
        } else {
            return;
        }
        if let Some(at) = goes_on {
            self.attempts[at].superseded = true;
        }
    }
}
