//! Batches whose messages take more time than an invocation has. None is cut off that need not be, and each is
//! delivered again: docs/sizing.md, "Times".

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use harness::event::set_pointer;
use history::Rng;
use idempotent_sqs::idempotency::{Deadline, Location, ObjectError, ObjectStore};
use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, Message};
use idempotent_sqs::{Claim, Idempotency, MemoryStore, Policy, Work, WorkError};
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tokio::time::{Instant, sleep};

use crate::lock;

/// Number of queues of a seed.
const QUEUES: usize = 8;

fn percent_of(time: Duration, percent: u64) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or_default() * percent / 100)
}

/// What is wrong with the batches of this seed.
pub async fn run_in_little_time(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x71_3e);
    let mut wrong = Vec::new();
    for _ in 0..QUEUES {
        wrong.extend(Queue::new(rng).drain(rng).await);
    }
    wrong
}

/// What is chosen for a queue.
#[derive(Debug)]
struct Queue {
    is_fifo: bool,
    concurrency: usize,
    /// Time for work in most invocations.
    time: Duration,
    /// Time to read a payload in S3, if they are there.
    reads: Option<Duration>,
    /// Time of an acquire.
    acquires: Duration,
    /// Share of the deletes that are lost, ‰. The message comes again, and takes time as a duplicate.
    lost: u64,
    work: Slow,
}

/// Work that takes at most this time.
#[derive(Debug)]
struct Slow {
    longest: Duration,
    /// A share of it that each run takes, by the last digits of its message.
    shares: Vec<u64>,
    runs: Mutex<Vec<Run>>,
}

#[derive(Clone, Debug)]
struct Run {
    message: String,
    attempt: u16,
    is_recovery: bool,
    began: Instant,
    ended: Option<Instant>,
}

impl Work<Message> for Slow {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let number = {
            let mut runs = lock(&self.runs);
            let (message, began) = (message.id.clone(), Instant::now());
            let (attempt, is_recovery) = (u16::from(claim.attempt()), claim.is_recovery());
            runs.push(Run { message, attempt, is_recovery, began, ended: None });
            runs.len() - 1
        };
        let of_message = message.id.parse::<usize>().unwrap_or_default() % self.shares.len();
        sleep(percent_of(self.longest, self.shares[of_message])).await;
        lock(&self.runs)[number].ended = Some(Instant::now());
        Ok(Vec::new())
    }

    fn longest_run(&self, _: &Message) -> Duration {
        self.longest
    }
}

/// The bucket of payloads.
const BUCKET: &str = "payloads";

/// Payloads that take this time.
#[derive(Debug)]
struct Objects(Duration);

impl ObjectStore for Objects {
    fn get<'a>(&'a self, _: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(async {
            sleep(self.0).await;
            Ok(b"a payment".to_vec())
        })
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        unreachable!("no result is kept")
    }
}

impl Queue {
    fn new(rng: &mut Rng) -> Self {
        let time = rng.ms(4000..30_000);
        // Mostly less than half of the time. In whole milliseconds, as timers are.
        let longest = percent_of(time, rng.draw(5..70));
        let mut queue = Self {
            is_fifo: rng.happens(500),
            concurrency: *rng.pick(&[1, 2, 3]),
            time,
            reads: None,
            acquires: Duration::ZERO,
            lost: 0,
            work: Slow { longest, shares: (0..10).map(|_| rng.draw(30..100)).collect(), runs: Mutex::default() },
        };
        if rng.happens(150) {
            // Few payloads take most of the time.
            queue.reads = Some(percent_of(time, 30));
            queue.work.longest = percent_of(time, 40);
            queue.lost = 400;
        } else if rng.happens(200) {
            // After the payload, less is left than may be needed, and enough for each run.
            queue.time = (time / 2).max(Duration::from_secs(3));
            queue.reads = Some(percent_of(queue.time, 55));
            queue.work.longest = percent_of(queue.time, 60);
            queue.work.shares.iter_mut().for_each(|share| *share = 30 + *share % 30);
        } else if rng.happens(300) {
            queue.acquires = percent_of(time, 30);
            queue.work.longest = percent_of(time, 40);
        }
        queue
    }

    /// Delivers ten messages until each is done, and says what is wrong.
    async fn drain(self, rng: &mut Rng) -> Vec<String> {
        let groups = rng.draw(1..4);
        let store = FaultyStore::new(MemoryStore::default());
        store.always(StoreCall::Acquire, Some(Fault::Slow(self.acquires)));
        let mut settings = BatchSettings::default();
        settings.concurrency = NonZeroUsize::new(self.concurrency).unwrap_or(NonZeroUsize::MIN);
        settings.extended_client.objects = self.reads.map(|reads| Arc::new(Objects(reads)) as Arc<dyn ObjectStore>);
        settings.extended_client.buckets = vec![BUCKET.to_owned()];
        let batch = Batch::new(Idempotency::new(&store, Policy::default()), &self.work, settings);
        let mut messages: Vec<_> = (0..10).map(|number| self.message(number, groups)).collect();
        let mut wrong = Vec::new();
        // The first message of each invocation is started, so one is done in each, or was cut off.
        for invocation in 0..40 {
            if messages.is_empty() {
                break;
            }
            let has_time = rng.happens(900);
            // A second is for settling.
            let deadline = Deadline::within(if has_time { self.time + Duration::from_secs(1) } else { Duration::ZERO });
            let began = Instant::now();
            lock(&self.work.runs).clear();
            let reports = batch.run(&messages, deadline).await.unwrap_or_default();
            let runs = lock(&self.work.runs).clone();
            let group = |id: &str| id.parse::<u64>().unwrap_or_default() % groups;
            let is_cut = runs.iter().any(|run| run.ended.is_none());
            // How long duplicates took is not known.
            let is_left = has_time && self.lost == 0 && runs.len() < messages.len();
            let mut faults = self.faults_of(&runs, is_left, began);
            let (mut kept, mut done) = (Vec::new(), BTreeSet::new());
            for (message, report) in messages.into_iter().zip(&reports) {
                let Disposition::Redeliver { after } = report.disposition else {
                    done.insert(group(&message.id));
                    if rng.happens(self.lost) {
                        kept.push(message);
                    }
                    continue;
                };
                // A message that was cut off comes after its backoff, and so does the rest of its group.
                let is_behind_done = self.is_fifo && done.contains(&group(&message.id));
                if !is_cut && after != is_behind_done.then_some(Duration::ZERO) {
                    faults.push(format!("it comes after {after:?}: {}, {report:?}", message.id));
                }
                kept.push(message);
            }
            wrong.extend(faults.into_iter().map(|fault| format!("invocation {invocation}: {fault}")));
            messages = kept;
        }
        if !messages.is_empty() {
            wrong.push(format!("{} messages are not done", messages.len()));
        }
        wrong.into_iter().map(|fault| format!("{fault}: {self:?}")).collect()
    }

    /// What is wrong with the runs of an invocation that began at this time. `is_left` tells whether a message was not
    /// started.
    fn faults_of(&self, runs: &[Run], is_left: bool, began: Instant) -> Vec<String> {
        let ends = began + self.time;
        let needed = self.work.longest.min(self.time / 2);
        let may_be_cut = self.work.longest > needed;
        let mut faults = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            // The first one is started at any time, if no duplicate has taken any.
            let is_first = number == 0 && run.began <= began + self.reads.unwrap_or_default() + self.acquires;
            if !is_first && ends.saturating_duration_since(run.began) < needed {
                faults.push(format!("{} was started too late: {run:?}", run.message));
            }
            if !may_be_cut && (run.ended.is_none() || run.attempt > 1 || run.is_recovery) {
                faults.push(format!("{} was cut off: {run:?}", run.message));
            }
        }
        let last = runs.iter().map(|run| run.ended.unwrap_or(ends)).max().unwrap_or(began);
        let steps = self.reads.unwrap_or_default() + self.acquires;
        if is_left && ends.saturating_duration_since(last) >= needed + steps {
            faults.push(format!("messages were left at {last:?}, and the time ends at {ends:?}"));
        }
        faults
    }

    fn message(&self, number: u64, groups: u64) -> Message {
        let mut message = Message::new(number.to_string(), "a payment");
        if self.reads.is_some() {
            set_pointer(&mut message, BUCKET, &number.to_string());
            message.attributes.insert("Idempotency-Key".to_owned(), (&*message.id).into());
        }
        let queue = if self.is_fifo { "payments.fifo" } else { "payments" };
        message.queue_arn = Some(format!("arn:aws:sqs:eu-central-1:123456789012:{queue}"));
        message.group_id = self.is_fifo.then(|| (number % groups).to_string());
        message
    }
}
