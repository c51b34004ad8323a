//! Moves to a dead-letter queue, and redrives from one.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::state::Stored;
use super::{Queue, SqsError};
use crate::history::MessageState;
use crate::rng::Draw;

impl Queue {
    /// Moves the visible messages to another queue, usually from a dead-letter queue back to its source. This is
    /// `StartMessageMoveTask`, completed at once. AWS refuses a source that is not a dead-letter queue; this method
    /// accepts it. Each message is new in the other queue: it has a new messageId, sent time and retention, and a
    /// receive count of zero. Returns the number of messages.
    ///
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html>
    ///
    /// # Errors
    /// [`SqsError`] if one queue is FIFO and the other is not.
    pub fn redrive_to(&self, other: &Self) -> Result<usize, SqsError> {
        if self.settings().is_fifo() != other.settings().is_fifo() {
            return Err(SqsError { code: "InvalidParameterValue", reason: "Both queues must be of the same type." });
        }
        // Only one queue is locked at a time, because a receive may lock them in the other order.
        let now = Instant::now();
        let mut here = self.current_state();
        let is_moved = |message: &Stored| !message.is_hidden(now) && !message.deleted;
        let (moved, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            mem::take(&mut here.messages).into_iter().partition(|(_, message)| is_moved(message));
        here.messages = kept;
        drop(here);
        self.add_redriven_to(other);

        let count = moved.len();
        let mut there = other.state();
        for message in moved.into_values() {
            let number = there.number();
            let message_id = other.rng().uuid(Draw::MessageId, number);
            let mut entry = message.history.entry();
            entry.message_ids.push(message_id.clone());
            entry.state = MessageState::Queue(other.settings().name.clone());
            drop(entry);
            there.messages.insert(number, Stored::new(message_id, message.sent, message.history, Duration::ZERO));
        }
        there.counts.redriven += count;
        drop(there);
        self.notify();
        other.notify();
        Ok(count)
    }

    fn add_redriven_to(&self, other: &Self) {
        let mut queues = self.0.redriven_to.lock().unwrap_or_else(PoisonError::into_inner);
        let other = Arc::downgrade(&other.0);
        if !queues.iter().any(|known| known.ptr_eq(&other)) {
            queues.push(other);
        }
    }

    /// Moves these messages to the dead-letter queue. They keep their messageIds and receive counts. The retention of a
    /// standard queue's message still counts from its send; that of a FIFO queue's message restarts:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html>
    ///
    /// On a FIFO queue the messageId becomes the `MessageDeduplicationId`:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html>
    pub(super) fn move_to_dead_letter_queue(&self, dead: Vec<Stored>) {
        let Some(policy) = &self.settings().dead_letter else { return };
        let (now, fifo) = (Instant::now(), self.settings().is_fifo());
        let mut there = policy.queue.state();
        for mut message in dead {
            message.receives_here = 0;
            message.visible = now;
            message.receipt = None;
            message.copy = None;
            message.dead_from = Some(self.arn());
            if fifo {
                message.enqueued = now;
                // Otherwise the dead-letter queue would drop one of two messages with the same id.
                message.sent.deduplication_id = Some(message.message_id.clone());
            }
            let mut entry = message.history.entry();
            entry.dead_letters += 1;
            entry.state = MessageState::Queue(policy.queue.settings().name.clone());
            drop(entry);
            let number = there.number();
            there.messages.insert(number, message);
        }
        drop(there);
        policy.queue.notify();
        self.notify();
    }
}
