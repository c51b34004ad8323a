use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use super::Queue;
use crate::history::{History, MessageState, QueueCounts};
use crate::send_request::SendRequest;

/// The messages of a queue, by the order in which they came.
#[derive(Debug, Default)]
pub(super) struct QueueState {
    pub(super) messages: BTreeMap<u64, Stored>,
    /// Every receipt handle that was given, and the message that it was given for.
    pub(super) receipts: HashMap<String, u64>,
    /// FIFO: what was sent under a `MessageDeduplicationId`.
    pub(super) recent: HashMap<DeduplicationKey, Recent>,
    pub(super) counts: QueueCounts,
    last: u64,
}

/// A `MessageDeduplicationId`, and the message group that it is within, if its queue deduplicates by group.
pub(super) type DeduplicationKey = (Option<String>, String);

/// A message in a queue.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) message_id: String,
    pub(super) sent: SendRequest,
    pub(super) sent_at: Instant,
    /// From where its retention counts.
    pub(super) enqueued: Instant,
    /// In all queues: its `ApproximateReceiveCount`.
    pub(super) receives: u32,
    /// In this queue: what its `maxReceiveCount` is compared with.
    pub(super) receives_here: u32,
    pub(super) first_received: Option<Instant>,
    pub(super) received: Option<Instant>,
    /// The last receipt handle that was given for it in this queue.
    pub(super) receipt: Option<String>,
    pub(super) visible: Instant,
    /// Since when another copy of it is visible, whatever this one is.
    pub(super) copy: Option<Instant>,
    /// A delete was answered with success, and did not last.
    pub(super) deleted: bool,
    /// ARN of the queue that gave it up.
    pub(super) dead_from: Option<String>,
    pub(super) history: History,
}

/// A send that FIFO's deduplication remembers.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) at: Instant,
    pub(super) message_id: String,
    pub(super) history: History,
}

impl Stored {
    pub(super) fn new(message_id: String, sent: SendRequest, history: History) -> Self {
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
            visible: now,
            copy: None,
            deleted: false,
            dead_from: None,
            history,
        }
    }

    pub(super) fn in_flight(&self, now: Instant) -> bool {
        self.visible > now
    }

    /// When it, or another copy of it, is visible.
    pub(super) fn visible_since(&self) -> Instant {
        self.copy.map_or(self.visible, |copy| copy.min(self.visible))
    }

    pub(super) fn group(&self) -> &str {
        self.sent.group.as_deref().unwrap_or_default()
    }
}

impl QueueState {
    /// The number that the next message gets.
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

    /// Drop what was kept for the retention period, in flight or not.
    pub(super) fn expire(&mut self, queue: &Queue) {
        let (now, retention) = (Instant::now(), queue.settings().retention);
        let counts = &mut self.counts;
        self.messages.retain(|_, message| {
            let keep = message.enqueued + retention > now;
            if !keep {
                // A deleted message that would have come again is no loss.
                let place = if message.deleted { MessageState::Deleted } else { MessageState::Expired };
                counts.expired += usize::from(!message.deleted);
                message.history.entry().state = place;
            }
            keep
        });
    }

    /// When something can be received, if nothing else changes.
    pub(super) fn next_visible(&self, queue: &Queue) -> Option<Instant> {
        let now = Instant::now();
        if queue.settings().is_fifo() {
            return self.next_group(now);
        }
        let messages = self.messages.values();
        messages.map(|message| message.visible_since().max(now)).min()
    }
}
