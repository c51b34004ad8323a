//! The messages of one invocation: which run side by side, which in order, which not at all.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::{StreamExt, stream};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::Instant;
use tracing::Instrument;

use crate::deadline::Deadline;
use crate::disposition::{Disposition, Verdict};
use crate::idempotency::{Delivery, Ended, Idempotency, Next, Report};
use crate::message::{Envelopes, FingerprintSource, KeySource, Message, Payload};
use crate::object::Place;
use crate::offload::{Offload, OffloadError};
use crate::record::{Fingerprint, Key, Owners};
use crate::store::{Store, StoreError};
use crate::timings::{Times, Timings};
use crate::traces;
use crate::work::{Work, WorkError, Worked};

/// Messages that are started in one turn of the runtime. What these ask of the store is on its way
/// while the next are prepared. As many as share a run of a script, so that nothing travels half empty.
const WAVE: usize = 64;

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
    /// Which envelopes are opened to find them.
    pub envelopes: Envelopes,
    /// Which pointers to payloads in S3 are followed.
    pub offload: Offload,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            // Enough to hide a receiver's latency in a batch of ten; few enough for a receiver.
            concurrency: const { NonZeroUsize::new(16).unwrap() },
            // What SQS delivers as another message is other work, unless the producer says otherwise.
            keys: vec![KeySource::Attribute("Idempotency-Key".into()), KeySource::MessageId],
            fingerprint: FingerprintSource::Body,
            envelopes: Envelopes::Auto,
            offload: Offload::default(),
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
    /// the whole batch should come again.
    ///
    /// ## Cancel safety
    /// Dropped, it leaves each claim at hand to its lease, as a killed process would.
    pub async fn run(&self, messages: &[Message], deadline: Deadline) -> Result<Vec<Verdict>, StoreError> {
        self.run_timed(messages, deadline, None).await
    }

    /// As [`run`](Self::run), with how long each step took.
    pub(crate) async fn run_timed(
        &self,
        messages: &[Message],
        deadline: Deadline,
        timings: Option<&Timings>,
    ) -> Result<Vec<Verdict>, StoreError> {
        let payloads: Vec<_> = messages.iter().map(|message| Payload::of(message, self.settings.envelopes)).collect();
        let keys: Vec<_> =
            messages.iter().zip(&payloads).map(|(message, payload)| self.key(message, payload)).collect();
        let Lanes { firsts, next } = lanes(messages);
        let course = Course {
            batch: self,
            messages,
            points: payloads.iter().any(|payload| payload.pointer().is_some()),
            payloads,
            deadline,
            timings,
            shared: shared(&keys),
            keys,
            next,
            owners: Owners::random(),
            shared_verdicts: Mutex::default(),
            slots: Semaphore::new(self.settings.concurrency.get().min(Semaphore::MAX_PERMITS)),
            verdicts: Mutex::new(vec![Verdict::not_started("not processed"); messages.len()]),
            outage: OnceLock::new(),
            ran: AtomicBool::new(false),
        };
        stream::iter(firsts.into_iter().enumerate())
            .then(|(at, first)| async move {
                if at > 0 && at % WAVE == 0 {
                    yield_now().await;
                }
                first
            })
            .for_each_concurrent(course.at_once(), |first| course.run(first))
            .await;
        if let (Some(outage), false) = (course.outage.into_inner(), course.ran.into_inner()) {
            return Err(outage);
        }
        Ok(course.verdicts.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The message's key, or the verdict on a message without one.
    fn key(&self, message: &Message, payload: &Payload<'_>) -> Result<Key, Verdict> {
        if message.body.is_none() {
            return Err(Verdict::unreadable(message));
        }
        KeySource::find(&self.settings.keys, payload).map_err(|error| Verdict::no_key(error.to_string(), message))
    }
}

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
        match group.and_then(|group| last_of_group.insert((message.queue_arn.as_deref(), group), at)) {
            Some(before) => lanes.next[before] = Some(at),
            None => lanes.firsts.push(at),
        }
    }
    lanes
}

/// The keys that more than one message has.
fn shared(keys: &[Result<Key, Verdict>]) -> HashSet<Key> {
    let mut seen = HashSet::with_capacity(keys.len());
    keys.iter().flatten().filter(|key| !seen.insert(*key)).cloned().collect()
}

/// One batch on its way.
struct Course<'a, S, W> {
    batch: &'a Batch<S, W>,
    messages: &'a [Message],
    /// Of each message.
    payloads: Vec<Payload<'a>>,
    deadline: Deadline,
    /// `None` measures nothing.
    timings: Option<&'a Timings>,
    /// Of each message.
    keys: Vec<Result<Key, Verdict>>,
    shared: HashSet<Key>,
    /// Whether any message only points to its payload, so that its key is not known yet.
    points: bool,
    /// Of messages with the same key and payload the first runs, and the others wait for its verdict.
    shared_verdicts: Mutex<HashMap<(Key, Fingerprint), SharedVerdict>>,
    next: Vec<Option<usize>>,
    owners: Owners,
    /// Room for the messages that are worked on at once.
    slots: Semaphore,
    /// On each message.
    verdicts: Mutex<Vec<Verdict>>,
    /// The store's first failure to answer. Nothing is started after it.
    outage: OnceLock<StoreError>,
    /// Whether any work ran.
    ran: AtomicBool,
}

/// The verdict that messages with the same key and payload share.
type SharedVerdict = Arc<OnceCell<Verdict>>;

impl<S: Store, W: Work> Course<'_, S, W> {
    /// The messages of a lane in their order, up to the first that has to come again: what follows
    /// it must not overtake it. SQS holds the group back while any of it is in flight, so all come
    /// at the same time.
    async fn run(&self, first: usize) {
        let (mut reached, mut held) = (Some(first), None);
        while let Some(at) = reached {
            let verdict = match held {
                Some(held) => Verdict::unprocessed(held, "a message before it in its group has to come again"),
                None => self.judge_in_span(at).await,
            };
            if verdict.disposition != Disposition::Done {
                held = Some(verdict.disposition);
            }
            self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)[at] = verdict;
            reached = self.next[at];
        }
    }

    /// Messages that are begun at once.
    fn at_once(&self) -> usize {
        let worked_on = self.batch.settings.concurrency.get();
        // As many again may be past their work, and have only to be recorded; but not with payloads that
        // were fetched, as those of so many would be in memory.
        if self.points { worked_on } else { worked_on.saturating_mul(2) }
    }

    async fn judge_in_span(&self, at: usize) -> Verdict {
        let span = traces::of_message(&self.messages[at]);
        let verdict = self.judge(at).instrument(span.clone()).await;
        traces::judged(&span, &verdict);
        verdict
    }

    async fn judge(&self, at: usize) -> Verdict {
        let (message, payload) = (&self.messages[at], &self.payloads[at]);
        match (payload.pointer(), &self.keys[at]) {
            (Some(place), _) => self.judge_pointer(message, payload, place).await,
            (None, Ok(key)) => self.judge_payload(message, key, payload).await,
            (None, Err(verdict)) => verdict.clone(),
        }
    }

    /// The payload is fetched now, and not before: those of a whole batch may be too many for memory.
    async fn judge_pointer(&self, message: &Message, pointer: &Payload<'_>, place: &Place) -> Verdict {
        if let Some(verdict) = self.too_late() {
            return verdict;
        }
        let settings = &self.batch.settings;
        match settings.offload.fetch(message, place, self.deadline.work).await {
            Ok(message) => {
                let payload = Payload::of(&message, settings.envelopes);
                match self.batch.key(&message, &payload) {
                    Ok(key) => self.judge_payload(&message, &key, &payload).await,
                    Err(verdict) => verdict,
                }
            }
            // A consumer may remove a payload when its work is done. So this may be a duplicate.
            Err(gone @ OffloadError::Gone) => match KeySource::find(KeySource::before_payload(&settings.keys), pointer)
            {
                Ok(key) => self.run_once(message, &key, Fingerprint::NONE, Some(gone)).await,
                Err(_) => Verdict::no_payload(&gone, message),
            },
            Err(error) => Verdict::no_payload(&error, message),
        }
    }

    async fn judge_payload(&self, message: &Message, key: &Key, payload: &Payload<'_>) -> Verdict {
        let fingerprint = self.batch.settings.fingerprint.take(payload);
        if !self.points && !self.shared.contains(key) {
            return self.run_once(message, key, fingerprint, None).await;
        }
        let shared = self.shared_verdict(key.clone(), fingerprint);
        let mut first = false;
        let verdict = shared
            .get_or_init(|| {
                first = true;
                self.run_once(message, key, fingerprint, None)
            })
            .await;
        if first { verdict.clone() } else { verdict.for_in_batch_duplicate() }
    }

    /// The verdict where nothing can be started any more.
    fn too_late(&self) -> Option<Verdict> {
        if self.outage.get().is_some() {
            return Some(Verdict::not_started("the idempotency store is out of reach"));
        }
        self.deadline.is_too_late().then(|| Verdict::not_started("no time was left to start it"))
    }

    /// The message under its record, once there is room for it. `missing` says why there is no payload to work on.
    async fn run_once(
        &self,
        message: &Message,
        key: &Key,
        fingerprint: Fingerprint,
        missing: Option<OffloadError>,
    ) -> Verdict {
        // The slots are never closed.
        let slot = self.slots.acquire().await.ok();
        if let Some(verdict) = self.too_late() {
            return verdict.on(key);
        }
        let delivery = Delivery::new(key.clone())
            .fingerprint(fingerprint)
            .message_id(&message.id)
            .deadline(self.deadline)
            .without_result()
            .owner(self.owners.next());
        match self.steps(&delivery, message, missing, slot).await {
            Ok(report) => {
                let verdict = Verdict::of(report, message).on(key);
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

    /// Acquire → work → settle.
    async fn steps(
        &self,
        delivery: &Delivery,
        message: &Message,
        missing: Option<OffloadError>,
        slot: Option<SemaphorePermit<'_>>,
    ) -> Result<Report, StoreError> {
        let Batch { idempotency, work, settings: _ } = self.batch;
        let began = self.timings.map(|timings| (&timings.store, Instant::now()));
        let next = idempotency.acquire(delivery, work).await;
        add_time(began);
        let claim = match next? {
            Next::Work(claim) => claim,
            Next::Report(report) => return Ok(report),
        };
        let ended = if let Some(missing) = missing {
            // Its own record may say that the work was done, and the payload removed with it. Boxed, as it is rare.
            match Box::pin(idempotency.recorded(claim.asked(), work, &self.deadline)).await {
                Ok(Some(result)) => Ended::Worked(Worked::DoneBefore(result)),
                Ok(None) => Ended::Failed(WorkError::permanent(missing)),
                Err(error) => Ended::Failed(error),
            }
        } else {
            let began = self.timings.map(|timings| (&timings.work, Instant::now()));
            let ended = idempotency.attempt_work(&claim, work, message, &self.deadline).await;
            add_time(began);
            ended
        };
        // The next message starts while this one is recorded.
        drop(slot);
        let began = self.timings.map(|timings| (&timings.store, Instant::now()));
        let settled = idempotency.settle(&claim, ended, work.keeps_record(), &self.deadline).await;
        add_time(began);
        let report = settled?;
        if let Some(timings) = self.timings {
            timings.lease_remaining.add(claim.lease_ends().saturating_duration_since(Instant::now()));
        }
        Ok(report)
    }

    fn shared_verdict(&self, key: Key, fingerprint: Fingerprint) -> SharedVerdict {
        let mut verdicts = self.shared_verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(verdicts.entry((key, fingerprint)).or_default())
    }
}

/// Adds the time since a step began, where it is measured. A step is awaited where it stands, and not within a function
/// that measures it, as such a function's future would hold the step's twice.
fn add_time(began: Option<(&Times, Instant)>) {
    if let Some((times, began)) = began {
        times.add(began.elapsed());
    }
}
