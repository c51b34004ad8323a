//! An event source mapping: what carries messages from a queue to a function, and obeys its answer.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::answer::{Answer, kept};
use super::event::{Received, event};
use super::queue::Queue;
use super::rng::{Draw, Rng};

/// Lambda's limit of an event, bytes:
/// <https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html>
const LARGEST_EVENT: usize = 6 * 1024 * 1024;

/// How a mapping and its function behave. By default as AWS makes them, but for
/// `report_batch_item_failures`.
#[derive(Clone, Debug)]
pub struct MappingSettings {
    /// Most messages of a batch. AWS takes up to 10 on a FIFO queue, up to 10,000 on a standard one.
    pub batch_size: usize,
    /// The function's timeout. AWS refuses one above the queue's visibility timeout.
    pub function_timeout: Duration,
    /// `FunctionResponseTypes` has `ReportBatchItemFailures`. AWS leaves it out by default; then
    /// every answer deletes the whole batch.
    pub report_batch_item_failures: bool,
    /// Invocations at once that [`drain`](Mapping::drain) makes. Lambda starts with five.
    pub concurrency: usize,
    /// Chance that Lambda throttles an invocation: its messages were received, and nothing ran.
    pub throttled: f64,
    /// Chance that the delete of a message is lost on its way, on a FIFO queue too.
    pub delete_lost: f64,
}

impl Default for MappingSettings {
    fn default() -> Self {
        Self {
            batch_size: 10,
            function_timeout: Duration::from_secs(3),
            report_batch_item_failures: true,
            concurrency: 5,
            throttled: 0.0,
            delete_lost: 0.0,
        }
    }
}

/// What a mapping did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingCounts {
    /// Invocations that were started.
    pub invocations: usize,
    /// Of these, the ones of which nothing was deleted: an error, a timeout, an unusable answer.
    pub failed: usize,
    /// Batches that were received and never given to the function.
    pub throttled: usize,
    /// Deletes that were lost on their way.
    pub deletes_lost: usize,
}

/// An event source mapping on a queue. It is shared by cloning; a queue may have several.
#[derive(Clone, Debug)]
pub struct Mapping {
    queue: Queue,
    settings: MappingSettings,
    rng: Rng,
    counts: Arc<Mutex<MappingCounts>>,
}

impl Mapping {
    /// A mapping, whose chances depend on the queue's.
    ///
    /// # Panics
    /// Where AWS would not take the settings.
    #[must_use]
    pub fn new(queue: &Queue, settings: MappingSettings) -> Self {
        let largest = if queue.settings().is_fifo() { 10 } else { 10_000 };
        assert!((1..=largest).contains(&settings.batch_size), "this queue's batches have 1 to {largest} messages");
        let within_visibility = settings.function_timeout <= queue.settings().visibility;
        assert!(within_visibility, "AWS refuses a function timeout above the queue's visibility timeout");
        let rng = queue.rng().of("mapping");
        Self { queue: queue.clone(), settings, rng, counts: Arc::default() }
    }

    /// The queue that it reads.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// What it was made with.
    #[must_use]
    pub fn settings(&self) -> &MappingSettings {
        &self.settings
    }

    /// What it did.
    #[must_use]
    pub fn counts(&self) -> MappingCounts {
        *self.lock()
    }

    /// The next invocation, where something is visible and Lambda does not throttle.
    #[must_use]
    pub fn poll(&self) -> Option<Invocation> {
        let messages = self.queue.receive_within(self.settings.batch_size, LARGEST_EVENT);
        let first = messages.first()?;
        let rng = self.rng.of(&first.receipt_handle);
        let mut counts = self.lock();
        if rng.hits(self.settings.throttled, Draw::Throttled, 0, 0) {
            counts.throttled += 1;
            return None;
        }
        counts.invocations += 1;
        let deadline = Instant::now() + self.settings.function_timeout;
        let request_id = rng.uuid(Draw::MessageId, 0);
        Some(Invocation { mapping: self.clone(), messages, request_id, deadline })
    }

    fn lock(&self) -> MutexGuard<'_, MappingCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One batch at the function. Dropped, it deletes nothing, and counts as no failure.
#[derive(Debug)]
#[must_use]
pub struct Invocation {
    mapping: Mapping,
    messages: Vec<Received>,
    request_id: String,
    deadline: Instant,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The answer was obeyed.
    Answered {
        /// messageIds whose delete SQS answered with success.
        deleted: Vec<String>,
        /// messageIds that come again when their visibility timeout ends.
        kept: Vec<String>,
    },
    /// Nothing was deleted.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Invocation {
    /// The event, as JSON.
    #[must_use]
    pub fn event(&self) -> String {
        event(&self.messages)
    }

    /// The messages of the batch.
    #[must_use]
    pub fn messages(&self) -> &[Received] {
        &self.messages
    }

    /// Lambda's request id.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// When the function times out.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Obey the answer: delete what is done, and leave the rest to its visibility timeout. An answer
    /// at or after the deadline is a timeout.
    ///
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html>
    #[expect(clippy::must_use_candidate, reason = "the queue shows it too")]
    pub fn end(self, answer: Answer) -> Ended {
        match self.kept(answer) {
            Ok(kept) => self.delete_all_but(&kept),
            Err(reason) => {
                self.mapping.lock().failed += 1;
                Ended::Failed { reason }
            }
        }
    }

    fn kept(&self, answer: Answer) -> Result<HashSet<&str>, String> {
        match answer {
            Answer::Returned(_) | Answer::Failed if Instant::now() >= self.deadline => Err("it timed out".into()),
            Answer::Returned(_) if !self.mapping.settings.report_batch_item_failures => Ok(HashSet::new()),
            Answer::Returned(answer) => {
                kept(&answer, &self.messages.iter().map(|message| message.message_id.as_str()).collect())
            }
            Answer::Failed => Err("it failed".into()),
            Answer::TimedOut => Err("it timed out".into()),
        }
    }

    fn delete_all_but(&self, named: &HashSet<&str>) -> Ended {
        let Mapping { queue, settings, rng, counts: _ } = &self.mapping;
        let is_deleted = |message: &Received| {
            if named.contains(message.message_id.as_str()) {
                return false;
            }
            if rng.of(&message.receipt_handle).hits(settings.delete_lost, Draw::DeleteLost, 0, 0) {
                self.mapping.lock().deletes_lost += 1;
                return false;
            }
            queue.delete(&message.receipt_handle).is_ok()
        };
        let (deleted, kept): (Vec<_>, Vec<_>) = self.messages.iter().partition(|message| is_deleted(message));
        let ids = |messages: Vec<&Received>| messages.into_iter().map(|message| message.message_id.clone()).collect();
        Ended::Answered { deleted: ids(deleted), kept: ids(kept) }
    }
}
