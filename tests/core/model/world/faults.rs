//! Faults, the end of leases, and equivalent states.

use super::*;

impl World {
    pub(super) fn lease_ends(&mut self, fence: u8) {
        self.ended |= 1 << fence;
        for message in &mut self.messages {
            if matches!(message.wait, Wait::Lease(waited_for, _) if waited_for == fence) {
                message.wait = Wait::No;
            }
        }
    }

    pub(super) fn apply(&mut self, fault: Fault, protocol: &Protocol) {
        match fault {
            Fault::DeliverAgain(message) => {
                self.messages[usize::from(message)].delivered_twice = true;
                self.deliver(message, protocol);
            }
            Fault::ExecuteTwice(at, call) => self.execute(at, call, true, true, protocol),
            Fault::ExecuteAndLoseTheReply(at, call) => self.execute(at, call, false, true, protocol),
            Fault::TimeOut(at) => {
                let at = usize::from(at);
                if matches!(self.attempts[at].phase, Phase::Acquiring(_)) {
                    // Released, whether it was executed or not.
                    return self.release(at);
                }
                let nothing_ran = matches!(self.attempts[at].phase, Phase::Releasing(_));
                self.cut_off(at);
                let unknown = nothing_ran || protocol.scripts.has(Guard::UnknownIsNoSuccess);
                self.report(at, if unknown { Disposition::None } else { Disposition::Done });
            }
            Fault::NothingRuns(at) => self.release(usize::from(at)),
            Fault::WorkFails(at, failure) => self.work_fails(at, failure, protocol),
            Fault::Crash(at) => {
                self.cut_off(usize::from(at));
                self.report(usize::from(at), Disposition::None);
            }
            Fault::Pause(at) => self.attempts[usize::from(at)].paused = true,
            Fault::ClockJumpsForward => {
                for (fence, _) in self.leases().collect::<Vec<_>>() {
                    self.lease_ends(fence);
                }
            }
            Fault::ClockJumpsBack => {
                self.clock = 0;
                self.ghost.jumped_back = true;
                // The queue's clock does not jump: messages become visible before the lease ends, which now lasts
                // longer.
                for message in &mut self.messages {
                    if matches!(message.wait, Wait::Lease(..)) {
                        message.wait = Wait::No;
                    }
                }
            }
            Fault::Evict => {
                self.write(None);
                self.record_loss();
            }
            Fault::FailOver(replica) => {
                self.record = self.behind[usize::from(replica)];
                self.behind = [if replica == 0 { self.behind[1] } else { None }, None];
                self.record_loss();
            }
        }
    }

    pub(super) fn record_loss(&mut self) {
        self.ghost.any_loss = true;
        self.ghost.loss_pending = true;
    }

    /// Maps states without a relevant difference to one state.
    pub(super) fn normalize(&mut self) {
        if self.faults_left == 0 {
            self.behind = [None; 2];
        }
        let known = self.leases().fold(0, |known, (fence, _)| known | 1 << fence);
        self.ended &= known;
        for attempt in &mut self.attempts {
            if attempt.phase != Phase::Ended {
                continue;
            }
            if attempt.requests == [false; 4] {
                *attempt = AcquireRequest::new(Phase::Ended);
                continue;
            }
            (attempt.paused, attempt.superseded, attempt.unrecorded) = (false, false, false);
        }
        for message in &mut self.messages {
            if message.state != MessageState::Queue || message.conflicts.is_none() {
                (message.conflicts, message.leases_met, message.delivered_twice) = (None, 0, false);
            }
            if message.state != MessageState::Queue {
                (message.wait, message.latest, message.receives) = (Wait::No, None, 1);
            }
        }
    }
}
