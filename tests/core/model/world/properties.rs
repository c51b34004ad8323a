//! Properties of every state, and states that must be reachable.

use super::*;

impl World {
    pub(in crate::model) fn nothing_is_deleted_without_its_effect(&self) -> bool {
        let deleted = self.messages.iter().filter(|message| message.state == MessageState::Deleted);
        deleted.into_iter().all(|message| self.ghost.effects[usize::from(message.payload)] > 0)
    }

    pub(in crate::model) fn nothing_is_repeated_without_a_cause(&self, protocol: &Protocol) -> bool {
        let Ghost { early, lost, cut_off, .. } = self.ghost;
        // Parked recoveries run nothing, so only a loss of state can cause a repetition.
        let causes = if protocol.park { lost } else { early + lost + cut_off };
        self.effects() <= 1 + causes
    }

    pub(in crate::model) fn holds(&self, promise: Rule) -> bool {
        self.ghost.broken.0 & 1 << promise as u8 == 0
    }

    pub(in crate::model) fn all_messages_are_done(&self) -> bool {
        self.messages.iter().all(|message| message.state == MessageState::Deleted)
    }

    pub(in crate::model) fn a_redriven_message_is_done(&self) -> bool {
        self.messages.iter().any(|message| message.id % IDS > 0 && message.state == MessageState::Deleted)
    }

    /// Whether an effect was repeated for exactly these causes: early ends, losses, attempts cut off.
    pub(in crate::model) fn repeats_for(&self, causes: [u8; 3]) -> bool {
        [self.ghost.early, self.ghost.lost, self.ghost.cut_off] == causes && self.effects() > 1
    }

    fn effects(&self) -> u8 {
        self.ghost.effects.iter().sum()
    }
}
