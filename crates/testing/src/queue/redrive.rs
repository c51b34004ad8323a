use std::collections::BTreeMap;
use std::mem;

use tokio::time::Instant;

use super::state::Stored;
use super::{Queue, Refused};
use crate::history::MessageState;
use crate::rng::Draw;

impl Queue {
    /// `StartMessageMoveTask`, done at once: send what is visible here to another queue, usually
    /// from a dead-letter queue back to its source. Each message counts as new there: it gets a new
    /// messageId, sent time and retention, and a receive count of none. Returns how many there were.
    ///
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html>
    ///
    /// # Errors
    /// [`Refused`], where the other queue is of another type.
    pub fn redrive_to(&self, other: &Self) -> Result<usize, Refused> {
        if self.settings().is_fifo() != other.settings().is_fifo() {
            return Err(Refused { code: "InvalidParameterValue", reason: "Both queues must be of the same type." });
        }
        // One queue's lock at a time: a receive may take them in the other order.
        let now = Instant::now();
        let mut here = self.current_state();
        let goes = |message: &Stored| !message.in_flight(now) && !message.deleted;
        let (moved, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            mem::take(&mut here.messages).into_iter().partition(|(_, message)| goes(message));
        here.messages = kept;
        drop(here);

        let count = moved.len();
        let mut there = other.state();
        for message in moved.into_values() {
            let number = there.number();
            let message_id = other.rng().uuid(Draw::MessageId, number);
            let mut entry = message.history.entry();
            entry.message_ids.push(message_id.clone());
            entry.state = MessageState::Queue(other.settings().name.clone());
            drop(entry);
            there.messages.insert(number, Stored::new(message_id, message.sent, message.history));
        }
        there.counts.redriven += count;
        drop(there);
        self.tell_of_change();
        other.tell_of_change();
        Ok(count)
    }

    /// Move these to the dead-letter queue, under the messageIds and with the receive counts that
    /// they have. A standard queue's message keeps the time of its send for its retention, a FIFO
    /// queue's does not:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html>
    pub(super) fn bury(&self, dead: Vec<Stored>) {
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
                // So that two messages which share it are both kept there.
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
        policy.queue.tell_of_change();
        self.tell_of_change();
    }
}
