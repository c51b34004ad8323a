//! An SQS queue.

mod fifo;
mod receipts;
mod receive;
mod redrive;
mod send;
mod settings;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

pub use self::settings::{DeadLetter, DeduplicationScope, QueueSettings};
use self::state::QueueState;
use super::event::Received;
use super::history::{Entry, History, QueueCounts};
use super::rng::Rng;
use super::send_request::SendRequest;
use idempotent_sqs::sqs::Visibility;

/// An SQS queue in this process, standard or FIFO, with AWS's own rules. It is shared by cloning.
///
/// Its clock is tokio's: a test that pauses and advances that clock moves visibility, retention and
/// deduplication.
#[derive(Clone, Debug)]
pub struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: QueueSettings,
    rng: Rng,
    made: Instant,
    state: Mutex<QueueState>,
    /// What was sent here by a producer, wherever it is now.
    histories: Mutex<Vec<History>>,
    changed: Notify,
}

/// Why SQS refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct Refused {
    /// SQS's code of the error.
    pub code: &'static str,
    /// Why, in a sentence.
    pub reason: &'static str,
}

impl Queue {
    /// An empty queue, whose chances depend on the seed and its name.
    ///
    /// # Panics
    /// Where AWS would not take the settings.
    #[must_use]
    pub fn new(settings: QueueSettings, seed: u64) -> Self {
        settings.check();
        Self(Arc::new(Inner {
            rng: Rng::new(seed).of(&settings.name),
            made: Instant::now(),
            state: Mutex::default(),
            histories: Mutex::default(),
            changed: Notify::new(),
            settings,
        }))
    }

    /// What it was made with.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        &self.0.settings
    }

    /// Its ARN.
    #[must_use]
    pub fn arn(&self) -> String {
        self.0.settings.arn()
    }

    /// `SendMessage`. Returns the messageId.
    ///
    /// # Errors
    /// [`Refused`], where SQS would not take the message.
    pub fn send(&self, message: impl Into<SendRequest>) -> Result<String, Refused> {
        let sent = self.state().send(self, message.into())?;
        if let Some(history) = sent.history {
            self.0.histories.lock().unwrap_or_else(PoisonError::into_inner).push(history);
        }
        self.tell_of_change();
        Ok(sent.message_id)
    }

    /// `ReceiveMessage`, for at most 10 messages as in SQS, and without its long poll.
    #[must_use]
    pub fn receive(&self, max: usize) -> Vec<Received> {
        self.receive_within(max.min(10), usize::MAX)
    }

    /// `DeleteMessage`.
    ///
    /// # Errors
    /// [`Refused`] for a receipt handle that this queue never gave, and on a FIFO queue for one
    /// whose visibility timeout is over.
    pub fn delete(&self, receipt_handle: &str) -> Result<(), Refused> {
        let deleted = self.state().delete(self, receipt_handle);
        self.tell_of_change();
        deleted
    }

    /// `ChangeMessageVisibility`: visible again after so long from now. SQS takes whole seconds.
    ///
    /// # Errors
    /// [`Refused`] above 12 hours, counted from the receive, and for a receipt handle whose message
    /// is not in flight by it.
    pub fn change_visibility(&self, receipt_handle: &str, after: Duration) -> Result<(), Refused> {
        let changed = self.state().change_visibility(receipt_handle, after);
        self.tell_of_change();
        changed
    }

    /// What a [`Handler`](idempotent_sqs::lambda::Handler) is given, to change the visibility of this
    /// queue's messages.
    #[must_use]
    pub fn visibility(&self) -> Visibility {
        let queue = self.clone();
        Visibility::with_replacement(move |message, after| {
            let handle = message.receipt_handle.as_deref().unwrap_or_default();
            queue.change_visibility(handle, after).map_err(|refused| refused.to_string())
        })
    }

    /// When there is, or will be, something to receive, as far as is known now: at once, or when a
    /// visibility timeout ends. `None` where the queue is empty.
    #[must_use]
    pub fn next_change(&self) -> Option<Instant> {
        self.current_state().next_visible(self)
    }

    /// Returns once there may be something to receive. On a paused clock the time until then passes
    /// at once.
    ///
    /// ## Cancel safety
    /// It changes nothing.
    pub async fn change(&self) {
        self.change_since(self.listen()).await;
    }

    /// Hears of every change from now on.
    pub(super) fn listen(&self) -> Notified<'_> {
        self.0.changed.notified()
    }

    pub(super) async fn change_since(&self, heard: Notified<'_>) {
        match self.next_change() {
            None => heard.await,
            Some(at) => tokio::select! {
                () = heard => {}
                () = sleep_until(at) => {}
            },
        }
    }

    /// Whether no message is in it, visible or in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.current_state().is_empty()
    }

    /// What happened to each message that was sent here, in order, wherever it is now.
    #[must_use]
    pub fn history(&self) -> Vec<Entry> {
        for queue in self.settings().dead_letter.iter().map(|policy| &policy.queue).chain([self]) {
            drop(queue.current_state());
        }
        let histories = self.0.histories.lock().unwrap_or_else(PoisonError::into_inner);
        histories.iter().map(|history| history.entry().clone()).collect()
    }

    /// What happened here.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        self.current_state().counts()
    }

    pub(super) fn rng(&self) -> Rng {
        self.0.rng
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state without what has expired.
    fn current_state(&self) -> MutexGuard<'_, QueueState> {
        let mut current = self.state();
        current.expire(self);
        current
    }

    fn tell_of_change(&self) {
        self.0.changed.notify_waiters();
    }

    /// Milliseconds since 1970.
    fn timestamp(&self, at: Instant) -> u128 {
        let since_1970 = self.0.settings.made.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        (since_1970 + at.saturating_duration_since(self.0.made)).as_millis()
    }
}
