//! The messages of a queue.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use crate::history::{History, MessageState, QueueCounts};
use crate::rng::Draw;
use crate::send_request::SendRequest;

/// The messages of a queue, by the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct QueueState {
    pub(super) messages: BTreeMap<u64, Stored>,
    /// Every receipt handle, and the number of its message.
    pub(super) receipts: HashMap<String, u64>,
    /// FIFO: sends by their deduplication key.
    pub(super) recent: HashMap<DeduplicationKey, Recent>,
    pub(super) counts: QueueCounts,
    last: u64,
}

/// The message group, if the queue deduplicates by group, and the `MessageDeduplicationId`.
pub(super) type DeduplicationKey = (Option<String>, String);

/// A message in a queue.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) message_id: String,
    pub(super) sent: SendRequest,
    pub(super) sent_at: Instant,
    /// Start of its retention.
    pub(super) enqueued: Instant,
    /// Number of receives in all queues, its `ApproximateReceiveCount`.
    pub(super) receives: u32,
    /// Number of receives in this queue, which is compared with `maxReceiveCount`.
    pub(super) receives_here: u32,
    pub(super) first_received: Option<Instant>,
    pub(super) received: Option<Instant>,
    /// Its last receipt handle in this queue.
    pub(super) receipt: Option<String>,
    pub(super) visible: Instant,
    /// Time since which a duplicate of it is visible.
    pub(super) copy: Option<Instant>,
    /// Whether a delete succeeded although it is delivered again.
    pub(super) deleted: bool,
    /// ARN of the queue that moved it to the dead-letter queue.
    pub(super) dead_from: Option<String>,
    pub(super) history: History,
}

/// A send, kept for FIFO deduplication.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) at: Instant,
    pub(super) message_id: String,
    pub(super) history: History,
}

impl Stored {
    /// A message that is visible after its delay.
    pub(super) fn new(message_id: String, sent: SendRequest, history: History, delay: Duration) -> Self {
        let now = Instant::now();
        Self {
            message_id,
            sent,
            sent_at: now,
            enqueued: now,
            receives: 0,
            receives_here: 0,
            first_received: None,
            received: None,
            receipt: None,
            visible: now + delay,
            copy: None,
            deleted: false,
            dead_from: None,
            history,
        }
    }

    /// Whether it is in flight or delayed.
    pub(super) fn is_hidden(&self, now: Instant) -> bool {
        self.visible > now
    }

    /// Received and not visible:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
    pub(super) fn in_flight(&self, now: Instant) -> bool {
        self.is_hidden(now) && self.received.is_some()
    }

    /// When it or its duplicate is visible.
    pub(super) fn visible_since(&self) -> Instant {
        self.copy.map_or(self.visible, |copy| copy.min(self.visible))
    }

    /// Its place in the order of a receive, at most `max_reordering` later than the time since which it is visible.
    pub(super) fn place(&self, queue: &Queue, number: u64) -> Instant {
        let settings = queue.settings();
        let fraction = queue.rng().fraction(Draw::Order, number, self.receives.into());
        self.visible_since() + settings.max_reordering.min(settings.retention).mul_f64(fraction)
    }

    pub(super) fn group(&self) -> &str {
        self.sent.group.as_deref().unwrap_or_default()
    }
}

impl QueueState {
    /// The number of the next message.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn counts(&self) -> QueueCounts {
        self.counts
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Removes messages whose retention has ended, also those in flight: "Amazon SQS automatically deletes messages
    /// left in a queue longer than the retention period configured for the queue",
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html>
    pub(super) fn expire(&mut self, queue: &Queue) {
        let (now, retention) = (Instant::now(), queue.settings().retention);
        let counts = &mut self.counts;
        self.messages.retain(|_, message| {
            let keep = message.enqueued + retention > now;
            if !keep {
                // A deleted message that would be delivered again is not lost.
                let state = if message.deleted { MessageState::Deleted } else { MessageState::Expired };
                counts.expired += usize::from(!message.deleted);
                message.history.entry().state = state;
            }
            keep
        });
    }

    /// When the next message can be received, if nothing else changes.
    pub(super) fn next_visible(&self, queue: &Queue) -> Option<Instant> {
        let now = Instant::now();
        if self.room(now) == 0 {
            return self.next_room(queue, now);
        }
        if queue.settings().is_fifo() {
            return self.next_group(now);
        }
        let messages = self.messages.values();
        messages.map(|message| message.visible_since().max(now)).min()
    }

    /// When a message is in flight no more, by its visibility timeout or its retention.
    fn next_room(&self, queue: &Queue, now: Instant) -> Option<Instant> {
        let in_flight = self.messages.values().filter(|message| message.in_flight(now));
        in_flight.map(|message| message.visible.min(message.enqueued + queue.settings().retention)).min()
    }
}
