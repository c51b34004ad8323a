//! Steps of the queue: deliveries, dead-lettering, redrives and dispositions.

use super::*;

impl World {
    pub(super) fn deliver(&mut self, number: u8, protocol: &Protocol) {
        let at = self.next_attempt(protocol).unwrap();
        let in_flight = self.attempts.iter().any(|attempt| attempt.message == number && attempt.is_alive());
        self.messages[usize::from(number)].delivered_twice |= in_flight;
        let message = &mut self.messages[usize::from(number)];
        message.receives += 1;
        message.latest = Some(u8::try_from(at).unwrap());
        message.wait = Wait::Timeout;
        self.attempts[at] = with!(
            AcquireRequest::new(Phase::Acquiring(None)),
            message = number,
            id = message.id,
            payload = message.payload,
            requests = [true, false, false, false]
        );
    }

    pub(super) fn dead_letter(&mut self, number: u8, protocol: &Protocol) {
        let message = &mut self.messages[usize::from(number)];
        message.state = MessageState::DeadLetterQueue;
        // All receives were conflicts with fewer leases: it was delivered again during the same lease.
        let by_conflicts = message.conflicts == Some(protocol.max_receives);
        let leases_met = u8::try_from(message.leases_met.count_ones()).unwrap();
        let excused = message.delivered_twice || self.ghost.jumped_back;
        let to_the_same_lease = by_conflicts && leases_met < protocol.max_receives && !excused;
        self.ghost.broken.set_if(to_the_same_lease, Rule::ConflictsDeadLetterNothing);
    }

    pub(super) fn redrive(&mut self, number: u8) {
        let message = &mut self.messages[usize::from(number)];
        let Message { payload, id, .. } = *message;
        *message = with!(Self::new([payload; MESSAGES], 0).messages[0], id = id + 1);
    }

    /// Ends the attempt and reports its disposition to the queue, unless the message has a new id.
    pub(super) fn report(&mut self, at: usize, disposition: Disposition) {
        let AcquireRequest { message, id, .. } = self.attempts[at];
        self.attempts[at].phase = Phase::Ended;
        let message = &mut self.messages[usize::from(message)];
        if message.id != id || message.state != MessageState::Queue {
            return;
        }
        let is_latest = message.latest == u8::try_from(at).ok();
        match disposition {
            Disposition::Done => message.state = MessageState::Deleted,
            Disposition::Conflict(fence, owner) => {
                message.conflicts = message.conflicts.map(|conflicts| conflicts + 1);
                message.leases_met |= 1 << fence;
                if is_latest {
                    message.wait = Wait::Lease(fence, owner);
                }
            }
            Disposition::Retry => {
                message.conflicts = None;
                if is_latest {
                    message.wait = Wait::No;
                }
            }
            Disposition::None => message.conflicts = None,
        }
    }
}
