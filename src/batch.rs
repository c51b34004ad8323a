//! The messages of one invocation: which run side by side, which in order, which not at all.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

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
        let identities: Vec<_> = messages.iter().map(|message| self.identity(message)).collect();
        let Lanes { firsts, next } = lanes(messages);
        let course = Course {
            batch: self,
            messages,
            deadline,
            twins: twins(&identities),
            identities,
            next,
            verdicts: Mutex::new(vec![Verdict::not_started("nobody came to it"); messages.len()]),
            outage: OnceLock::new(),
            ran: AtomicBool::new(false),
        };
        let concurrency = self.settings.concurrency.get();
        stream::iter(firsts).for_each_concurrent(concurrency, |first| course.run(first)).await;
        if let (Some(outage), false) = (course.outage.into_inner(), course.ran.into_inner()) {
            return Err(outage);
        }
        Ok(course.verdicts.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// What makes the message the same work as another, or the verdict on one of which nobody knows.
    fn identity(&self, message: &Message) -> Result<Identity, Verdict> {
        if message.body.is_none() {
            return Err(Verdict::unreadable());
        }
        let key = KeySource::find(&self.settings.keys, message);
        let key = key.map_err(|error| Verdict::no_key(error.to_string()))?;
        Ok((key, self.settings.fingerprint.take(message)))
    }
}

type Identity = (Key, Fingerprint);

/// Messages that run one after another; lanes run side by side. On a FIFO queue a group is a lane,
/// else every message is.
struct Lanes {
    /// The first message of each lane, by its place in the batch.
    firsts: Vec<usize>,
    /// Of each message the one that follows it in its lane.
    next: Vec<Option<usize>>,
}

fn lanes(messages: &[Message]) -> Lanes {
    let mut lanes = Lanes { firsts: Vec::with_capacity(messages.len()), next: vec![None; messages.len()] };
    let mut last_of_group = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        let group = message.group_id.as_deref().filter(|_| message.is_fifo());
        match group.and_then(|group| last_of_group.insert(group, at)) {
            Some(before) => lanes.next[before] = Some(at),
            None => lanes.firsts.push(at),
        }
    }
    lanes
}

/// Of messages with the same key and payload the first to be reached runs, and the others wait for
/// its verdict.
fn twins(identities: &[Result<Identity, Verdict>]) -> HashMap<Identity, OnceCell<Verdict>> {
    let mut seen = HashSet::with_capacity(identities.len());
    let repeated = identities.iter().flatten().filter(|identity| !seen.insert(*identity));
    repeated.map(|identity| (identity.clone(), OnceCell::new())).collect()
}

/// One batch on its way.
struct Course<'a, S, W> {
    batch: &'a Batch<S, W>,
    messages: &'a [Message],
    deadline: Deadline,
    /// Of each message.
    identities: Vec<Result<Identity, Verdict>>,
    /// Of those that more than one message has.
    twins: HashMap<Identity, OnceCell<Verdict>>,
    next: Vec<Option<usize>>,
    /// On each message.
    verdicts: Mutex<Vec<Verdict>>,
    /// The store's first failure to answer. Nothing is started after it.
    outage: OnceLock<StoreError>,
    /// Whether any work ran.
    ran: AtomicBool,
}

impl<S: Store, W: Work> Course<'_, S, W> {
    /// The messages of a lane in their order, up to the first that has to come again: what follows
    /// it must not overtake it. SQS holds the group back while any of it is in flight, so all come
    /// at the same time.
    async fn run(&self, first: usize) {
        let (mut reached, mut held) = (Some(first), None);
        while let Some(at) = reached {
            let verdict = match held {
                Some(held) => Verdict::unprocessed(held, "a message before it in its group has to come again"),
                None => self.judge(at).await,
            };
            if verdict.disposition != Disposition::Done {
                held = Some(verdict.disposition);
            }
            self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)[at] = verdict;
            reached = self.next[at];
        }
    }

    async fn judge(&self, at: usize) -> Verdict {
        let message = &self.messages[at];
        let identity = match &self.identities[at] {
            Ok(identity) => identity,
            Err(verdict) => return verdict.clone(),
        };
        let Some(twins) = self.twins.get(identity) else { return self.run_once(message, identity).await };
        let mut first = false;
        let verdict = twins
            .get_or_init(|| {
                first = true;
                self.run_once(message, identity)
            })
            .await;
        if first { verdict.clone() } else { verdict.for_twin() }
    }

    async fn run_once(&self, message: &Message, (key, fingerprint): &Identity) -> Verdict {
        if self.outage.get().is_some() {
            return Verdict::not_started("the idempotency store is out of reach").on(key);
        }
        if self.deadline.is_too_late() {
            return Verdict::not_started("no time was left to start it").on(key);
        }
        let delivery =
            Delivery::new(key.clone()).fingerprint(*fingerprint).message_id(&message.id).deadline(self.deadline);
        match self.batch.idempotency.run(&delivery, &self.batch.work, message).await {
            Ok(report) => {
                let verdict = Verdict::of(report).on(key);
                self.ran.fetch_or(verdict.ran, Ordering::Relaxed);
                verdict
            }
            Err(error) => {
                let verdict = Verdict::no_answer(&error).on(key);
                if error.is_unavailable() {
                    let _only_the_first_counts = self.outage.set(error);
                }
                verdict
            }
        }
    }
}
