use std::collections::{BTreeMap, HashSet};

use tokio::time::Instant;

use super::state::{QueueState, Stored};

/// Order within a message group, and no message of it while another is in flight:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html>
impl QueueState {
    /// What can be received, in order: of one group as much as there is, then of the next.
    pub(super) fn groups_in_order(&self, now: Instant) -> Vec<u64> {
        let mut heads = BTreeMap::new();
        for (number, message) in &self.messages {
            heads.entry(message.group()).or_insert(*number);
        }
        let held = self.groups_in_flight(now);
        let mut free: Vec<_> = self.messages.iter().filter(|(_, message)| !held.contains(message.group())).collect();
        free.sort_by_key(|(number, message)| (heads[message.group()], **number));
        free.into_iter().map(|(number, _)| *number).collect()
    }

    fn groups_in_flight(&self, now: Instant) -> HashSet<&str> {
        self.messages.values().filter(|message| message.in_flight(now)).map(Stored::group).collect()
    }

    /// When the first group is free again, or has been all the while.
    pub(super) fn next_group(&self, now: Instant) -> Option<Instant> {
        let mut groups = BTreeMap::new();
        for message in self.messages.values() {
            let free = groups.entry(message.group()).or_insert(now);
            *free = message.visible.max(*free);
        }
        groups.into_values().min()
    }
}
