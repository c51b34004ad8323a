//! Batches with equal messages, of which some have their payload in S3: docs/faults.md, rows 37 and 43. Neither the store
//! nor S3 has faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use harness::event::set_pointer;
use history::Rng;
use idempotent_sqs::idempotency::{Deadline, Location, ObjectError, ObjectStore};
use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, KeySource, Message, MessageOutcome, MessageReport};
use idempotent_sqs::{Claim, Idempotency, MemoryStore, Policy, WorkError, work_fn};
use tokio::time::sleep;

use crate::lock;

/// Number of batches of a seed.
const BATCHES: usize = 30;

/// Longer than any batch takes.
const TIME: Duration = Duration::from_mins(10);

/// How the work of a payload ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Done,
    Retryable,
    Uncertain,
    Permanently,
}

/// A message of a batch.
#[derive(Debug)]
struct Sent {
    id: String,
    /// The number of its payload, whose key is in it.
    payload: usize,
    is_in_s3: bool,
    /// Its group, or a number of its own on a standard queue.
    group: usize,
}

/// The objects, each of which takes a while.
#[derive(Debug)]
struct Objects(Mutex<Rng>);

/// What is wrong with the batches of this seed.
pub async fn run_equal_messages(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0xe0a1);
    let mut wrong = Vec::new();
    for _ in 0..BATCHES {
        wrong.extend(wrong_batch(rng).await);
    }
    wrong
}

async fn wrong_batch(rng: &mut Rng) -> Option<String> {
    let (is_fifo, payloads, groups) = (rng.happens(600), rng.draw(1..5), rng.draw(1..4));
    let in_s3 = *rng.pick(&[0, 500, 1000]);
    let number = |number: u64| usize::try_from(number).unwrap_or_default();
    let sent: Vec<_> = (0..rng.draw(2..11))
        .map(|message| {
            let group = if is_fifo { rng.draw(0..groups) } else { message };
            let (payload, is_in_s3) = (number(rng.draw(0..payloads)), rng.happens(in_s3));
            Sent { id: format!("m{message}"), payload, is_in_s3, group: number(group) }
        })
        .collect();
    let choices = [Ends::Done, Ends::Done, Ends::Retryable, Ends::Uncertain, Ends::Permanently];
    let ends: Vec<_> = (0..payloads).map(|_| *rng.pick(&choices)).collect();
    let (runs, plan, takes) = (Arc::new(Mutex::new(Vec::new())), ends.clone(), rng.ms(0..100));
    let begun = Arc::clone(&runs);
    let work = work_fn(move |claim: &Claim, message: &Message| {
        lock(&begun).push(message.id.clone());
        let payload = plan.iter().enumerate().find(|(payload, _)| key(*payload) == claim.key().as_str());
        let ends = payload.map(|(_, ends)| *ends);
        async move {
            sleep(takes).await;
            match ends.expect("each key is that of a payload") {
                Ends::Done => Ok(Vec::new()),
                Ends::Retryable => Err(WorkError::retryable("refused")),
                Ends::Uncertain => Err(WorkError::uncertain("no answer")),
                Ends::Permanently => Err(WorkError::permanent("rejected")),
            }
        }
    });
    let mut settings = BatchSettings::default();
    settings.keys = vec![KeySource::Body("/id".to_owned())];
    settings.concurrency = rng.pick(&[1, 2, 4, 10]).to_owned().try_into().unwrap_or(settings.concurrency);
    settings.extended_client.objects = Some(Arc::new(Objects(Mutex::new(rng.fork()))));
    settings.extended_client.buckets = vec!["payloads".to_owned()];
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), work, settings);
    let messages: Vec<_> = sent.iter().map(|sent| sent.message(is_fifo)).collect();
    let reports = batch.run(&messages, Deadline::within(TIME)).await.expect("the store is in memory");
    let runs = lock(&runs).clone();
    let why = wrong_report(&sent, &ends, &reports, &runs)?;
    Some(format!("{why}: {sent:?}, {ends:?}, runs of {runs:?}: {reports:#?}"))
}

/// Each payload runs once, and all its messages that are not held are done, or none is. A message is held if an earlier
/// one of its group is delivered again: it does not run, and is delivered again too.
fn wrong_report(sent: &[Sent], ends: &[Ends], reports: &[MessageReport], runs: &[String]) -> Option<String> {
    for (at, (message, report)) in sent.iter().zip(reports).enumerate() {
        let before = || sent.iter().zip(reports).take(at).filter(|(other, _)| other.group == message.group);
        let is_held = before().any(|(_, other)| other.disposition != Disposition::Done);
        let ran = runs.iter().filter(|run| **run == message.id).count();
        let is_done = report.disposition == Disposition::Done;
        let of_payload =
            sent.iter().filter(|other| other.payload == message.payload && runs.contains(&other.id)).count();
        let is_right = if is_held {
            report.outcome == MessageOutcome::NotProcessed && !is_done && ran == 0
        } else {
            let outcome = if ran == 1 { MessageOutcome::Acquired } else { MessageOutcome::InBatchDuplicate };
            report.outcome == outcome && is_done == (ends[message.payload] == Ends::Done) && of_payload == 1
        };
        if !is_right {
            return Some(format!("{} is {}", message.id, report.outcome.as_str()));
        }
    }
    None
}

fn key(payload: usize) -> String {
    format!("pay_{payload}")
}

fn body(payload: &str) -> String {
    format!(r#"{{"id":"{payload}"}}"#)
}

impl Sent {
    fn message(&self, is_fifo: bool) -> Message {
        let mut message = Message::new(&self.id, body(&key(self.payload)));
        if self.is_in_s3 {
            set_pointer(&mut message, "payloads", &key(self.payload));
        }
        let queue = if is_fifo { "payments.fifo" } else { "payments" };
        message.queue_arn = Some(format!("arn:aws:sqs:eu-central-1:123456789012:{queue}"));
        message.group_id = is_fifo.then(|| self.group.to_string());
        message
    }
}

impl ObjectStore for Objects {
    fn get<'a>(&'a self, location: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        let takes = lock(&self.0).ms(0..100);
        Box::pin(async move {
            sleep(takes).await;
            Ok(body(&location.name).into_bytes())
        })
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        unreachable!("no result is kept")
    }
}
