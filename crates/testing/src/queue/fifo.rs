//! Order and message groups of FIFO queues.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use super::Queue;
use super::state::QueueState;

/// Messages of a group are delivered in order, and not while an earlier message of the group is in flight:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html>
///
/// A message that is visible again is delivered although a later one of its group is in flight. The documentation
/// leaves this open: "unless you delete the message or it becomes visible". AWS does so:
/// <https://github.com/localstack/localstack/blob/8b9a79f05846835cf4dff63ab7eefdde9df83783/tests/aws/services/sqs/test_sqs.py#L2008>
impl QueueState {
    /// The messages that can be received, in order: all of one group, then those of the next. The order of groups is
    /// that of their first messages.
    pub(super) fn groups_in_order(&self, queue: &Queue, now: Instant) -> Vec<u64> {
        let (mut held, mut firsts, mut free) = (HashSet::new(), HashMap::new(), Vec::new());
        for (number, message) in &self.messages {
            let group = message.group();
            if message.is_hidden(now) {
                held.insert(group);
            }
            if !held.contains(group) {
                let first = *firsts.entry(group).or_insert_with(|| (message.place(queue, *number), *number));
                free.push((first, *number));
            }
        }
        free.sort_unstable();
        free.into_iter().map(|(_, number)| number).collect()
    }

    /// When the first message of a group can be received.
    pub(super) fn next_group(&self, now: Instant) -> Option<Instant> {
        let mut firsts = HashMap::new();
        for message in self.messages.values() {
            firsts.entry(message.group()).or_insert(message.visible.max(now));
        }
        firsts.into_values().min()
    }
}
