//! An event source mapping, which reads batches from a queue, and deletes messages by the function's response.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::answer::{InvocationResult, retained};
use super::event::{ReceivedMessage, event};
use super::queue::Queue;
use super::rng::{Draw, Rng};

/// Largest event of Lambda, bytes:
/// <https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html>
const LARGEST_EVENT: usize = 6 * 1024 * 1024;

/// Longest batching window:
/// <https://docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html>
const LONGEST_WINDOW: Duration = Duration::from_secs(300);

/// Timeouts of a function. More than 15 minutes are for Lambda Managed Instances:
/// <https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html>
const FUNCTION_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(90);

/// Settings of a mapping and its function. The defaults are those of AWS, except `report_batch_item_failures`.
// Exhaustive, so that tests can use update syntax: `MappingSettings { batch_size: 1, ..Default::default() }`.
#[derive(Clone, Debug)]
pub struct MappingSettings {
    /// Largest number of messages in a batch. AWS accepts up to 10 for a FIFO queue and up to 10,000 for a standard
    /// one, with a [`batching_window`](Self::batching_window) if it is above 10. Default: 10.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-parameters.html>
    pub batch_size: usize,
    /// `MaximumBatchingWindowInSeconds`, in whole seconds, up to 300. A FIFO queue has none. Default: 0.
    /// <https://docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html>
    ///
    /// It has no effect here: a batch has the messages that are visible when it is received. Set
    /// [`invocation_delay`](Self::invocation_delay) for invocations that begin later.
    pub batching_window: Duration,
    /// The function's timeout: from a second to 15 minutes, or 90 minutes on Lambda Managed Instances, and at most the
    /// queue's visibility timeout. Lambda accepts whole seconds. Default: 3 seconds.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html>,
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html>
    pub function_timeout: Duration,
    /// Whether `FunctionResponseTypes` contains `ReportBatchItemFailures`. If not, as is the default of AWS, every
    /// response deletes the whole batch. Default: `true`.
    pub report_batch_item_failures: bool,
    /// Number of concurrent invocations of [`drain`](Mapping::drain), at least 1: without any, Lambda throttles every
    /// batch. Default: 5, with which Lambda starts.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html>,
    /// <https://docs.aws.amazon.com/lambda/latest/dg/configuration-concurrency.html>
    pub concurrency: usize,
    /// Probability that Lambda throttles an invocation: its messages are received and the function is not invoked.
    /// Lambda retries until the visibility timeout ends; here it does not. Default: 0.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#services-sqs-backoff-strategy>
    pub throttle_rate: f64,
    /// Longest time between the receive of a batch and its invocation: a batching window, and retries of a throttled
    /// invocation, which end with the visibility timeout. So messages may be received again during the invocation.
    /// Default: 0.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#services-sqs-backoff-strategy>
    pub invocation_delay: Duration,
    /// Probability that the delete of a message is lost before it reaches SQS, also on a FIFO queue: "Lambda event
    /// source mappings process each event at least once". Default: 0.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html>
    pub delete_loss_rate: f64,
}

impl Default for MappingSettings {
    fn default() -> Self {
        Self {
            batch_size: 10,
            batching_window: Duration::ZERO,
            function_timeout: Duration::from_secs(3),
            report_batch_item_failures: true,
            concurrency: 5,
            throttle_rate: 0.0,
            invocation_delay: Duration::ZERO,
            delete_loss_rate: 0.0,
        }
    }
}

impl MappingSettings {
    fn check(&self, is_fifo: bool) {
        let largest = if is_fifo { 10 } else { 10_000 };
        assert!((1..=largest).contains(&self.batch_size), "this queue's batches have 1 to {largest} messages");
        let window = self.batching_window;
        assert!(window <= LONGEST_WINDOW && window.subsec_nanos() == 0, "a batching window is up to 300 whole seconds");
        assert!(window.is_zero() || !is_fifo, "a FIFO queue has no batching window");
        assert!(!window.is_zero() || self.batch_size <= 10, "a batch of more than 10 messages needs a batching window");
        assert!(FUNCTION_TIMEOUT.contains(&self.function_timeout), "a function times out after 1 second to 90 minutes");
        assert!(self.concurrency > 0, "a mapping without concurrent invocations throttles every batch");
    }
}

/// Counts of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappingCounts {
    /// Invocations.
    pub invocations: usize,
    /// Invocations that deleted nothing: an error, a timeout or an invalid response.
    pub failed: usize,
    /// Batches that were received and not passed to the function.
    pub throttled: usize,
    /// Deletes that were lost before they reached SQS.
    pub lost_deletes: usize,
}

/// An event source mapping of a queue. Clones share it. A queue may have several.
#[derive(Clone, Debug)]
pub struct Mapping {
    queue: Queue,
    settings: MappingSettings,
    rng: Rng,
    counts: Arc<Mutex<MappingCounts>>,
}

impl Mapping {
    /// Creates a mapping. Its random choices depend on the queue's seed.
    ///
    /// # Panics
    /// If AWS would reject the settings. A fraction of a second of the function's timeout is accepted, so that a test
    /// can have its deadlines at any time.
    #[must_use]
    pub fn new(queue: &Queue, settings: MappingSettings) -> Self {
        settings.check(queue.settings().is_fifo());
        let visibility_timeout = queue.settings().visibility_timeout;
        let within_visibility = |time| time <= visibility_timeout;
        assert!(
            within_visibility(settings.function_timeout),
            "the function timeout must not exceed the queue's visibility timeout"
        );
        assert!(within_visibility(settings.invocation_delay), "an invocation begins within the visibility timeout");
        let rng = queue.rng().of("mapping");
        Self { queue: queue.clone(), settings, rng, counts: Arc::default() }
    }

    /// The queue of the mapping.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &MappingSettings {
        &self.settings
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> MappingCounts {
        *self.lock()
    }

    /// Receives a batch. `None` if no message is visible or Lambda throttles the invocation.
    ///
    /// There is no filter and no backoff of the poller:
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html>
    #[must_use]
    pub fn poll(&self) -> Option<Invocation> {
        let room = LARGEST_EVENT - event(&[]).len();
        let messages = self.queue.receive_within(self.settings.batch_size, Some(room));
        let first = messages.first()?;
        let rng = self.rng.of(&first.receipt_handle);
        let mut counts = self.lock();
        if rng.happens(self.settings.throttle_rate, Draw::Throttled, 0, 0) {
            counts.throttled += 1;
            return None;
        }
        counts.invocations += 1;
        let begins = Instant::now() + self.settings.invocation_delay.mul_f64(rng.fraction(Draw::InvocationDelay, 0, 0));
        let deadline = begins + self.settings.function_timeout;
        let request_id = rng.uuid(Draw::MessageId, 0);
        Some(Invocation { mapping: self.clone(), messages, event: None, request_id, begins, deadline })
    }

    fn lock(&self) -> MutexGuard<'_, MappingCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An invocation of the function with one batch. If it is dropped, it deletes nothing and is not counted as failed.
#[derive(Debug)]
#[must_use]
pub struct Invocation {
    mapping: Mapping,
    messages: Vec<ReceivedMessage>,
    /// `None` if it is that of the messages.
    event: Option<String>,
    request_id: String,
    begins: Instant,
    deadline: Instant,
}

/// What happened to the messages of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// The response was applied.
    Processed {
        /// messageIds that SQS deleted, or whose delete succeeded.
        deleted: Vec<String>,
        /// messageIds that are delivered again when their visibility timeout ends.
        retained: Vec<String>,
    },
    /// Nothing was deleted.
    Failed {
        /// The reason.
        reason: String,
    },
}

impl Invocation {
    /// The event, as JSON.
    #[must_use]
    pub fn event(&self) -> String {
        self.event.clone().unwrap_or_else(|| event(&self.messages))
    }

    /// Passes this event to the function instead, such as one with a malformed record.
    pub fn with_event(self, event: impl Into<String>) -> Self {
        Self { event: Some(event.into()), ..self }
    }

    /// The messages of the batch.
    #[must_use]
    pub fn messages(&self) -> &[ReceivedMessage] {
        &self.messages
    }

    /// Lambda's request id.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Time at which the function is invoked.
    #[must_use]
    pub fn begins(&self) -> Instant {
        self.begins
    }

    /// Time at which the function times out.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Applies the result: deletes the messages that are done. The others become visible again at the end of their
    /// visibility timeout. A result at or after the deadline is a timeout.
    ///
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html>
    #[expect(clippy::must_use_candidate, reason = "the outcome is also in the history of the queue")]
    pub fn finish(self, result: InvocationResult) -> BatchOutcome {
        match self.retained(result) {
            Ok(retained) => self.delete_all_but(&retained),
            Err(reason) => {
                self.mapping.lock().failed += 1;
                BatchOutcome::Failed { reason }
            }
        }
    }

    fn retained(&self, result: InvocationResult) -> Result<HashSet<&str>, String> {
        match result {
            InvocationResult::Returned(_) | InvocationResult::Failed if Instant::now() >= self.deadline => {
                Err("the function timed out".into())
            }
            InvocationResult::Returned(_) if !self.mapping.settings.report_batch_item_failures => Ok(HashSet::new()),
            InvocationResult::Returned(response) => {
                retained(&response, &self.messages.iter().map(|message| message.message_id.as_str()).collect())
            }
            InvocationResult::Failed => Err("the function failed".into()),
            InvocationResult::TimedOut => Err("the function timed out".into()),
        }
    }

    fn delete_all_but(&self, named: &HashSet<&str>) -> BatchOutcome {
        let Mapping { queue, settings, rng, counts: _ } = &self.mapping;
        let is_deleted = |message: &ReceivedMessage| {
            if named.contains(message.message_id.as_str()) {
                return false;
            }
            if rng.of(&message.receipt_handle).happens(settings.delete_loss_rate, Draw::DeleteLost, 0, 0) {
                self.mapping.lock().lost_deletes += 1;
                return false;
            }
            queue.delete(&message.receipt_handle).is_ok()
        };
        let (deleted, retained): (Vec<_>, Vec<_>) = self.messages.iter().partition(|message| is_deleted(message));
        let ids =
            |messages: Vec<&ReceivedMessage>| messages.into_iter().map(|message| message.message_id.clone()).collect();
        BatchOutcome::Processed { deleted: ids(deleted), retained: ids(retained) }
    }
}
