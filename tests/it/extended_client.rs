//! Payloads that the SQS extended client libraries store in S3 (`sqs::extended_client`).

mod deadline;
mod nested;

use std::collections::HashMap;
use std::future::ready;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::sleep;

use harness::with;
use harness::work::RecordingWork;
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Deadline, Idempotency, Key, Location, ObjectError, ObjectStore, Policy,
    RecordedAttempt, Store, Work, WorkError,
};
use idempotent_sqs::sqs::{
    Batch, BatchSettings, DeadLetter, DeadLetterOutcome, DeadLetterQueue, Disposition, Envelopes, ExtendedClient,
    KeySource, Message, MessageAttribute, MessageReport, Payload,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, MemoryObjectStore, StoreCall};

/// Class name in a pointer of current client libraries.
const CURRENT: &str = "software.amazon.payloadoffloading.PayloadS3Pointer";
/// Class name in a pointer of older client libraries.
const LEGACY: &str = "com.amazon.sqs.javamessaging.MessageS3Pointer";

fn pointer(class: &str, name: &str) -> String {
    json!([class, { "s3BucketName": "payloads", "s3Key": name }]).to_string()
}

/// A message that points to this object, with its key in an attribute.
fn pointing(id: &str, name: &str) -> Message {
    with!(
        Message::default(),
        id = id.into(),
        body = Some(pointer(CURRENT, name)),
        attributes = attributes(&[("ExtendedPayloadSize", "300000"), ("Idempotency-Key", "pay_1")])
    )
}

fn attributes(attributes: &[(&str, &str)]) -> HashMap<String, MessageAttribute> {
    attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect()
}

fn in_sns(message: &str, attribute: &str) -> Value {
    json!({
        "Type": "Notification",
        "MessageId": "sns-1",
        "TopicArn": "arn:aws:sns:eu-central-1:123456789012:payments",
        "Message": message,
        "Timestamp": "2026-11-19T09:31:05.600Z",
        "MessageAttributes": { attribute: { "Type": "Number", "Value": "300000" } },
    })
}

/// A work that records the bodies it receives, and checks that the attribute of the offloaded size is removed.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Work<Message> for Seen {
    async fn run(&self, _claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        assert!(!message.attributes.contains_key("ExtendedPayloadSize"), "the body is no longer a pointer");
        self.0.lock().unwrap().push(message.body().to_owned());
        Ok(Vec::new())
    }
}

/// The settings of a batch that reads the payloads of one bucket from these objects.
fn with_payloads_in(objects: Arc<dyn ObjectStore>) -> BatchSettings {
    let extended_client = with!(ExtendedClient::default(), objects = Some(objects), buckets = vec!["payloads".into()]);
    with!(BatchSettings::default(), extended_client = extended_client)
}

#[derive(Default)]
struct Fixture {
    objects: Arc<MemoryObjectStore>,
    store: MemoryStore,
    work: Seen,
    keys: Option<Vec<KeySource>>,
}

impl Fixture {
    async fn put(&self, name: &str, payload: &str) {
        let location = Location { bucket: "payloads".into(), name: name.into() };
        self.objects.put(&location, payload.into()).await.unwrap();
    }

    async fn run(&self, messages: &[Message]) -> Vec<MessageReport> {
        self.run_with(messages, Envelopes::Auto).await
    }

    async fn run_with(&self, messages: &[Message], envelopes: Envelopes) -> Vec<MessageReport> {
        let mut settings = with!(with_payloads_in(self.objects.clone()), envelopes = envelopes);
        settings.keys = self.keys.clone().unwrap_or(settings.keys);
        let batch = Batch::new(Idempotency::new(&self.store, Policy::default()), &self.work, settings);
        batch.run(messages, Deadline::within(Duration::from_secs(30))).await.unwrap()
    }

    fn seen(&self) -> Vec<String> {
        self.work.0.lock().unwrap().clone()
    }
}

fn outcomes(reports: &[MessageReport]) -> Vec<&'static str> {
    reports.iter().map(|report| report.outcome.as_str()).collect()
}

#[tokio::test]
async fn equal_payloads_in_two_objects_are_one_work_and_another_payload_is_a_mismatch() {
    let fixture = Fixture::default();
    fixture.put("one", r#"{"amount":1250}"#).await;
    fixture.put("two", r#"{ "amount": 1250.0 }"#).await;
    fixture.put("three", r#"{"amount":99}"#).await;
    let reports = fixture.run(&[pointing("m1", "one"), pointing("m2", "two")]).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "IN_BATCH_DUPLICATE"]);
    assert_eq!(outcomes(&fixture.run(&[pointing("m3", "two")]).await), ["DUPLICATE"]);
    assert_eq!(outcomes(&fixture.run(&[pointing("m4", "three")]).await), ["MISMATCH"]);
    assert_eq!(fixture.seen(), [r#"{"amount":1250}"#]);
}

#[tokio::test]
async fn a_payload_in_s3_is_an_in_batch_duplicate_of_the_same_payload_in_a_message() {
    let fixture = Fixture { keys: Some(vec![KeySource::Body("/paymentId".into())]), ..Fixture::default() };
    let payment = r#"{"paymentId":"pay_1"}"#;
    fixture.put("one", payment).await;
    let plain = with!(Message::default(), id = "m2".into(), body = Some(payment.into()));
    let reports = fixture.run(&[pointing("m1", "one"), plain]).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "IN_BATCH_DUPLICATE"]);
    assert_eq!(reports[0].key.as_ref().unwrap().as_str(), "pay_1");
}

/// A batch on this store with a dead-letter queue. Returns the report on the message, and the letters that were sent.
async fn letters(
    store: &MemoryStore,
    objects: Arc<dyn ObjectStore>,
    buckets: &[&str],
    message: &Message,
) -> (MessageReport, Vec<DeadLetter>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let letters = Arc::clone(&sent);
    let queue = DeadLetterQueue::with_replacement("https://sqs/1/dead", move |message| {
        let letter = message.attributes[DeadLetter::ATTRIBUTE].text().unwrap();
        letters.lock().unwrap().push(serde_json::from_str(letter).unwrap());
        Ok(())
    });
    let buckets = buckets.iter().map(|bucket| (*bucket).to_owned()).collect();
    let extended_client = with!(ExtendedClient::default(), objects = Some(objects), buckets = buckets);
    let settings = with!(BatchSettings::default(), extended_client = extended_client, dead_letter_queue = Some(queue));
    let batch = Batch::new(Idempotency::new(store, Policy::default()), Seen::default(), settings);
    let reports = batch.run(std::slice::from_ref(message), Deadline::within(Duration::from_secs(30))).await.unwrap();
    let [report] = reports.try_into().unwrap();
    let sent = sent.lock().unwrap().clone();
    (report, sent)
}

#[tokio::test]
async fn a_payload_that_is_missing_or_not_allowed_is_an_unreadable_dead_letter_with_its_key() {
    let elsewhere = json!([CURRENT, { "s3BucketName": "other", "s3Key": "one" }]).to_string();
    for message in [pointing("m1", "missing"), with!(pointing("m1", "one"), body = Some(elsewhere))] {
        let store = MemoryStore::default();
        let (report, sent) = letters(&store, Arc::new(MemoryObjectStore::default()), &["payloads"], &message).await;
        let [letter] = sent.try_into().unwrap();
        assert_eq!((report.disposition, letter.outcome), (Disposition::DeadLetter, DeadLetterOutcome::Unreadable));
        assert_eq!(letter.key.as_deref(), Some("pay_1"));
    }
}

#[tokio::test]
async fn a_message_whose_work_is_done_is_a_duplicate_also_if_its_payload_can_no_longer_be_read() {
    let fixture = Fixture::default();
    fixture.put("one", "payload").await;
    let message = pointing("m1", "one");
    assert_eq!(outcomes(&fixture.run(std::slice::from_ref(&message)).await), ["ACQUIRED"]);
    let objects: Arc<dyn ObjectStore> = Arc::clone(&fixture.objects) as _;
    let (report, sent) = letters(&fixture.store, objects, &[], &message).await;
    assert_eq!((report.outcome.as_str(), sent.len()), ("DUPLICATE", 0));
}

#[tokio::test]
async fn a_message_that_another_owner_processes_is_in_conflict_also_if_its_payload_cannot_be_read_here() {
    let (store, message) = (MemoryStore::default(), pointing("m1", "one"));
    let request = AcquireRequest::new(Key::new("pay_1").unwrap());
    assert!(matches!(store.acquire(request).await.unwrap(), Acquire::Acquired(_)));
    let (report, sent) = letters(&store, Arc::new(MemoryObjectStore::default()), &[], &message).await;
    assert_eq!((report.outcome.as_str(), sent.len()), ("CONFLICT", 0));
}

#[tokio::test]
async fn a_payload_that_is_not_allowed_runs_once_the_setting_is_corrected() {
    let fixture = Fixture::default();
    fixture.put("one", "payload").await;
    let message = pointing("m1", "one");
    let objects: Arc<dyn ObjectStore> = Arc::clone(&fixture.objects) as _;
    letters(&fixture.store, objects, &[], &message).await;
    let reports = fixture.run(std::slice::from_ref(&message)).await;
    assert_eq!((outcomes(&reports), reports[0].attempts), (vec!["ACQUIRED"], Some(1)));
}

/// An object store that is unavailable.
#[derive(Debug)]
struct UnavailableObjects;

impl ObjectStore for UnavailableObjects {
    fn get<'a>(&'a self, _: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(async { Err(ObjectError::unavailable("no connection")) })
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async { Err(ObjectError::unavailable("no connection")) })
    }
}

#[tokio::test]
async fn while_s3_is_unavailable_a_message_is_backed_off_and_is_no_dead_letter() {
    let message = with!(pointing("m1", "one"), receive_count = Some(9));
    let (report, sent) = letters(&MemoryStore::default(), Arc::new(UnavailableObjects), &["payloads"], &message).await;
    let steps = Duration::from_secs(256)..=Duration::from_secs(512);
    assert!(
        matches!(report.disposition, Disposition::Redeliver { after: Some(after) } if steps.contains(&after)),
        "{report:?}"
    );
    assert!(sent.is_empty());
}

/// Objects of which `bad` panics when it is read.
#[derive(Debug)]
struct PanickingObjects;

impl ObjectStore for PanickingObjects {
    fn get<'a>(&'a self, location: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(async {
            assert!(location.name != "bad", "read");
            Ok(b"a payload".to_vec())
        })
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(ready(Ok(())))
    }
}

#[tokio::test]
async fn a_panic_of_the_object_store_concerns_only_its_own_message() {
    let keyed =
        |id: &str, name: &str| with!(pointing(id, name), attributes = attributes(&[("ExtendedPayloadSize", "9")]));
    let (store, work) = (MemoryStore::default(), Seen::default());
    let settings = with_payloads_in(Arc::new(PanickingObjects));
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    let messages = [keyed("m1", "good"), keyed("m2", "bad"), keyed("m3", "good")];
    let reports = batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
    assert_eq!(outcomes(&reports), ["ACQUIRED", "UNREADABLE", "ACQUIRED"]);
    assert!(matches!(reports[1].disposition, Disposition::Redeliver { after: Some(_) }), "{:?}", reports[1]);
}

/// Objects that count how often they are read. Reads of `hangs` have no end.
#[derive(Debug, Default)]
struct CountedObjects {
    reads: AtomicUsize,
}

impl ObjectStore for CountedObjects {
    fn get<'a>(&'a self, location: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if location.name == "hangs" {
                std::future::pending::<()>().await;
            }
            Ok(b"payload".into())
        })
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A work whose receiver is unavailable in its first run, and then hangs.
#[derive(Default)]
struct HangsAfterAnOutage {
    runs: AtomicUsize,
}

impl Work<Message> for HangsAfterAnOutage {
    async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        match self.runs.fetch_add(1, Ordering::Relaxed) {
            0 => Err(WorkError::unavailable("no connection")),
            _ => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_payloads_are_held_in_memory_for_a_receiver_that_hangs() {
    let objects = Arc::new(CountedObjects::default());
    let settings = with_payloads_in(objects.clone());
    let work = HangsAfterAnOutage::default();
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let messages: Vec<_> = (0..20)
        .map(|n| {
            let key = attributes(&[("ExtendedPayloadSize", "300000"), ("Idempotency-Key", &format!("pay_{n}"))]);
            with!(pointing(&format!("m{n}"), "one"), attributes = key)
        })
        .collect();
    batch.run(&messages[..1], Deadline::within(Duration::from_secs(30))).await.unwrap();
    batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
    assert_eq!((objects.reads.load(Ordering::Relaxed), work.runs.load(Ordering::Relaxed)), (2, 2));
}

/// A work whose receiver `first` behaves as [`HangsAfterAnOutage`]. The others respond after a second.
#[derive(Default)]
struct FirstHangs(HangsAfterAnOutage);

impl Work<Message> for FirstHangs {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        if self.receiver(message) == "first" {
            return self.0.run(claim, message).await;
        }
        sleep(Duration::from_secs(1)).await;
        Ok(Vec::new())
    }

    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        message.attributes["Receiver"].text().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_delays_no_payload_in_s3_for_another_one() {
    let settings = with_payloads_in(Arc::new(CountedObjects::default()));
    let settings = with!(settings, concurrency = NonZeroUsize::MIN);
    let batch =
        Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), FirstHangs::default(), settings);
    let messages = of_three_receivers(|_| "one");
    let time = Duration::from_secs(30);
    batch.run(&messages[..1], Deadline::within(time)).await.unwrap();
    // The message to `first` is started after one to `second`, and before another one to `second`.
    let messages = [3, 4, 7].map(|n| messages[n].clone());
    let reports = batch.run(&messages, Deadline::within(time)).await.unwrap();
    assert!(reports[1..].iter().all(|report| report.disposition == Disposition::Done), "{reports:?}");
}

/// A work whose receivers are unavailable in their first run, and answer the second.
#[derive(Default)]
struct RecoversOnce {
    runs: Mutex<HashMap<String, usize>>,
    /// Whether its receivers hang later. Otherwise they are unavailable.
    then_hangs: bool,
}

impl Work<Message> for RecoversOnce {
    async fn run(&self, _claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let runs = {
            let mut runs = self.runs.lock().unwrap();
            let runs = runs.entry(self.receiver(message).to_owned()).or_default();
            *runs += 1;
            *runs
        };
        match runs {
            2 => Ok(Vec::new()),
            3.. if self.then_hangs => std::future::pending().await,
            _ => Err(WorkError::unavailable("no connection")),
        }
    }

    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        message.attributes["Receiver"].text().unwrap()
    }
}

/// Messages to three receivers, with these payloads.
fn of_three_receivers(payload: impl Fn(usize) -> &'static str) -> Vec<Message> {
    let message = |n: usize| {
        let (key, receiver) = (format!("pay_{n}"), ["first", "second", "third"][n % 3]);
        let attributes =
            attributes(&[("ExtendedPayloadSize", "300000"), ("Idempotency-Key", &key), ("Receiver", receiver)]);
        with!(pointing(&format!("m{n}"), payload(n)), attributes = attributes)
    };
    (0..30).map(message).collect()
}

#[tokio::test(start_paused = true)]
async fn no_more_payloads_than_the_concurrency_are_in_memory_after_several_receivers_recovered() {
    let objects = Arc::new(CountedObjects::default());
    let settings = with!(with_payloads_in(objects.clone()), concurrency = NonZeroUsize::new(2).unwrap());
    let work = RecoversOnce { then_hangs: true, ..RecoversOnce::default() };
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let messages = of_three_receivers(|_| "one");
    batch.run(&messages[..3], Deadline::within(Duration::from_secs(30))).await.unwrap();
    batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
    // Each receiver was called twice, and two messages hang.
    assert_eq!(objects.reads.load(Ordering::Relaxed), 2 * 3 + 2);
}

#[tokio::test(start_paused = true)]
async fn no_more_payloads_than_the_concurrency_are_read_after_receivers_that_recovered_are_unavailable_again() {
    let objects = Arc::new(CountedObjects::default());
    let settings = with!(with_payloads_in(objects.clone()), concurrency = NonZeroUsize::MIN);
    let work = RecoversOnce::default();
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let messages = of_three_receivers(|n| if n < 6 { "one" } else { "hangs" });
    batch.run(&messages[..3], Deadline::within(Duration::from_secs(5))).await.unwrap();
    batch.run(&messages, Deadline::within(Duration::from_secs(5))).await.unwrap();
    // Each receiver was called twice, and one a third time. Then one read hangs until the deadline.
    assert_eq!(objects.reads.load(Ordering::Relaxed), 2 * 3 + 1 + 1);
}

#[tokio::test]
async fn pointers_of_current_and_older_clients_are_followed() {
    let fixture = Fixture::default();
    fixture.put("one", "payload").await;
    let legacy = with!(
        pointing("m1", "one"),
        body = Some(pointer(LEGACY, "one")),
        attributes = attributes(&[("SQSLargePayloadSize", "300000"), ("Idempotency-Key", "pay_1")])
    );
    assert_eq!(outcomes(&fixture.run(&[legacy, pointing("m2", "one")]).await), ["ACQUIRED", "IN_BATCH_DUPLICATE"]);
    assert_eq!(fixture.seen(), ["payload"]);
}

#[tokio::test]
async fn an_offloaded_sns_message_is_delivered_in_its_envelope_as_if_it_had_fitted() {
    for attribute in ["ExtendedPayloadSize", "SQSLargePayloadSize"] {
        let fixture = Fixture::default();
        fixture.put("one", r#"{"amount":1250}"#).await;
        let mut body = in_sns(&pointer(CURRENT, "one"), attribute);
        body["MessageAttributes"]["currency"] = json!({ "Type": "String", "Value": "EUR" });
        let message = with!(Message::default(), id = "m1".into(), body = Some(body.to_string()));
        let reports = fixture.run(&[message]).await;
        assert_eq!(reports[0].key.as_ref().unwrap().as_str(), "sns-1");
        let received: Value = serde_json::from_str(&fixture.seen()[0]).unwrap();
        body["Message"] = r#"{"amount":1250}"#.into();
        body["MessageAttributes"].as_object_mut().unwrap().remove(attribute);
        assert_eq!(received, body);
    }
}

#[tokio::test]
async fn the_envelope_around_a_pointer_is_not_reformatted() {
    let fixture = Fixture { keys: Some(vec![KeySource::MessageId]), ..Fixture::default() };
    fixture.put("one", r#"{"amount":1250}"#).await;
    let more = r#""more":[12345678901234567.01,1e400,"\ud800"]"#;
    let body =
        in_sns(&pointer(CURRENT, "one"), "ExtendedPayloadSize").to_string().replacen('{', &format!("{{{more},"), 1);
    let message = with!(Message::default(), id = "m1".into(), body = Some(body));
    let reports = fixture.run(&[message]).await;
    assert_eq!(reports[0].key.as_ref().unwrap().as_str(), "sns-1");
    assert!(fixture.seen()[0].contains(more), "{}", fixture.seen()[0]);
}

#[tokio::test]
async fn a_payload_in_s3_may_be_in_an_envelope_and_a_second_pointer_is_not_followed() {
    let fixture = Fixture { keys: Some(vec![KeySource::MessageId]), ..Fixture::default() };
    fixture.put("one", &in_sns("payload", "none").to_string()).await;
    fixture.put("two", &pointer(CURRENT, "one")).await;
    let reports = fixture.run(&[pointing("m1", "one"), pointing("m2", "two")]).await;
    assert_eq!(reports[0].key.as_ref().unwrap().as_str(), "sns-1");
    assert_eq!(fixture.seen()[1], pointer(CURRENT, "one"));
}

#[tokio::test]
async fn a_message_whose_payload_is_not_found_fails_permanently_unless_it_is_a_duplicate() {
    let fixture = Fixture::default();
    fixture.put("one", "payload").await;
    assert_eq!(outcomes(&fixture.run(&[pointing("m1", "one")]).await), ["ACQUIRED"]);
    let reports = fixture.run(&[pointing("m1", "missing")]).await;
    assert_eq!((reports[0].outcome.as_str(), reports[0].disposition), ("DUPLICATE", Disposition::Done));

    let other = || {
        let mut other = pointing("m2", "missing");
        other.attributes.insert("Idempotency-Key".into(), "pay_2".into());
        other
    };
    let reports = fixture.run(&[other()]).await;
    assert_eq!((reports[0].outcome.as_str(), reports[0].failed_permanently), ("ACQUIRED", true));
    assert!(reports[0].reason.contains("no longer in S3"), "{}", reports[0].reason);
    assert_eq!(outcomes(&fixture.run(&[other()]).await), ["FAILED"]);
    // The failure is clean, so another message with its key and a payload runs.
    fixture.put("missing", "restored").await;
    let redriven = with!(other(), id = "m3".into());
    assert_eq!(outcomes(&fixture.run(&[redriven]).await), ["ACQUIRED"]);
    assert_eq!(fixture.seen(), ["payload", "restored"]);
}

#[tokio::test]
async fn a_payload_that_is_not_found_is_no_dead_letter_while_the_own_record_of_the_work_cannot_be_read() {
    let settings = with_payloads_in(Arc::new(MemoryObjectStore::default()));
    let work = RecordingWork::always(|| unreachable!("there is no payload"));
    work.set_record(Err(|| WorkError::unavailable("no connection to the database")));
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), work, settings);
    let reports = batch.run(&[pointing("m1", "missing")], Deadline::within(Duration::from_secs(30))).await.unwrap();
    assert!(matches!(reports[0].disposition, Disposition::Redeliver { after: Some(_) }), "{reports:?}");
    assert!(reports[0].dead_letter.is_none());
}

#[tokio::test]
async fn an_own_record_that_could_not_be_read_is_read_for_one_message_without_a_payload_of_a_later_batch() {
    let settings = with_payloads_in(Arc::new(MemoryObjectStore::default()));
    let work = RecordingWork::always(|| unreachable!("there is no payload"));
    work.set_record(Err(|| WorkError::unavailable("no connection to the database")));
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let messages = of_three_receivers(|_| "missing");
    batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
    work.take_reads();
    batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
    assert_eq!(work.take_reads(), 1);
}

/// As a row of an inbox that another transaction has locked.
#[tokio::test]
async fn a_payload_that_is_not_found_is_no_dead_letter_while_the_own_record_of_the_work_is_busy() {
    let settings = with_payloads_in(Arc::new(MemoryObjectStore::default()));
    let work = RecordingWork::always(|| unreachable!("there is no payload"));
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let run = async || {
        let deadline = Deadline::within(Duration::from_secs(30));
        batch.run(&[pointing("m1", "missing")], deadline).await.unwrap().remove(0)
    };
    work.set_record(Err(|| WorkError::busy("PostgreSQL returned error 55P03")));
    let report = run().await;
    assert!(report.dead_letter.is_none() && report.reason.contains("55P03"), "{report:?}");
    // The store says that it has failed, and the record is looked up before anything else.
    work.set_record(Ok(None));
    assert!(run().await.failed_permanently);
    work.set_record(Err(|| WorkError::busy("PostgreSQL returned error 55P03")));
    let report = run().await;
    assert!(report.dead_letter.is_none() && report.reason.contains("55P03"), "{report:?}");
}

/// The row of an inbox says that the work is done for another payload.
#[tokio::test]
async fn a_message_that_is_done_and_has_no_payload_does_not_make_another_payload_a_duplicate() {
    for has_failed in [false, true] {
        let objects = Arc::new(MemoryObjectStore::default());
        let location = Location { bucket: "payloads".into(), name: "another".into() };
        objects.put(&location, b"another payload".to_vec()).await.unwrap();
        let work = RecordingWork::always(|| Ok(RecordedAttempt::Mismatch));
        let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
        let batch = Batch::new(idempotency, &work, with_payloads_in(objects));
        let run = async |message| batch.run(&[message], Deadline::within(Duration::from_secs(30))).await.unwrap();
        if has_failed {
            assert!(run(pointing("m1", "missing")).await[0].failed_permanently);
        }
        work.set_record(Ok(Some(b"done".to_vec())));
        assert_eq!(outcomes(&run(pointing("m1", "missing")).await), ["DUPLICATE"]);
        assert_eq!(outcomes(&run(pointing("m2", "another")).await), ["MISMATCH"], "failed before: {has_failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_done_and_has_no_payload_holds_up_no_other_one_while_its_release_fails() {
    let store = FaultyStore::new(MemoryStore::default());
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let work = RecordingWork::always(|| unreachable!("there is no payload"));
    work.set_record(Ok(Some(b"done".to_vec())));
    let settings = with_payloads_in(Arc::new(MemoryObjectStore::default()));
    let settings = with!(settings, concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    let mut other = pointing("m2", "missing");
    other.attributes.insert("Idempotency-Key".into(), "pay_2".into());
    let messages = [pointing("m1", "missing"), other];
    let reports = batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
    assert_eq!(outcomes(&reports), ["DUPLICATE", "DUPLICATE"]);
    assert_eq!(store.calls(StoreCall::Settle), 2, "each is released once");
}

/// A work that records the bodies for which it names a receiver.
#[derive(Default)]
struct Named(Mutex<Vec<String>>);

impl Work<Message> for Named {
    async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        Err(WorkError::unavailable("no connection"))
    }

    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        self.0.lock().unwrap().push(message.body().to_owned());
        message.body()
    }
}

#[tokio::test]
async fn the_receiver_of_a_payload_in_s3_is_that_of_its_message_before_the_payload_is_read() {
    let objects = Arc::new(MemoryObjectStore::default());
    let location = Location { bucket: "payloads".into(), name: "one".into() };
    objects.put(&location, b"the payload".to_vec()).await.unwrap();
    let work = Named::default();
    let batch =
        Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, with_payloads_in(objects));
    for _ in 0..2 {
        batch.run(&[pointing("m1", "one")], Deadline::within(Duration::from_secs(30))).await.unwrap();
    }
    let named = work.0.lock().unwrap();
    assert!(!named.is_empty() && named.iter().all(|body| *body == pointer(CURRENT, "one")), "{named:?}");
}

#[tokio::test]
async fn nothing_is_claimed_if_the_key_is_in_a_payload_that_is_not_found() {
    let keys = vec![KeySource::Body("/paymentId".into()), KeySource::MessageId];
    let fixture = Fixture { keys: Some(keys), ..Fixture::default() };
    let reports = fixture.run(&[pointing("m1", "missing")]).await;
    assert_eq!(reports[0].outcome.as_str(), "UNREADABLE");
    assert!(matches!(reports[0].disposition, Disposition::Redeliver { after: Some(_) }), "{reports:?}");
    assert!(reports[0].key.is_none());
}

/// An event of EventBridge with the id `event-1`.
fn event() -> String {
    let event = json!({
        "version": "0", "id": "event-1", "detail-type": "payment", "source": "shop", "account": "123456789012",
        "time": "2026-11-19T09:31:05Z", "region": "eu-central-1", "resources": [], "detail": { "amount": 1250 },
    });
    event.to_string()
}

/// A message that points to this object, without a key in an attribute.
fn pointing_without_key(id: &str, name: &str) -> Message {
    with!(pointing(id, name), attributes = attributes(&[("ExtendedPayloadSize", "300000")]))
}

/// The letter names no key, because the payload may replace the one that was looked up. A redrive keeps the messageId.
#[tokio::test]
async fn a_message_with_an_unreadable_payload_has_the_same_key_after_a_redrive_whether_the_payload_is_an_envelope_or_not()
 {
    for payload in [&*event(), "1250"] {
        let fixture = Fixture::default();
        fixture.put("one", payload).await;
        let message = pointing_without_key("m1", "one");
        assert_eq!(outcomes(&fixture.run(std::slice::from_ref(&message)).await), ["ACQUIRED"]);
        // It is delivered again while PAYLOAD_BUCKETS does not name the bucket.
        let (report, sent) = letters(&MemoryStore::default(), fixture.objects.clone(), &["other"], &message).await;
        assert_eq!((report.outcome.as_str(), &report.key), ("UNREADABLE", &None));
        assert_eq!((sent[0].key.as_deref(), &*sent[0].message_id), (None, "m1"));
        let mut redriven = pointing_without_key("m2", "one");
        redriven.attributes.insert(Message::ID_ATTRIBUTE.to_owned(), "m1".into());
        assert_eq!(outcomes(&fixture.run(&[redriven]).await), ["DUPLICATE"], "{payload}");
    }
}

#[tokio::test]
async fn no_failure_is_recorded_under_the_message_id_if_an_envelope_in_a_payload_that_is_not_found_may_have_another_id()
{
    let fixture = Fixture::default();
    fixture.put("one", &event()).await;
    let reports = fixture.run(&[pointing_without_key("m1", "one")]).await;
    assert_eq!((reports[0].outcome.as_str(), reports[0].key.as_ref().unwrap().as_str()), ("ACQUIRED", "event-1"));
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::default());
    let (report, sent) = letters(&fixture.store, objects, &["payloads"], &pointing_without_key("m1", "one")).await;
    assert_eq!((report.outcome.as_str(), report.failed_permanently), ("UNREADABLE", false));
    assert_eq!(sent[0].outcome, DeadLetterOutcome::Unreadable);
    let next = fixture.store.acquire(AcquireRequest::new(Key::new("m1").unwrap())).await.unwrap();
    assert!(matches!(next, Acquire::Acquired(claim) if claim.attempt() == 1 && !claim.is_recovery()));
}

#[tokio::test]
async fn no_failure_is_recorded_under_the_message_id_of_a_payload_that_is_not_found_if_no_attribute_may_be_the_key() {
    for keys in [vec![KeySource::MessageId], vec![KeySource::DeduplicationId, KeySource::MessageId]] {
        let fixture = Fixture { keys: Some(keys), ..Fixture::default() };
        let report = fixture.run(&[pointing_without_key("m1", "missing")]).await.remove(0);
        assert_eq!((report.outcome.as_str(), report.failed_permanently), ("UNREADABLE", false));
        let next = fixture.store.acquire(AcquireRequest::new(Key::new("m1").unwrap())).await.unwrap();
        assert!(matches!(next, Acquire::Acquired(claim) if claim.attempt() == 1 && !claim.is_recovery()));
    }
}

#[tokio::test]
async fn a_message_with_its_message_id_as_key_is_a_duplicate_after_its_payload_was_deleted() {
    let fixture = Fixture::default();
    fixture.put("one", "payload").await;
    assert_eq!(outcomes(&fixture.run(&[pointing_without_key("m1", "one")]).await), ["ACQUIRED"]);
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::default());
    let (report, sent) = letters(&fixture.store, objects, &["payloads"], &pointing_without_key("m1", "one")).await;
    assert_eq!((report.outcome.as_str(), sent.len()), ("DUPLICATE", 0));
}

#[tokio::test]
async fn the_report_on_a_message_whose_payload_was_not_read_has_the_key_that_is_known_without_it() {
    let store = MemoryStore::default();
    let batch = Batch::new(
        Idempotency::new(&store, Policy::default()),
        Seen::default(),
        with_payloads_in(Arc::new(UnavailableObjects)),
    );
    let messages = [pointing("m1", "one"), pointing_without_key("m2", "two")];
    // Without time, no payload is read.
    for (time, outcome) in [(30, "UNREADABLE"), (0, "NOT_PROCESSED")] {
        let reports = batch.run(&messages, Deadline::within(Duration::from_secs(time))).await.unwrap();
        assert_eq!(outcomes(&reports), [outcome; 2]);
        let keys: Vec<_> = reports.iter().map(|report| report.key.as_ref().map(Key::as_str)).collect();
        assert_eq!(keys, [Some("pay_1"), None]);
    }
}

#[tokio::test]
async fn a_body_that_only_resembles_a_pointer_is_a_payload() {
    let fixture = Fixture::default();
    let with_size = pointing("m1", "one");
    let with_body = |body: Value| with!(with_size.clone(), body = Some(body.to_string()));
    let location = json!({ "s3BucketName": "payloads", "s3Key": "one" });
    for message in [
        with!(with_size.clone(), attributes = attributes(&[("Idempotency-Key", "pay_1")])),
        with_body(json!([CURRENT])),
        with_body(json!([CURRENT, location, 1])),
        with_body(json!(["com.example.Pointer", location])),
        with_body(json!([CURRENT, { "s3BucketName": "payloads" }])),
        with_body(json!([CURRENT, { "s3BucketName": "", "s3Key": "one" }])),
        with_body(json!([CURRENT, { "s3BucketName": 7, "s3Key": "one" }])),
        with_body(json!({ "0": CURRENT, "1": location })),
        with_body(json!(CURRENT)),
    ] {
        assert!(Payload::of(&message, Envelopes::Auto).pointer().is_none(), "{message:?}");
    }
    assert!(Payload::of(&with_size, Envelopes::Auto).pointer().is_some());
    assert!(Payload::of(&with_size, Envelopes::None).pointer().is_none());
    let plain = with!(with_size, attributes = attributes(&[("Idempotency-Key", "pay_1")]));
    assert_eq!(outcomes(&fixture.run_with(&[plain], Envelopes::None).await), ["ACQUIRED"]);
    assert_eq!(fixture.seen(), [pointer(CURRENT, "one")]);
}
