//! How long a payload is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, pending};
use tokio::time::Instant;

use idempotent_sqs::idempotency::{
    AcquireRequest, Claim, Deadline, Idempotency, Location, ObjectError, ObjectStore, OwnRecord, Policy,
    RecordedAttempt, Work, WorkError,
};
use idempotent_sqs::sqs::{Batch, Disposition, Message};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, MemoryObjectStore, StoreCall};

use super::{Seen, outcomes, pointing, with_payloads_in};

/// An object store that does not answer.
#[derive(Debug)]
struct SilentObjects;

impl ObjectStore for SilentObjects {
    fn get<'a>(&'a self, _: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(pending())
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_payload_is_waited_for_ten_seconds_and_not_beyond_the_time_for_work() {
    let settings = with_payloads_in(Arc::new(SilentObjects));
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), Seen::default(), settings);
    // One second of an invocation is reserved for settling.
    for (remaining_s, expected_s) in [(60, 10), (4, 3)] {
        let started = Instant::now();
        let reports = batch.run(&[pointing("m1", "one")], Deadline::within(Duration::from_secs(remaining_s))).await;
        let (waited, expected) = (started.elapsed(), Duration::from_secs(expected_s));
        assert!((expected..expected + Duration::from_millis(10)).contains(&waited), "{waited:?}, not {expected:?}");
        let reports = reports.unwrap();
        assert_eq!(outcomes(&reports), ["UNREADABLE"]);
        assert!(matches!(reports[0].disposition, Disposition::Redeliver { after: Some(_) }), "{reports:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_s3_does_not_reply_messages_without_a_payload_there_are_processed() {
    let work = Seen::default();
    let settings = with_payloads_in(Arc::new(SilentObjects));
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let mut messages: Vec<_> = (0..48).map(|n| pointing(&format!("m{n}"), "one")).collect();
    messages.extend((48..100).map(|n| Message::new(format!("m{n}"), n.to_string())));
    let reports = batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
    assert!(reports[..48].iter().all(|report| report.outcome.as_str() == "UNREADABLE"), "{reports:?}");
    assert!(reports[48..].iter().all(|report| report.disposition == Disposition::Done), "{reports:?}");
}

/// A work whose receiver is unavailable in its first run.
#[derive(Default)]
struct UnavailableOnce(AtomicBool);

impl Work<Message> for UnavailableOnce {
    async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        if self.0.swap(true, Ordering::Relaxed) { Ok(Vec::new()) } else { Err(WorkError::unavailable("no connection")) }
    }
}

/// One message at a time is sent to a receiver that was unavailable.
#[tokio::test(start_paused = true)]
async fn while_s3_does_not_reply_a_receiver_that_was_unavailable_gets_a_message_without_a_payload_there() {
    let settings = with_payloads_in(Arc::new(SilentObjects));
    let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    let batch = Batch::new(idempotency, UnavailableOnce::default(), settings);
    batch.run(&[Message::new("m0", "a payment")], Deadline::within(Duration::from_secs(30))).await.unwrap();
    let mut messages: Vec<_> = (1..5).map(|n| pointing(&format!("m{n}"), "one")).collect();
    messages.extend((5..11).map(|n| Message::new(format!("m{n}"), n.to_string())));
    let reports = batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
    assert!(reports[4..].iter().all(|report| report.disposition == Disposition::Done), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_look_up_of_a_message_without_a_payload_holds_its_key_for_five_seconds_and_the_grace() {
    let objects = Arc::new(MemoryObjectStore::default());
    let location = Location { bucket: "payloads".into(), name: "one".into() };
    objects.put(&location, b"12.50 EUR".to_vec()).await.unwrap();
    let store = FaultyStore::new(MemoryStore::default());
    // The first message cannot record that it has failed.
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let batch = Batch::new(Idempotency::new(store, Policy::default()), Seen::default(), with_payloads_in(objects));
    let messages = [pointing("m1", "missing"), pointing("m2", "one")];
    let reports = batch.run(&messages, Deadline::within(Duration::from_secs(900))).await.unwrap();
    assert_eq!(reports[1].outcome.as_str(), "CONFLICT", "{reports:?}");
    let Disposition::Redeliver { after: Some(after) } = reports[1].disposition else { panic!("{reports:?}") };
    assert!((6..10).contains(&after.as_secs()), "{after:?}");
}

/// A work whose own record does not answer.
struct SilentRecord;

impl Work<Message> for SilentRecord {
    async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        Ok(Vec::new())
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<Message>> {
        Some(self)
    }
}

impl OwnRecord<Message> for SilentRecord {
    fn attempt<'a>(&'a self, _: &'a Claim, _: &'a Message) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(pending())
    }

    fn recorded<'a>(&'a self, _: &'a AcquireRequest, _: Instant) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_up_of_a_message_without_a_payload_ends_before_its_invocation() {
    let settings = with_payloads_in(Arc::new(MemoryObjectStore::default()));
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), SilentRecord, settings);
    let deadline = Deadline::within(Duration::from_secs(2));
    batch.run(&[pointing("m1", "missing")], deadline).await.unwrap();
    assert!(Instant::now() <= deadline.work + Duration::from_millis(10));
}
