//! Which messages run in order.

use std::collections::HashMap;

use crate::sqs::message::Message;

/// The lanes of a batch. Messages of a lane run one after another, and lanes run concurrently. On a FIFO queue each
/// message group is a lane, else each message is.
pub(super) struct Lanes {
    /// Index of the first message of each lane.
    pub(super) firsts: Vec<usize>,
    /// For each message, the index of the next one in its lane.
    pub(super) next: Vec<Option<usize>>,
}

impl Lanes {
    pub(super) fn of(messages: &[Message]) -> Self {
        let mut lanes = Self { firsts: Vec::with_capacity(messages.len()), next: vec![None; messages.len()] };
        let mut last_of_group = HashMap::new();
        for (index, message) in messages.iter().enumerate() {
            let group = message.group_id.as_deref().filter(|_| message.is_fifo());
            match group.and_then(|group| last_of_group.insert((message.queue_arn.as_deref(), group), index)) {
                Some(previous) => lanes.next[previous] = Some(index),
                None => lanes.firsts.push(index),
            }
        }
        lanes
    }
}
