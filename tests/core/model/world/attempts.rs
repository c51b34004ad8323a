//! Steps of an attempt: replies, effects and settlements.

use super::*;

impl World {
    pub(super) fn receive_reply(&mut self, at: u8, protocol: &Protocol) {
        let at = usize::from(at);
        let has = |guard| protocol.scripts.has(guard);
        let disposition = match self.attempts[at].phase {
            Phase::Acquiring(Some(Answer::Acquired(claim))) => {
                self.attempts[at].claim = Some(claim);
                self.attempts[at].phase = Phase::Working;
                return;
            }
            Phase::Acquiring(Some(Answer::Conflict(fence))) if has(Guard::ConflictWaits) => {
                Disposition::Conflict(fence, self.owner_of(fence, at))
            }
            Phase::Acquiring(Some(Answer::Conflict(fence))) => {
                self.report(at, Disposition::Conflict(fence, 0));
                self.messages[usize::from(self.attempts[at].message)].wait = Wait::No;
                return;
            }
            Phase::Acquiring(Some(Answer::Duplicate))
            | Phase::Completing(Some(Answer::Recorded | Answer::Lost(Some(_)))) => Disposition::Done,
            Phase::Failing(Some(Answer::Lost(Some(_)))) if !has(Guard::LostAfterFailure) => Disposition::Done,
            Phase::Failing(Some(Answer::Lost(Some(State::Completed)))) => Disposition::Retry,
            Phase::Acquiring(Some(_)) | Phase::Failing(Some(Answer::Recorded)) | Phase::Releasing(Some(_)) => {
                Disposition::Retry
            }
            _ => Disposition::None,
        };
        self.report(at, disposition);
    }

    /// The owner of this lease, or `otherwise` if it is no longer known.
    pub(super) fn owner_of(&self, fence: u8, otherwise: usize) -> u8 {
        let owner = self.leases().find(|(known, _)| *known == fence).map(|(_, owner)| owner);
        owner.unwrap_or_else(|| u8::try_from(otherwise).unwrap())
    }

    pub(super) fn take_effect(&mut self, at: u8) {
        let attempt = &mut self.attempts[usize::from(at)];
        attempt.phase = Phase::Effected;
        attempt.unrecorded = true;
        self.ghost.effects[usize::from(attempt.payload)] += 1;
    }

    pub(super) fn report_done(&mut self, at: u8) {
        let attempt = &mut self.attempts[usize::from(at)];
        attempt.phase = Phase::Completing(None);
        attempt.requests[Call::Complete as usize] = true;
    }

    pub(super) fn work_fails(&mut self, at: u8, failure: Failure, protocol: &Protocol) {
        let at = usize::from(at);
        self.cut_off(at);
        let attempt = &mut self.attempts[at];
        let claim = attempt.claim.unwrap();
        let was_last = claim.number >= protocol.scripts.max_attempts;
        let stays = claim.recovery && protocol.scripts.has(Guard::RecoveryStays);
        attempt.failure = Failure { uncertain: failure.uncertain || stays, permanent: failure.permanent || was_last };
        attempt.phase = Phase::Failing(None);
        attempt.requests[Call::Fail as usize] = true;
    }

    pub(super) fn release(&mut self, at: usize) {
        let attempt = &mut self.attempts[at];
        attempt.phase = Phase::Releasing(None);
        attempt.requests[Call::Release as usize] = true;
    }

    /// The attempt will not record its effect, or does not know of it.
    pub(super) fn cut_off(&mut self, at: usize) {
        let attempt = &mut self.attempts[at];
        if attempt.unrecorded && !attempt.superseded {
            self.ghost.cut_off += 1;
        }
        attempt.unrecorded = false;
    }
}
