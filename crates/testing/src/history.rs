//! The history of each message, and the counts of a queue.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The history of one message since it was sent, in every queue and under every messageId.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageHistory {
    /// Its messageIds, in order. A redrive assigns a new one.
    pub message_ids: Vec<String>,
    /// Its body.
    pub body: String,
    /// Number of sends that SQS answered with its messageId. More than one if FIFO deduplication dropped a producer's
    /// retry.
    pub sends: usize,
    /// Number of deliveries.
    pub receives: usize,
    /// Number of deletes that SQS answered with success, whether or not they deleted the message.
    pub deletes: usize,
    /// Number of successful deletes after which the message was redelivered.
    pub redelivered: usize,
    /// Number of moves to a dead-letter queue.
    pub dead_letters: usize,
    /// Its current state.
    pub state: MessageState,
}

/// State of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// In the queue of this name, visible or in flight.
    Queue(String),
    /// Deleted by a consumer.
    Deleted,
    /// Deleted by SQS at the end of the queue's message retention period.
    Expired,
}

/// Counts of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Messages sent by producers.
    pub sent: usize,
    /// Sends that FIFO deduplication dropped.
    pub deduplicated: usize,
    /// Deliveries.
    pub received: usize,
    /// Messages deleted by consumers.
    pub deleted: usize,
    /// Deletes with an old receipt handle that succeeded without deleting the message.
    pub ignored_deletes: usize,
    /// Deletes that succeeded although the message is delivered again.
    pub redelivered: usize,
    /// Deliveries of a message that was already in flight.
    pub concurrent_deliveries: usize,
    /// Messages moved to the dead-letter queue.
    pub dead_letters: usize,
    /// Messages received by a redrive from a dead-letter queue.
    pub redriven: usize,
    /// Messages deleted at the end of the message retention period.
    pub expired: usize,
    /// Changes of a visibility timeout.
    pub visibility_changes: usize,
}

/// The history of a message, shared by all queues that it passes.
#[derive(Clone, Debug)]
pub(super) struct History(Arc<Mutex<MessageHistory>>);

impl History {
    pub(super) fn start(message_id: &str, body: &str, queue: &str) -> Self {
        Self(Arc::new(Mutex::new(MessageHistory {
            message_ids: vec![message_id.into()],
            body: body.into(),
            sends: 1,
            receives: 0,
            deletes: 0,
            redelivered: 0,
            dead_letters: 0,
            state: MessageState::Queue(queue.into()),
        })))
    }

    pub(super) fn entry(&self) -> MutexGuard<'_, MessageHistory> {
        // Each change is one assignment, so a panic elsewhere cannot leave a partial change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
