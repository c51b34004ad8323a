//! A simulated SQS queue.

mod fifo;
mod number;
mod receipts;
mod receive;
mod redrive;
mod send;
mod settings;
mod state;
mod validation;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

pub use self::settings::{DeadLetter, DeduplicationScope, QueueSettings};
use self::state::QueueState;
use super::event::ReceivedMessage;
use super::history::{History, MessageHistory, QueueCounts};
use super::rng::Rng;
use super::send_request::SendRequest;
use idempotent_sqs::sqs::{DeadLetterQueue, Visibility};

/// A simulated SQS queue in this process, standard or FIFO, which follows the rules of AWS. Clones share it.
///
/// It uses tokio's clock, so a test can pause and advance visibility timeouts, retention and deduplication.
///
/// ```
/// # use std::sync::atomic::{AtomicUsize, Ordering};
/// # use idempotent_sqs::lambda::Handler;
/// # use idempotent_sqs::sqs::{Batch, BatchSettings};
/// # use idempotent_sqs::{Claim, Idempotency, MemoryStore, Message, Policy, Work, WorkError};
/// use idempotent_sqs_testing::{Mapping, MappingSettings, MessageState, Queue, QueueSettings, SendRequest};
///
/// # #[derive(Default)]
/// # struct SendInvoice {
/// #     sent: AtomicUsize,
/// # }
/// # impl Work<Message> for SendInvoice {
/// #     async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
/// #         self.sent.fetch_add(1, Ordering::Relaxed);
/// #         Ok(Vec::new())
/// #     }
/// # }
/// // tokio's clock is paused, so waits take no real time.
/// #[tokio::main(flavor = "current_thread", start_paused = true)]
/// async fn main() {
///     let work = SendInvoice::default();
///     let queue = Queue::new(QueueSettings::with_duplicates(), 7);
///     let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
///     let handler = Handler::new(Batch::new(idempotency, &work, BatchSettings::default()), Some(queue.visibility()));
///
///     for number in 0..100 {
///         let key = format!("invoice-{number}");
///         queue.send(SendRequest::new("12.50 EUR").attribute("Idempotency-Key", key)).unwrap();
///     }
///     Mapping::new(&queue, MappingSettings::default()).drain(&handler).await;
///
///     assert!(queue.history().iter().all(|message| message.state == MessageState::Deleted));
///     assert!(queue.counts().received > 100);
///     assert_eq!(work.sent.load(Ordering::Relaxed), 100);
/// }
/// ```
///
/// # Without a handler
/// A mapping does not need a handler. Any code that takes an event and returns a response can be tested:
///
/// ```
/// use idempotent_sqs_testing::{BatchOutcome, InvocationResult, Mapping, MappingSettings, Queue, QueueSettings};
///
/// let queue = Queue::new(QueueSettings::default(), 7);
/// queue.send("a payment").unwrap();
/// let mapping = Mapping::new(&queue, MappingSettings::default());
/// while let Some(invocation) = mapping.poll() {
///     assert!(invocation.event().starts_with(r#"{"Records":[{"messageId":""#));
///     let outcome = invocation.finish(InvocationResult::Returned(br#"{"statusCode":200}"#.to_vec()));
///     assert!(matches!(outcome, BatchOutcome::Processed { deleted, .. } if deleted.len() == 1));
/// }
/// assert!(queue.is_empty(), "a response without batchItemFailures deletes every message");
/// ```
#[derive(Clone, Debug)]
pub struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: QueueSettings,
    rng: Rng,
    made: Instant,
    state: Mutex<QueueState>,
    /// Histories of the messages that producers sent here, regardless of their current queue.
    histories: Mutex<Vec<History>>,
    /// Queues that messages were redriven to from here. Weak, because they may have this one as their dead-letter
    /// queue.
    redriven_to: Mutex<Vec<Weak<Inner>>>,
    changed: Notify,
}

/// An error of SQS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct SqsError {
    /// SQS's error code.
    pub code: &'static str,
    /// The reason.
    pub reason: &'static str,
}

impl Queue {
    /// Creates an empty queue. Its random choices depend on the seed and on its name.
    ///
    /// # Panics
    /// If AWS would reject the settings.
    #[must_use]
    pub fn new(settings: QueueSettings, seed: u64) -> Self {
        settings.check();
        Self(Arc::new(Inner {
            rng: Rng::new(seed).of(&settings.name),
            made: Instant::now(),
            state: Mutex::default(),
            histories: Mutex::default(),
            redriven_to: Mutex::default(),
            changed: Notify::new(),
            settings,
        }))
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        &self.0.settings
    }

    /// The ARN.
    #[must_use]
    pub fn arn(&self) -> String {
        self.0.settings.arn()
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> String {
        let QueueSettings { name, region, account, .. } = self.settings();
        format!("https://sqs.{region}.amazonaws.com/{account}/{name}")
    }

    /// `SendMessage`. Returns the messageId.
    ///
    /// # Errors
    /// [`SqsError`] if SQS would reject the message.
    pub fn send(&self, message: impl Into<SendRequest>) -> Result<String, SqsError> {
        let sent = self.state().send(self, message.into())?;
        if let Some(history) = sent.history {
            self.0.histories.lock().unwrap_or_else(PoisonError::into_inner).push(history);
        }
        self.notify();
        Ok(sent.message_id)
    }

    /// `ReceiveMessage`, for up to `max` messages, from 1 to 10. It finds a message if one is visible, as a long poll
    /// does:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html>
    ///
    /// # Panics
    /// If SQS would reject `max`.
    #[must_use]
    pub fn receive(&self, max: usize) -> Vec<ReceivedMessage> {
        assert!(receive::NUMBER_OF_MESSAGES.contains(&max), "a receive is of 1 to 10 messages");
        self.receive_within(max, None)
    }

    /// `ReceiveMessage` with a `VisibilityTimeout` of its own, for up to `max` messages, from 1 to 10.
    ///
    /// # Errors
    /// [`SqsError`] if SQS would reject `max` or the visibility timeout, which has whole seconds, up to 12 hours; and on a
    /// standard queue if 120,000 messages are in flight.
    pub fn receive_for(&self, max: usize, visibility_timeout: Duration) -> Result<Vec<ReceivedMessage>, SqsError> {
        if !receive::NUMBER_OF_MESSAGES.contains(&max) {
            return Err(receipts::NOT_ONE_TO_TEN);
        }
        if !settings::is_visibility_timeout(visibility_timeout) {
            return Err(receipts::OUT_OF_RANGE);
        }
        if !self.settings().is_fifo() && self.current_state().room(Instant::now()) == 0 {
            return Err(receipts::OVER_LIMIT);
        }
        Ok(self.receive_messages(max, None, visibility_timeout))
    }

    /// `DeleteMessage`.
    ///
    /// # Errors
    /// [`SqsError`] for an unknown receipt handle, and on a FIFO queue for one whose visibility timeout has ended.
    pub fn delete(&self, receipt_handle: &str) -> Result<(), SqsError> {
        let deleted = self.state().delete(self, receipt_handle);
        self.notify();
        deleted
    }

    /// `ChangeMessageVisibility`: makes the message visible again `after` this time, in whole seconds.
    ///
    /// # Errors
    /// [`SqsError`] for a fraction of a second, for more than 12 hours after the receive, and for a receipt handle whose
    /// message is not in flight or was received again.
    pub fn change_visibility(&self, receipt_handle: &str, after: Duration) -> Result<(), SqsError> {
        let changed = self.state().change_visibility(self, receipt_handle, after);
        self.notify();
        changed
    }

    /// The [`Visibility`] of a [`Handler`](idempotent_sqs::lambda::Handler) that changes the visibility timeouts of
    /// this queue's messages.
    #[must_use]
    pub fn visibility(&self) -> Visibility {
        let queue = self.clone();
        Visibility::with_replacement(move |message, after| {
            let handle = message.receipt_handle.as_deref().unwrap_or_default();
            queue.change_visibility(handle, after).map_err(|refused| refused.to_string())
        })
    }

    /// The [`DeadLetterQueue`] of a [`Batch`](idempotent_sqs::sqs::Batch) that sends messages to this queue.
    #[must_use]
    pub fn dead_letter_queue(&self) -> DeadLetterQueue {
        let queue = self.clone();
        DeadLetterQueue::with_replacement(self.url(), move |message| {
            queue.send(SendRequest::from(message)).map(drop).map_err(|refused| refused.to_string())
        })
    }

    /// When the next message can be received: now, or when a visibility timeout ends. While 120,000 messages are in
    /// flight, the end of the retention of one of them counts too. `None` if the queue is empty.
    #[must_use]
    pub fn next_change(&self) -> Option<Instant> {
        self.current_state().next_visible(self)
    }

    /// Waits until a message may be received. If tokio's clock is paused, this takes no real time.
    ///
    /// ## Cancel safety
    /// Cancel safe.
    pub async fn changed(&self) {
        self.wait_for_change(self.notified()).await;
    }

    /// Completes at the next change after this call.
    pub(super) fn notified(&self) -> Notified<'_> {
        self.0.changed.notified()
    }

    pub(super) async fn wait_for_change(&self, notified: Notified<'_>) {
        match self.next_change() {
            None => notified.await,
            Some(at) => tokio::select! {
                () = notified => {}
                () = sleep_until(at) => {}
            },
        }
    }

    /// Whether the queue has no message, visible or in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.current_state().is_empty()
    }

    /// Number of messages that are visible, `ApproximateNumberOfMessages`. On a FIFO queue this includes those that
    /// wait for an earlier message of their group:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html>
    #[must_use]
    pub fn visible(&self) -> usize {
        let now = Instant::now();
        self.current_state().messages.values().filter(|message| !message.is_hidden(now)).count()
    }

    /// Number of messages in flight, `ApproximateNumberOfMessagesNotVisible`.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let now = Instant::now();
        self.current_state().messages.values().filter(|message| message.in_flight(now)).count()
    }

    /// Number of messages whose delay has not ended, `ApproximateNumberOfMessagesDelayed`.
    #[must_use]
    pub fn delayed(&self) -> usize {
        let now = Instant::now();
        let messages = self.current_state();
        messages.messages.values().filter(|message| message.is_hidden(now) && !message.in_flight(now)).count()
    }

    /// The history of each message that was sent here, in order of the sends, regardless of its current queue.
    #[must_use]
    pub fn history(&self) -> Vec<MessageHistory> {
        for queue in self.with_later_queues() {
            drop(queue.current_state());
        }
        let histories = self.0.histories.lock().unwrap_or_else(PoisonError::into_inner);
        histories.iter().map(|history| history.entry().clone()).collect()
    }

    /// This queue, and those that its messages may have been moved to.
    fn with_later_queues(&self) -> Vec<Self> {
        let (mut found, mut next) = (vec![self.clone()], 0);
        while let Some(queue) = found.get(next).cloned() {
            let redriven_to = queue.0.redriven_to.lock().unwrap_or_else(PoisonError::into_inner);
            let redriven_to: Vec<_> = redriven_to.iter().filter_map(Weak::upgrade).map(Self).collect();
            let dead_letter = queue.settings().dead_letter.iter().map(|policy| policy.queue.clone());
            for later in dead_letter.chain(redriven_to) {
                if !found.iter().any(|known| Arc::ptr_eq(&known.0, &later.0)) {
                    found.push(later);
                }
            }
            next += 1;
        }
        found
    }

    /// The counts so far.
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

    /// The state without expired messages.
    fn current_state(&self) -> MutexGuard<'_, QueueState> {
        let mut current = self.state();
        current.expire(self);
        current
    }

    fn notify(&self) {
        self.0.changed.notify_waiters();
    }

    /// Milliseconds since 1970.
    fn timestamp(&self, at: Instant) -> u128 {
        let since_1970 = self.0.settings.created_at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        (since_1970 + at.saturating_duration_since(self.0.made)).as_millis()
    }
}
