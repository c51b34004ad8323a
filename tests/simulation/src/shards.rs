//! Batches on a store of three parts, which fail separately as the shards of a cluster do: one responds, one hangs for
//! longer than the batch, and one for some seconds. Acquires without a reply are executed: docs/faults.md.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use harness::event::set_pointer;
use harness::parts::{NO_REPLY, Parts};
use history::Rng;
use idempotent_sqs::idempotency::{Deadline, Location, ObjectStore};
use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, Message, MessageOutcome};
use idempotent_sqs::{Claim, Idempotency, Policy, work_fn};
use idempotent_sqs_postgres::{OptionalStore, OutagePolicy};
use idempotent_sqs_testing::MemoryObjectStore;
use tokio::time::Instant;

/// Number of batches of a seed.
const BATCHES: u64 = 6;

/// Time of a batch.
const TIME: Duration = Duration::from_mins(5);

/// The bucket of payloads.
const BUCKET: &str = "payloads";

/// What is wrong with the batches of this seed.
pub async fn run_on_shards(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x54a2);
    let mut wrong = Vec::new();
    for number in 0..BATCHES {
        let began = Instant::now();
        let until = [began, began + Duration::from_hours(1), began + rng.ms(1000..60_000)];
        let store = Arc::new(Parts::new(["0", "1", "2"], until));
        let objects = Arc::new(MemoryObjectStore::default());
        let mut settings = BatchSettings::default();
        settings.concurrency = NonZeroUsize::new(*rng.pick(&[2, 4, 16])).unwrap_or(NonZeroUsize::MIN);
        settings.extended_client.objects = Some(objects.clone());
        settings.extended_client.buckets = vec![BUCKET.to_owned()];
        let work = work_fn(|_: &Claim, _: &Message| async { Ok(Vec::new()) });
        // As for an inbox. It has the parts of its store.
        let optional = OptionalStore::new(Arc::clone(&store), OutagePolicy::Refuse);
        let batch = Batch::new(Idempotency::new(optional, Policy::default()), work, settings);
        let mut messages = Vec::new();
        for message in 0..rng.draw(3..60) {
            let id = format!("{}-{number}-{message}", rng.draw(0..3));
            messages.push(message_of(&id, rng.happens(300), &objects).await);
        }
        let Ok(reports) = batch.run(&messages, Deadline::within(TIME)).await else {
            if messages.iter().any(|message| message.id.starts_with('0')) {
                wrong.push(format!("the batch failed, although a part responds: {messages:?}"));
            }
            continue;
        };
        let of_part = |part: char| move |message: &&Message| message.id.starts_with(part);
        for (message, report) in messages.iter().zip(&reports).filter(|(message, _)| of_part('0')(message)) {
            if report.disposition != Disposition::Done {
                wrong.push(format!("{}: its part responds, and it is not done: {report:?}", message.id));
            }
        }
        // The release that the end of the outage met, and the next one.
        if let Some(at) = store.released().iter().find(|at| **at > until[2] + 2 * NO_REPLY) {
            wrong.push(format!("released {:?} after its part responded again: {messages:?}", *at - until[2]));
        }
        // The part responds again.
        let again: Vec<_> = messages.iter().filter(of_part('2')).cloned().collect();
        for report in batch.run(&again, Deadline::within(TIME)).await.unwrap_or_default() {
            if (report.outcome, report.attempts) != (MessageOutcome::Acquired, Some(1)) {
                wrong.push(format!("an acquire without a reply was not released: {report:?}"));
            }
        }
    }
    wrong
}

/// A message whose key begins with its part.
async fn message_of(id: &str, is_in_s3: bool, objects: &MemoryObjectStore) -> Message {
    let mut message = Message::new(id, "a payment");
    message.attributes.insert("Idempotency-Key".to_owned(), id.into());
    if is_in_s3 {
        let location = Location { bucket: BUCKET.to_owned(), name: id.to_owned() };
        objects.put(&location, b"a payment".to_vec()).await.expect("it is in memory");
        set_pointer(&mut message, BUCKET, id);
    }
    message
}
