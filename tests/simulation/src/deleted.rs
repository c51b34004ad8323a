//! Messages whose payload in S3 was deleted or is no text, with several lists of keys. A failure is recorded only under a
//! key that the payload would not replace, and its dead letter names no other: an envelope in it has an id, and may have
//! attributes that the message lacks.

use std::sync::Arc;
use std::time::Duration;

use harness::event::set_pointer;
use history::Rng;
use idempotent_sqs::idempotency::{Deadline, Location, ObjectStore as _};
use idempotent_sqs::sqs::{Batch, BatchSettings, KeySource, Message};
use idempotent_sqs::{Claim, Idempotency, MemoryStore, Policy, work_fn};
use idempotent_sqs_testing::MemoryObjectStore;

/// Number of messages of a seed.
const MESSAGES: u64 = 12;

/// The sources of keys.
const SOURCES: [&str; 4] = ["attribute:key", "deduplicationId", "body:/id", "messageId"];

/// What is wrong with the messages of this seed.
pub async fn deliver_deleted(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0xde1e);
    let mut wrong = Vec::new();
    for number in 0..MESSAGES {
        let mut sources: Vec<&str> = (0..rng.draw(1..4)).map(|_| *rng.pick(&SOURCES)).collect();
        sources.push("messageId");
        let has = [rng.happens(500), rng.happens(500)];
        // The first source that has a value, or may have one in the payload.
        let first = sources.iter().find(|source| **source != SOURCES[1] || has[1]);
        let is_known = match first {
            Some(&"attribute:key") => has[0],
            Some(source) => *source == SOURCES[1],
            None => false,
        };
        let mut message = Message::new(format!("m{number}"), "");
        // A later setting may make a text of it.
        let is_text = rng.happens(700);
        set_pointer(&mut message, "payloads", if is_text { "none" } else { "bytes" });
        if has[0] {
            message.attributes.insert("key".to_owned(), "a key".into());
        }
        if has[1] {
            message.queue_arn = Some("arn:aws:sqs:eu-central-1:123456789012:payments.fifo".to_owned());
            (message.group_id, message.deduplication_id) = (Some("a-group".to_owned()), Some("an-id".to_owned()));
        }
        let mut settings = BatchSettings::default();
        settings.keys = sources.iter().map(|source| source.parse::<KeySource>().expect("it is a source")).collect();
        let objects = MemoryObjectStore::default();
        let bytes = Location { bucket: "payloads".to_owned(), name: "bytes".to_owned() };
        objects.put(&bytes, vec![0xff]).await.expect("it keeps each object");
        settings.extended_client.objects = Some(Arc::new(objects));
        settings.extended_client.buckets = vec!["payloads".to_owned()];
        let work = work_fn(|_: &Claim, _: &Message| async { Ok(Vec::new()) });
        let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), work, settings);
        let reports = batch.run(&[message], Deadline::within(Duration::from_mins(1))).await;
        let is_right = reports.as_ref().is_ok_and(|reports| {
            (reports[0].failed_permanently, reports[0].key.is_some()) == (is_known && is_text, is_known)
        });
        if !is_right {
            wrong.push(format!("{sources:?}, attribute and deduplicationId {has:?}: {reports:?}"));
        }
    }
    wrong
}
