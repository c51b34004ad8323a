//! What happened to the messages, for a test to read at the end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What happened to one message since it was sent, in every queue and under every messageId.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The messageIds that it had, in order. A redrive gives it another.
    pub message_ids: Vec<String>,
    /// Its body.
    pub body: String,
    /// Sends that SQS answered with its messageId: more than one where FIFO's deduplication held
    /// back a producer's retry.
    pub sends: usize,
    /// How often it was handed out.
    pub receives: usize,
    /// Deletes that SQS answered with success, whether or not the message went.
    pub deletes: usize,
    /// How often it was kept in spite of a delete, to be delivered again.
    pub came_again: usize,
    /// How often it was moved to a dead-letter queue.
    pub dead_letters: usize,
    /// Where it is now.
    pub state: MessageState,
}

/// Where a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// In the queue of this name, visible or in flight.
    Queue(String),
    /// Deleted by a consumer.
    Deleted,
    /// Deleted by SQS, as it was kept for its queue's retention period: lost.
    Expired,
}

/// What happened at one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Messages that were sent to it.
    pub sent: usize,
    /// Sends that FIFO's deduplication answered without a new message.
    pub deduplicated: usize,
    /// Deliveries.
    pub received: usize,
    /// Messages that a delete took away.
    pub deleted: usize,
    /// Deletes with an old receipt handle that were answered with success, and changed nothing.
    pub ignored: usize,
    /// Messages that were kept in spite of a delete, to be delivered again.
    pub came_again: usize,
    /// Deliveries of a message that was in flight already.
    pub twice_at_once: usize,
    /// Messages that were moved to the dead-letter queue.
    pub dead_letters: usize,
    /// Messages that came from a dead-letter queue by a redrive.
    pub redriven: usize,
    /// Messages that were kept for the retention period, and lost.
    pub expired: usize,
    /// Changes of a visibility.
    pub visibilities: usize,
}

/// An entry that travels with its message from queue to queue.
#[derive(Clone, Debug)]
pub(super) struct History(Arc<Mutex<Entry>>);

impl History {
    pub(super) fn start(message_id: &str, body: &str, queue: &str) -> Self {
        Self(Arc::new(Mutex::new(Entry {
            message_ids: vec![message_id.into()],
            body: body.into(),
            sends: 1,
            receives: 0,
            deletes: 0,
            came_again: 0,
            dead_letters: 0,
            state: MessageState::Queue(queue.into()),
        })))
    }

    pub(super) fn entry(&self) -> MutexGuard<'_, Entry> {
        // Every change is one assignment, so a panic elsewhere cannot have left half of one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
