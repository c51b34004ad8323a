use harness::with;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_sqs::idempotency::{Claim, Deadline, Idempotency, Location, Objects, Policy, Work, WorkError};
use idempotent_sqs::sqs::{
    Batch, BatchSettings, Disposition, Envelopes, ExtendedClient, KeySource, Message, MessageReport, Payload,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::MemoryObjects;
use serde_json::{Value, json};

const NEW: &str = "software.amazon.payloadoffloading.PayloadS3Pointer";
const OLD: &str = "com.amazon.sqs.javamessaging.MessageS3Pointer";

fn pointer(class: &str, name: &str) -> String {
    json!([class, { "s3BucketName": "payloads", "s3Key": name }]).to_string()
}

/// A message that points to this object, and whose key is in an attribute.
fn pointing(id: &str, name: &str) -> Message {
    with!(
        Message::default(),
        id = id.into(),
        body = Some(pointer(NEW, name)),
        attributes = attributes(&[("ExtendedPayloadSize", "300000"), ("Idempotency-Key", "pay_1")])
    )
}

fn attributes(named: &[(&str, &str)]) -> std::collections::HashMap<String, Option<String>> {
    named.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect()
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

/// A work that remembers the bodies that it was given, and whether it was told of an offloaded size.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Work<Message> for Seen {
    async fn run(&self, _claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        assert!(!message.attributes.contains_key("ExtendedPayloadSize"), "it would be looked for again");
        self.0.lock().unwrap().push(message.body().to_owned());
        Ok(Vec::new())
    }
}

#[derive(Default)]
struct Fixture {
    objects: Arc<MemoryObjects>,
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
        let objects: Arc<dyn Objects> = Arc::clone(&self.objects) as _;
        let extended_client =
            with!(ExtendedClient::default(), objects = Some(objects), buckets = vec!["payloads".into()]);
        let mut settings = with!(BatchSettings::default(), envelopes = envelopes, extended_client = extended_client);
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
async fn one_payload_in_two_objects_is_one_work_and_another_is_a_mismatch() {
    let stage = Fixture::default();
    stage.put("one", r#"{"amount":1250}"#).await;
    stage.put("two", r#"{ "amount": 1250.0 }"#).await;
    stage.put("three", r#"{"amount":99}"#).await;
    let reports = stage.run(&[pointing("m1", "one"), pointing("m2", "two")]).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "IN_BATCH_DUPLICATE"]);
    assert_eq!(outcomes(&stage.run(&[pointing("m3", "two")]).await), ["DUPLICATE"]);
    assert_eq!(outcomes(&stage.run(&[pointing("m4", "three")]).await), ["MISMATCH"]);
    assert_eq!(stage.seen(), [r#"{"amount":1250}"#]);
}

#[tokio::test]
async fn a_payload_in_s3_is_an_in_batch_duplicate_of_the_same_in_a_message() {
    let stage = Fixture { keys: Some(vec![KeySource::Body("/paymentId".into())]), ..Fixture::default() };
    let payment = r#"{"paymentId":"pay_1"}"#;
    stage.put("one", payment).await;
    let plain = with!(Message::default(), id = "m2".into(), body = Some(payment.into()));
    let reports = stage.run(&[pointing("m1", "one"), plain]).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "IN_BATCH_DUPLICATE"]);
    assert_eq!(reports[0].key.as_ref().unwrap().as_str(), "pay_1");
}

#[tokio::test]
async fn both_generations_of_the_extended_client_are_understood() {
    let stage = Fixture::default();
    stage.put("one", "payload").await;
    let old = with!(
        pointing("m1", "one"),
        body = Some(pointer(OLD, "one")),
        attributes = attributes(&[("SQSLargePayloadSize", "300000"), ("Idempotency-Key", "pay_1")])
    );
    assert_eq!(outcomes(&stage.run(&[old, pointing("m2", "one")]).await), ["ACQUIRED", "IN_BATCH_DUPLICATE"]);
    assert_eq!(stage.seen(), ["payload"]);
}

#[tokio::test]
async fn what_sns_points_to_arrives_in_its_envelope_as_if_it_had_fitted() {
    let stage = Fixture::default();
    stage.put("one", r#"{"amount":1250}"#).await;
    let body = in_sns(&pointer(NEW, "one"), "ExtendedPayloadSize");
    let message = with!(Message::default(), id = "m1".into(), body = Some(body.to_string()));
    let reports = stage.run(&[message]).await;
    assert_eq!(reports[0].key.as_ref().unwrap().as_str(), "sns-1");
    let fitted: Value = serde_json::from_str(&stage.seen()[0]).unwrap();
    assert_eq!(fitted, in_sns(r#"{"amount":1250}"#, "ExtendedPayloadSize"));
}

#[tokio::test]
async fn the_envelope_around_a_pointer_stays_as_it_is_written() {
    let stage = Fixture { keys: Some(vec![KeySource::MessageId]), ..Fixture::default() };
    stage.put("one", r#"{"amount":1250}"#).await;
    let more = r#""more":[12345678901234567.01,1e400,"\ud800"]"#;
    let body = in_sns(&pointer(NEW, "one"), "ExtendedPayloadSize").to_string().replacen('{', &format!("{{{more},"), 1);
    let message = with!(Message::default(), id = "m1".into(), body = Some(body));
    let reports = stage.run(&[message]).await;
    assert_eq!(reports[0].key.as_ref().unwrap().as_str(), "sns-1");
    assert!(stage.seen()[0].contains(more), "{}", stage.seen()[0]);
}

#[tokio::test]
async fn a_payload_in_s3_may_itself_be_in_an_envelope_but_points_no_further() {
    let stage = Fixture { keys: Some(vec![KeySource::MessageId]), ..Fixture::default() };
    stage.put("one", &in_sns("payload", "none").to_string()).await;
    stage.put("two", &pointer(NEW, "one")).await;
    let reports = stage.run(&[pointing("m1", "one"), pointing("m2", "two")]).await;
    assert_eq!(reports[0].key.as_ref().unwrap().as_str(), "sns-1");
    assert_eq!(stage.seen()[1], pointer(NEW, "one"));
}

#[tokio::test]
async fn of_a_payload_that_is_gone_a_duplicate_is_acknowledged_and_anything_else_fails_for_good() {
    let stage = Fixture::default();
    stage.put("one", "payload").await;
    assert_eq!(outcomes(&stage.run(&[pointing("m1", "one")]).await), ["ACQUIRED"]);
    let reports = stage.run(&[pointing("m1", "gone")]).await;
    assert_eq!((reports[0].outcome.as_str(), reports[0].disposition), ("DUPLICATE", Disposition::Done));

    let other = || {
        let mut other = pointing("m2", "gone");
        other.attributes.insert("Idempotency-Key".into(), Some("pay_2".into()));
        other
    };
    let reports = stage.run(&[other()]).await;
    assert_eq!((reports[0].outcome.as_str(), reports[0].failed_permanently), ("ACQUIRED", true));
    assert!(reports[0].reason.contains("no longer in S3"), "{}", reports[0].reason);
    assert_eq!(outcomes(&stage.run(&[other()]).await), ["FAILED"]);
    // It failed clean: what comes under its key with a payload runs.
    stage.put("gone", "found again").await;
    let redriven = with!(other(), id = "m3".into());
    assert_eq!(outcomes(&stage.run(&[redriven]).await), ["ACQUIRED"]);
    assert_eq!(stage.seen(), ["payload", "found again"]);
}

#[tokio::test]
async fn where_the_key_is_in_a_payload_that_is_gone_nothing_is_claimed() {
    let keys = vec![KeySource::Body("/paymentId".into()), KeySource::MessageId];
    let stage = Fixture { keys: Some(keys), ..Fixture::default() };
    let reports = stage.run(&[pointing("m1", "gone")]).await;
    assert_eq!(reports[0].outcome.as_str(), "UNREADABLE");
    assert!(matches!(reports[0].disposition, Disposition::Redeliver { after: Some(_) }), "{reports:?}");
    assert!(reports[0].key.is_none());
}

#[tokio::test]
async fn what_only_looks_like_a_pointer_is_a_payload() {
    let stage = Fixture::default();
    let sized = pointing("m1", "one");
    let with_body = |body: Value| with!(sized.clone(), body = Some(body.to_string()));
    let place = json!({ "s3BucketName": "payloads", "s3Key": "one" });
    for look_alike in [
        with!(sized.clone(), attributes = attributes(&[("Idempotency-Key", "pay_1")])),
        with_body(json!([NEW])),
        with_body(json!([NEW, place, 1])),
        with_body(json!(["com.example.Pointer", place])),
        with_body(json!([NEW, { "s3BucketName": "payloads" }])),
        with_body(json!([NEW, { "s3BucketName": "", "s3Key": "one" }])),
        with_body(json!([NEW, { "s3BucketName": 7, "s3Key": "one" }])),
        with_body(json!({ "0": NEW, "1": place })),
        with_body(json!(NEW)),
    ] {
        assert!(Payload::of(&look_alike, Envelopes::Auto).pointer().is_none(), "{look_alike:?}");
    }
    assert!(Payload::of(&sized, Envelopes::Auto).pointer().is_some());
    assert!(Payload::of(&sized, Envelopes::None).pointer().is_none());
    let plain = with!(sized, attributes = attributes(&[("Idempotency-Key", "pay_1")]));
    assert_eq!(outcomes(&stage.run_with(&[plain], Envelopes::None).await), ["ACQUIRED"]);
    assert_eq!(stage.seen(), [pointer(NEW, "one")]);
}
