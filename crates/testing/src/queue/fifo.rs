//! Order and message groups of FIFO queues.

use std::collections::{BTreeMap, HashSet};

use tokio::time::Instant;

use super::state::{QueueState, Stored};

/// Messages of a group are delivered in order, and not while another message of the group is in flight:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html>
impl QueueState {
    /// The messages that can be received, in order: all of one group, then those of the next.
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

    /// When the first group without a message in flight can be received.
    pub(super) fn next_group(&self, now: Instant) -> Option<Instant> {
        let mut groups = BTreeMap::new();
        for message in self.messages.values() {
            let free = groups.entry(message.group()).or_insert(now);
            *free = message.visible.max(*free);
        }
        groups.into_values().min()
    }
}
