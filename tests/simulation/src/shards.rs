//! Batches on a store of three parts, which fail separately as the shards of a cluster do: one responds, one hangs for
//! longer than the batch, and one for some seconds. Acquires without a reply are executed: docs/faults.md.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::Rng;
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Deadline, Failure, Location, ObjectStore, Settled, StoreError, StoredResult,
};
use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, Message, MessageOutcome};
use idempotent_sqs::{Claim, Idempotency, Key, MemoryStore, Policy, Store, work_fn};
use idempotent_sqs_testing::MemoryObjectStore;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::lock;

/// Number of batches of a seed.
const BATCHES: u64 = 6;

/// Time of a batch.
const TIME: Duration = Duration::from_mins(5);

/// How long a call takes that has no reply.
const NO_REPLY: Duration = Duration::from_secs(1);

/// The bucket of payloads.
const BUCKET: &str = "payloads";

/// What is wrong with the batches of this seed.
pub async fn run_on_shards(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x54a2);
    let mut wrong = Vec::new();
    for number in 0..BATCHES {
        let began = Instant::now();
        let until = [began, began + Duration::from_hours(1), began + rng.ms(1000..60_000)];
        let store = Arc::new(Parts { records: MemoryStore::default(), until, released: Mutex::default() });
        let objects = Arc::new(MemoryObjectStore::default());
        let mut settings = BatchSettings::default();
        settings.concurrency = NonZeroUsize::new(*rng.pick(&[2, 4, 16])).unwrap_or(NonZeroUsize::MIN);
        settings.extended_client.objects = Some(objects.clone());
        settings.extended_client.buckets = vec![BUCKET.to_owned()];
        let work = work_fn(|_: &Claim, _: &Message| async { Ok(Vec::new()) });
        let batch = Batch::new(Idempotency::new(Arc::clone(&store), Policy::default()), work, settings);
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
        if let Some(at) = lock(&store.released).iter().find(|at| **at > until[2] + 2 * NO_REPLY) {
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
        let pointer = json!({ "s3BucketName": BUCKET, "s3Key": id });
        message.body = Some(json!(["software.amazon.payloadoffloading.PayloadS3Pointer", pointer]).to_string());
        message.attributes.insert("ExtendedPayloadSize".to_owned(), "300000".into());
    }
    message
}

/// A store of three parts. A key begins with the number of its own.
struct Parts {
    records: MemoryStore,
    /// Until when each part executes acquires without a reply, and nothing else.
    until: [Instant; 3],
    /// When records of acquires without a reply were released.
    released: Mutex<Vec<Instant>>,
}

impl Parts {
    async fn reply(&self, key: &Key) -> Result<(), StoreError> {
        if Instant::now() < self.until[self.part(key)] {
            sleep(NO_REPLY).await;
            return Err(StoreError::unavailable("no reply"));
        }
        Ok(())
    }
}

impl Store for Parts {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let key = request.key.clone();
        let answer = self.records.acquire(request).await;
        self.reply(&key).await?;
        answer
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.reply(claim.key()).await?;
        self.records.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.reply(claim.key()).await?;
        self.records.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.reply(&request.key).await?;
        lock(&self.released).push(Instant::now());
        self.records.release(request, claim).await
    }

    fn part(&self, key: &Key) -> usize {
        ["0", "1", "2"].iter().position(|part| key.as_str().starts_with(part)).unwrap_or_default()
    }
}
