//! The actions that are possible in a state.

use super::*;

impl World {
    pub(super) fn deliveries(&self, protocol: &Protocol, actions: &mut Vec<Action>) {
        let may_start = self.next_attempt(protocol).is_some();
        for (number, message) in (0..).zip(&self.messages) {
            match message.state {
                // The two messages are symmetric until one is delivered, so the first is.
                MessageState::Queue if number > 0 && self.messages[0].receives == 0 && self.messages[0].id == 0 => {}
                MessageState::Queue if !self.is_visible(number) => {}
                MessageState::Queue if message.receives >= protocol.max_receives => {
                    actions.push(Action::DeadLetter(number));
                }
                MessageState::Queue if may_start => actions.push(Action::Deliver(number)),
                MessageState::DeadLetterQueue if may_start && message.id % IDS + 1 < IDS => {
                    actions.push(Action::Redrive(number));
                }
                MessageState::Queue | MessageState::DeadLetterQueue | MessageState::Deleted => {}
            }
        }
    }

    pub(super) fn is_visible(&self, message: u8) -> bool {
        match self.messages[usize::from(message)].wait {
            Wait::No => true,
            Wait::Timeout => self.attempts.iter().all(|attempt| attempt.message != message || attempt.lets_time_pass()),
            Wait::Lease(..) => false,
        }
    }

    pub(super) fn moves_of(&self, at: usize, protocol: &Protocol, actions: &mut Vec<Action>) {
        let (attempt, number) = (&self.attempts[at], u8::try_from(at).unwrap());
        for call in CALLS {
            if attempt.requests[call as usize] {
                actions.push(Action::Execute(number, call));
            }
        }
        match attempt.phase {
            Phase::Acquiring(Some(_))
            | Phase::Completing(Some(_))
            | Phase::Failing(Some(_))
            | Phase::Releasing(Some(_)) => actions.push(Action::ReceiveReply(number)),
            Phase::Working if protocol.park && attempt.is_recovery() => {}
            Phase::Working => actions.push(Action::TakeEffect(number)),
            Phase::Effected => actions.push(Action::ReportDone(number)),
            Phase::Acquiring(None)
            | Phase::Completing(None)
            | Phase::Failing(None)
            | Phase::Releasing(None)
            | Phase::NotStarted
            | Phase::Ended => {}
        }
    }

    pub(super) fn ending_leases(&self) -> impl Iterator<Item = u8> + '_ {
        let live = self.leases().filter(|(fence, _)| !self.has_ended(*fence));
        live.filter(|(_, owner)| self.attempts[usize::from(*owner)].lets_time_pass()).map(|(fence, _)| fence)
    }

    /// Fence and owner of each lease that a record or a message refers to.
    pub(super) fn leases(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        let records = [self.record, self.behind[0], self.behind[1]].into_iter().flatten();
        let held =
            records.filter(|record| record.state == State::Processing).map(|record| (record.fence, record.owner));
        held.chain(self.messages.iter().filter_map(|message| match message.wait {
            Wait::Lease(fence, owner) => Some((fence, owner)),
            Wait::No | Wait::Timeout => None,
        }))
    }

    pub(super) fn faults_of_the_store(&self, faults: &mut Vec<Fault>) {
        if self.record.is_some() {
            faults.push(Fault::Evict);
        }
        for (replica, behind) in (0..).zip(self.behind) {
            if behind != self.record && (replica == 0 || behind != self.behind[0]) {
                faults.push(Fault::FailOver(replica));
            }
        }
        if self.leases().any(|(fence, _)| !self.has_ended(fence)) {
            faults.push(Fault::ClockJumpsForward);
        }
        if self.clock > 0 && !self.ghost.jumped_back {
            faults.push(Fault::ClockJumpsBack);
        }
    }

    pub(super) fn faults_of(&self, at: usize, protocol: &Protocol, faults: &mut Vec<Fault>) {
        let (attempt, number) = (&self.attempts[at], u8::try_from(at).unwrap());
        for call in CALLS {
            if attempt.requests[call as usize] {
                faults.push(Fault::ExecuteTwice(number, call));
                if attempt.waits_for(call) {
                    faults.push(Fault::ExecuteAndLoseTheReply(number, call));
                }
            }
        }
        match attempt.phase {
            Phase::NotStarted | Phase::Ended => return,
            Phase::Acquiring(None) | Phase::Completing(None) | Phase::Failing(None) | Phase::Releasing(None) => {
                faults.push(Fault::TimeOut(number));
            }
            Phase::Working if protocol.park && attempt.is_recovery() => {
                // Without time to start it is released, otherwise parked.
                faults.push(Fault::NothingRuns(number));
                faults.push(Fault::WorkFails(number, PARKED));
            }
            Phase::Working => {
                faults.extend([CLEAN, UNCERTAIN, PERMANENT].map(|failure| Fault::WorkFails(number, failure)));
                faults.push(Fault::NothingRuns(number));
            }
            Phase::Effected => faults.push(Fault::WorkFails(number, UNCERTAIN)),
            Phase::Acquiring(Some(_))
            | Phase::Completing(Some(_))
            | Phase::Failing(Some(_))
            | Phase::Releasing(Some(_)) => {}
        }
        faults.push(Fault::Crash(number));
        if !attempt.paused {
            faults.push(Fault::Pause(number));
        }
    }

    pub(super) fn repeated_deliveries(&self, protocol: &Protocol, faults: &mut Vec<Fault>) {
        if self.next_attempt(protocol).is_none() {
            return;
        }
        for (number, message) in (0..).zip(&self.messages) {
            if message.receives > 0 && message.state != MessageState::DeadLetterQueue {
                faults.push(Fault::DeliverAgain(number));
            }
        }
    }

    pub(super) fn next_attempt(&self, protocol: &Protocol) -> Option<usize> {
        self.attempts[..protocol.attempts].iter().position(|attempt| attempt.phase == Phase::NotStarted)
    }

    pub(super) fn has_ended(&self, fence: u8) -> bool {
        self.ended & 1 << fence != 0
    }
}
