//! The messages of one invocation: which run side by side, which in order, which not at all.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::{StreamExt, stream};
use tokio::sync::OnceCell;

use crate::deadline::Deadline;
use crate::disposition::{Disposition, Verdict};
use crate::idempotency::{Delivery, Idempotency};
use crate::message::{FingerprintSource, KeySource, Message};
use crate::record::{Fingerprint, Key};
use crate::store::{Store, StoreError};
use crate::work::Work;

/// Runs a work on the messages of a batch, each under its own idempotency record.
#[derive(Debug)]
pub struct Batch<S, W> {
    idempotency: Idempotency<S>,
    work: W,
    settings: BatchSettings,
}

/// How a batch is run.
#[derive(Clone, Debug)]
pub struct BatchSettings {
    /// Messages that are worked on at once.
    pub concurrency: NonZeroUsize,
    /// Where a message's key is found: the first that is present.
    pub keys: Vec<KeySource>,
    /// What a message's fingerprint is taken of.
    pub fingerprint: FingerprintSource,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            // Enough to hide a receiver's latency in a batch of ten; few enough for a receiver.
            concurrency: const { NonZeroUsize::new(16).unwrap() },
            keys: vec![
                KeySource::Attribute("Idempotency-Key".into()),
                KeySource::DeduplicationId,
                KeySource::MessageId,
            ],
            fingerprint: FingerprintSource::Body,
        }
    }
}

impl<S: Store, W: Work> Batch<S, W> {
    /// Batches of this work.
    pub fn new(idempotency: Idempotency<S>, work: W, settings: BatchSettings) -> Self {
        Self { idempotency, work, settings }
    }

    /// A verdict for each message, in their order.
    ///
    /// # Errors
    /// [`StoreError`], where the store was out of reach before any work ran: nothing happened, and
    /// the whole batch should come again, more slowly.
    ///
    /// ## Cancel safety
    /// Dropped, it leaves each claim at hand to its lease, as a killed process would.
    pub async fn run(&self, messages: &[Message], deadline: Deadline) -> Result<Vec<Verdict>, StoreError> {
        let course = Course {
            batch: self,
            deadline,
            outage: OnceLock::new(),
            ran: AtomicBool::new(false),
            twins: Mutex::default(),
        };
        let mut verdicts: Vec<(usize, Verdict)> = stream::iter(lanes(messages))
            .map(|lane| course.run(lane))
            .buffer_unordered(self.settings.concurrency.get())
            .concat()
            .await;
        if let (Some(outage), false) = (course.outage.into_inner(), course.ran.into_inner()) {
            return Err(outage);
        }
        verdicts.sort_unstable_by_key(|(at, _)| *at);
        Ok(verdicts.into_iter().map(|(_, verdict)| verdict).collect())
    }
}

/// Messages that run one after another; lanes run side by side. On a FIFO queue a group is a lane,
/// else every message is.
fn lanes(messages: &[Message]) -> Vec<Vec<(usize, &Message)>> {
    let mut lanes: Vec<Vec<(usize, &Message)>> = Vec::new();
    let mut lane_of_group = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        let group = message.group_id.as_deref().filter(|_| message.is_fifo());
        let lane = match group {
            Some(group) => *lane_of_group.entry(group).or_insert(lanes.len()),
            None => lanes.len(),
        };
        match lanes.get_mut(lane) {
            Some(lane) => lane.push((at, message)),
            None => lanes.push(vec![(at, message)]),
        }
    }
    lanes
}

/// One batch on its way.
struct Course<'a, S, W> {
    batch: &'a Batch<S, W>,
    deadline: Deadline,
    /// The store's first failure to answer. Nothing is started after it.
    outage: OnceLock<StoreError>,
    /// Whether any work ran.
    ran: AtomicBool,
    /// Of messages with the same key and payload the first runs, and the others wait for its verdict.
    twins: Mutex<HashMap<(Key, Fingerprint), Twins>>,
}

/// The verdict that messages with the same key and payload share.
type Twins = Arc<OnceCell<Verdict>>;

impl<S: Store, W: Work> Course<'_, S, W> {
    /// The messages of a lane in their order, up to the first that has to come again: what follows
    /// it must not overtake it. SQS holds the group back while any of it is in flight, so all come
    /// at the same time.
    async fn run(&self, lane: Vec<(usize, &Message)>) -> Vec<(usize, Verdict)> {
        let mut verdicts = Vec::with_capacity(lane.len());
        let mut held = None;
        for (at, message) in lane {
            let verdict = match held {
                Some(held) => Verdict::unprocessed(held, "a message before it in its group has to come again"),
                None => self.judge(message).await,
            };
            if verdict.disposition != Disposition::Done {
                held = Some(verdict.disposition);
            }
            verdicts.push((at, verdict));
        }
        verdicts
    }

    async fn judge(&self, message: &Message) -> Verdict {
        if message.body.is_none() {
            return Verdict::unreadable();
        }
        let settings = &self.batch.settings;
        let key = match KeySource::find(&settings.keys, message) {
            Ok(key) => key,
            Err(error) => return Verdict::no_key(error.to_string()),
        };
        let fingerprint = settings.fingerprint.take(message);
        let twins = self.twins(key.clone(), fingerprint);
        let mut first = false;
        let verdict = twins
            .get_or_init(|| {
                first = true;
                self.run_once(message, key.clone(), fingerprint)
            })
            .await;
        Verdict { key: Some(key), ..if first { verdict.clone() } else { verdict.for_twin() } }
    }

    async fn run_once(&self, message: &Message, key: Key, fingerprint: Fingerprint) -> Verdict {
        if self.outage.get().is_some() {
            return Verdict::not_started("the idempotency store is out of reach");
        }
        if self.deadline.is_too_late() {
            return Verdict::not_started("no time was left to start it");
        }
        let delivery = Delivery::new(key).fingerprint(fingerprint).message_id(&message.id).deadline(self.deadline);
        match self.batch.idempotency.run(&delivery, &self.batch.work, message).await {
            Ok(report) => {
                let verdict = Verdict::of(report);
                self.ran.fetch_or(verdict.ran, Ordering::Relaxed);
                verdict
            }
            Err(error) => {
                let verdict = Verdict::no_answer(&error);
                if error.is_unavailable() {
                    let _only_the_first_counts = self.outage.set(error);
                }
                verdict
            }
        }
    }

    fn twins(&self, key: Key, fingerprint: Fingerprint) -> Twins {
        let mut twins = self.twins.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(twins.entry((key, fingerprint)).or_default())
    }
}
