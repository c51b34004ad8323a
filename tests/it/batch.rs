//! `sqs::Batch`: claims, runs and reports the messages of one event.

mod concurrency;
mod dead_letters;
mod duplicates;
mod order;
mod outcomes;
mod own_record;
mod panics;
mod parts;
mod receivers;
mod redelivery;
mod store_failures;
mod time;

use std::num::NonZeroUsize;
use std::time::{Duration, SystemTime};

use harness::with;
use idempotent_sqs::idempotency::{Deadline, Idempotency, Policy, Store, Work};
use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, KeySource, Message, MessageReport};

/// Remaining time of the invocation.
const TIME: Duration = Duration::from_secs(30);

/// Whether the message is redelivered after the first step of the backoff: 2 seconds, of which half is jitter.
fn has_first_backoff(disposition: Disposition) -> bool {
    let (min, max) = (Duration::from_secs(1), Duration::from_secs(2));
    matches!(disposition, Disposition::Redeliver { after: Some(after) } if (min..=max).contains(&after))
}

/// The message is redelivered after the queue's own visibility timeout.
const QUEUE_TIMEOUT: Disposition = Disposition::Redeliver { after: None };

/// A message of a standard queue, with its key in the body.
fn message(id: &str, key: &str) -> Message {
    with!(
        Message::default(),
        id = id.into(),
        body = Some(format!("{{\"key\":\"{key}\"}}")),
        queue_arn = Some("arn:aws:sqs:eu-central-1:123456789012:payments".into())
    )
}

/// A message of a FIFO queue.
fn in_group(group: &str, id: &str, key: &str) -> Message {
    with!(
        message(id, key),
        group_id = Some(group.into()),
        queue_arn = Some("arn:aws:sqs:eu-central-1:123456789012:payments.fifo".into())
    )
}

/// Messages with different keys.
fn many(count: usize) -> Vec<Message> {
    (0..count).map(|n| message(&format!("m{n}"), &format!("pay_{n}"))).collect()
}

fn settings() -> BatchSettings {
    with!(BatchSettings::default(), keys = vec![KeySource::Body("/key".into())])
}

fn batch<S: Store, W: Work<Message>>(store: S, work: &W) -> Batch<S, &W> {
    Batch::new(Idempotency::new(store, Policy::default()), work, settings())
}

/// A batch that runs one message at a time.
fn one_by_one<S: Store, W: Work<Message>>(store: S, work: &W) -> Batch<S, &W> {
    let settings = with!(settings(), concurrency = NonZeroUsize::MIN);
    Batch::new(Idempotency::new(store, Policy::default()), work, settings)
}

async fn run<S: Store, W: Work<Message>>(batch: &Batch<S, W>, messages: &[Message]) -> Vec<MessageReport> {
    batch.run(messages, Deadline::within(TIME)).await.unwrap()
}

fn outcomes(reports: &[MessageReport]) -> Vec<&'static str> {
    reports.iter().map(|report| report.outcome.as_str()).collect()
}

fn dispositions(reports: &[MessageReport]) -> Vec<Disposition> {
    reports.iter().map(|report| report.disposition).collect()
}

/// The delay after which the message is redelivered.
fn delay(report: &MessageReport) -> Duration {
    match report.disposition {
        Disposition::Redeliver { after: Some(after) } => after,
        other => panic!("{other:?}"),
    }
}

fn since_1970_ms(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}
