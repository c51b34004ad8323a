//! Envelopes of SNS, EventBridge and S3 (`sqs::envelope`): how they are recognized and opened.

#![allow(clippy::needless_pass_by_value, reason = "test bodies read better without borrows")]

use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use harness::with;
use idempotent_sqs::idempotency::{Claim, Deadline, Fingerprint, Idempotency, Policy, Work, WorkError};
use idempotent_sqs::sqs::{Batch, BatchSettings, Envelopes, FingerprintSource, KeyError, KeySource, Message, Payload};
use idempotent_sqs::stores::MemoryStore;

const PAYMENT: &str = r#"{"paymentId":"pay_1","amount":1250}"#;

fn message(id: &str, body: impl ToString) -> Message {
    with!(Message::default(), id = id.into(), body = Some(body.to_string()))
}

/// SNS's notification of `message`. `time` counts how often it was published.
fn sns(message: impl ToString, time: u32) -> Value {
    json!({
        "Type": "Notification",
        "MessageId": format!("sns-{time}"),
        "TopicArn": "arn:aws:sns:eu-central-1:123456789012:payments",
        "Message": message.to_string(),
        "Timestamp": format!("2026-11-19T09:31:0{time}.600Z"),
        "SignatureVersion": "1",
        "Signature": format!("signature {time}"),
        "SigningCertURL": "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0.pem",
        "UnsubscribeURL": "https://sns.eu-central-1.amazonaws.com/?Action=Unsubscribe",
        "MessageAttributes": {
            "Idempotency-Key": { "Type": "String", "Value": "pay_1" },
            "Count": { "Type": "Number", "Value": "7" },
            "Bytes": { "Type": "Binary", "Value": "AAAA" },
        },
    })
}

/// EventBridge's event with `detail`. `time` counts how often it was put.
fn event_bridge(detail: Value, time: u32) -> Value {
    json!({
        "version": "0",
        "id": format!("event-{time}"),
        "detail-type": "Payment Accepted",
        "source": "com.example.payments",
        "account": "123456789012",
        "time": format!("2026-11-19T09:31:0{time}Z"),
        "region": "eu-central-1",
        "resources": [],
        "detail": detail,
    })
}

/// S3's notification of a change to an object. `time` counts how often it was sent.
fn s3(sequencer: &str, etag: &str, time: u32) -> Value {
    json!({ "Records": [{
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-central-1",
        "eventTime": format!("2026-11-19T09:31:0{time}.600Z"),
        "eventName": "ObjectCreated:Put",
        "responseElements": { "x-amz-request-id": format!("request of {sequencer}") },
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "payments",
            "bucket": { "name": "payments", "arn": "arn:aws:s3:::payments" },
            "object": { "key": "2026/11/19.csv", "size": 1024, "eTag": etag, "sequencer": sequencer },
        },
    }] })
}

fn key_at(source: &str, message: &Message) -> Result<String, String> {
    let source: KeySource = source.parse().unwrap();
    let found = KeySource::find(&[source], &Payload::of(message, Envelopes::Auto));
    found.map(|key| key.to_string()).map_err(|error| error.to_string())
}

/// The key from the messageId.
fn id(body: impl ToString) -> String {
    key_at("messageId", &message("sqs", body)).unwrap()
}

fn fingerprint(body: impl ToString) -> Fingerprint {
    FingerprintSource::Body.compute(&Payload::of(&message("sqs", body), Envelopes::Auto))
}

/// A work that records the bodies it receives.
#[derive(Default)]
struct Bodies(Mutex<Vec<String>>);

impl Work<Message> for Bodies {
    async fn run(&self, _claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        self.0.lock().unwrap().push(message.body().to_owned());
        Ok(Vec::new())
    }
}

/// Outcomes of these bodies in one batch with default settings.
async fn outcomes(store: &MemoryStore, work: &Bodies, bodies: &[Value]) -> Vec<&'static str> {
    let batch = Batch::new(Idempotency::new(store, Policy::default()), work, BatchSettings::default());
    let messages: Vec<_> = bodies.iter().enumerate().map(|(at, body)| message(&format!("sqs-{at}"), body)).collect();
    let reports = batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
    reports.iter().map(|report| report.outcome.as_str()).collect()
}

#[test]
fn a_message_has_the_same_fingerprint_inside_and_outside_sns() {
    for payload in [PAYMENT, "12.50 EUR", "", "null"] {
        assert_eq!(fingerprint(sns(payload, 1)), fingerprint(payload), "{payload}");
        assert_eq!(fingerprint(sns(payload, 2)), fingerprint(payload), "{payload}");
    }
    assert_ne!(fingerprint(sns(r#"{"paymentId":"pay_1","amount":99}"#, 1)), fingerprint(PAYMENT));
}

#[tokio::test]
async fn a_message_published_twice_is_a_duplicate_and_another_payload_with_its_key_a_mismatch() {
    let (store, work) = (MemoryStore::default(), Bodies::default());
    assert_eq!(outcomes(&store, &work, &[sns(PAYMENT, 1)]).await, ["ACQUIRED"]);
    assert_eq!(outcomes(&store, &work, &[sns(PAYMENT, 2)]).await, ["DUPLICATE"]);
    assert_eq!(outcomes(&store, &work, &[sns("12.50 EUR", 3)]).await, ["MISMATCH"]);
}

#[tokio::test]
async fn the_work_receives_the_body_unchanged() {
    let (store, work) = (MemoryStore::default(), Bodies::default());
    let bodies = [sns(PAYMENT, 1), event_bridge(json!({}), 1), s3("0055", "etag", 1)];
    assert_eq!(outcomes(&store, &work, &bodies).await, ["ACQUIRED"; 3]);
    assert_eq!(*work.0.lock().unwrap(), bodies.map(|body| body.to_string()));
}

#[test]
fn an_sns_attribute_is_found_after_an_sqs_attribute() {
    let of_sns = message("sqs", sns(PAYMENT, 1));
    assert_eq!(key_at("attribute:Idempotency-Key", &of_sns).unwrap(), "pay_1");
    assert_eq!(key_at("attribute:Count", &of_sns).unwrap(), "7");
    assert!(key_at("attribute:Bytes", &of_sns).unwrap_err().contains("attribute:Bytes"));
    assert!(key_at("attribute:None", &of_sns).unwrap_err().contains("no key source"));
    let attributes = [("Idempotency-Key".to_owned(), "of SQS".into())].into();
    let both = with!(of_sns, attributes = attributes);
    assert_eq!(key_at("attribute:Idempotency-Key", &both).unwrap(), "of SQS");
}

#[test]
fn a_json_pointer_applies_to_the_message_inside_sns() {
    assert_eq!(key_at("body:/paymentId", &message("sqs", sns(PAYMENT, 1))).unwrap(), "pay_1");
    assert!(key_at("body:/MessageId", &message("sqs", sns(PAYMENT, 1))).is_err());
    let amount = |payload: &str| {
        let message = message("sqs", sns(payload, 1));
        "body:/amount".parse::<FingerprintSource>().unwrap().compute(&Payload::of(&message, Envelopes::Auto))
    };
    assert_eq!(amount(PAYMENT), amount(r#"{"amount":1250.0}"#));
    assert_ne!(amount(PAYMENT), amount(r#"{"amount":99}"#));
}

#[test]
fn a_raw_sns_delivery_is_an_ordinary_payload() {
    let attributes = [("Idempotency-Key".to_owned(), "pay_1".into())].into();
    let raw = with!(message("sqs", PAYMENT), attributes = attributes);
    assert_eq!(key_at("attribute:Idempotency-Key", &raw).unwrap(), "pay_1");
    assert_eq!(key_at("body:/paymentId", &raw).unwrap(), "pay_1");
    assert_eq!(key_at("messageId", &raw).unwrap(), "sqs");
}

#[tokio::test]
async fn a_notification_in_two_sqs_messages_is_one_work() {
    let without_attributes = |mut body: Value| {
        body.as_object_mut().unwrap().remove("MessageAttributes");
        body
    };
    let notifications = [
        (without_attributes(sns(PAYMENT, 1)), without_attributes(sns(PAYMENT, 2))),
        (event_bridge(json!({ "amount": 1250 }), 1), event_bridge(json!({ "amount": 1250 }), 2)),
        (s3("0055", "etag", 1), s3("0056", "etag", 1)),
        (without_attributes(sns(s3("0055", "etag", 1), 1)), without_attributes(sns(s3("0056", "etag", 1), 2))),
    ];
    for (one, another) in notifications {
        let (store, work) = (MemoryStore::default(), Bodies::default());
        let again = [one.clone(), one.clone(), another.clone()];
        assert_eq!(outcomes(&store, &work, &again).await, ["ACQUIRED", "IN_BATCH_DUPLICATE", "ACQUIRED"], "{one}");
        assert_eq!(outcomes(&store, &work, &[another, one]).await, ["DUPLICATE"; 2]);
    }
}

#[test]
fn an_eventbridge_event_is_identified_by_its_id_and_compared_by_the_fields_of_its_source() {
    let event = event_bridge(json!({ "amount": 1250 }), 1);
    assert_eq!(id(&event), "event-1");
    assert_eq!(key_at("body:/detail/amount", &message("sqs", &event)).unwrap(), "1250");
    assert_eq!(fingerprint(event_bridge(json!({ "amount": 1250 }), 2)), fingerprint(&event));
    let with = |field: &str, value: Value| {
        let mut event = event.clone();
        event[field] = value;
        fingerprint(event)
    };
    for replayed in ["replay-name", "region", "account"] {
        assert_eq!(with(replayed, "another".into()), fingerprint(&event), "{replayed}");
    }
    for put in ["detail-type", "source"] {
        assert_ne!(with(put, "another".into()), fingerprint(&event), "{put}");
    }
    assert_ne!(with("detail", json!({ "amount": 99 })), fingerprint(&event));
    assert_ne!(with("resources", json!(["arn:aws:s3:::payments"])), fingerprint(&event));
}

#[test]
fn an_s3_notification_is_identified_by_the_change_and_compared_by_the_object() {
    let first = s3("0055", "etag", 1);
    let with = |pointer: &str, value: Value| {
        let mut notification = first.clone();
        *notification.pointer_mut(pointer).unwrap() = value;
        notification
    };
    assert_eq!(id(s3("0055", "etag", 2)), id(&first));
    assert_eq!(fingerprint(s3("0056", "etag", 2)), fingerprint(&first));
    assert_ne!(id(s3("0056", "etag", 1)), id(&first));
    assert_ne!(fingerprint(s3("0055", "other", 1)), fingerprint(&first));
    for pointer in ["/Records/0/eventName", "/Records/0/s3/bucket/name", "/Records/0/s3/object/key"] {
        assert_ne!(id(with(pointer, "other".into())), id(&first), "{pointer}");
        assert_ne!(fingerprint(with(pointer, "other".into())), fingerprint(&first), "{pointer}");
    }
    let both = json!({ "Records": [first["Records"][0], s3("0056", "etag", 1)["Records"][0]] });
    assert_ne!(id(&both), id(&first));
    assert_ne!(fingerprint(&both), fingerprint(&first));
    assert!(!id(&first).contains("2026"), "the key contains no object name, because keys are logged");
}

#[test]
fn an_s3_notification_without_a_sequencer_is_identified_by_its_request_or_its_message() {
    let with_request = |request: Value| {
        let mut notification = s3("0055", "etag", 1);
        let record = &mut notification["Records"][0];
        record["s3"]["object"].as_object_mut().unwrap().remove("sequencer");
        record["responseElements"]["x-amz-request-id"] = request;
        notification
    };
    assert_eq!(id(with_request("one".into())), id(with_request("one".into())));
    assert_ne!(id(with_request("one".into())), id(with_request("two".into())));
    assert_eq!(id(with_request(Value::Null)), "sqs");
    assert_eq!(id(sns(with_request(Value::Null), 1)), "sns-1");
}

#[tokio::test]
async fn the_s3_test_event_is_an_ordinary_message() {
    let test = json!({
        "Service": "Amazon S3",
        "Event": "s3:TestEvent",
        "Time": "2026-11-19T09:31:05.600Z",
        "Bucket": "payments",
        "RequestId": "5582815E1AEA5ADF",
        "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR+YstdA6Knx4Ip8EXAMPLE",
    });
    assert_eq!(id(&test), "sqs");
    let (store, work) = (MemoryStore::default(), Bodies::default());
    assert_eq!(outcomes(&store, &work, &[test, s3("0055", "etag", 1)]).await, ["ACQUIRED"; 2]);
}

#[test]
fn nested_envelopes_are_opened_and_the_innermost_has_the_message_id() {
    let in_sns = sns(s3("0055", "etag", 1), 1);
    assert_eq!(id(&in_sns), id(s3("0055", "etag", 1)));
    assert_eq!(fingerprint(&in_sns), fingerprint(s3("0055", "etag", 2)));
    let in_sns = sns(event_bridge(json!({ "amount": 1250 }), 1), 2);
    assert_eq!(id(&in_sns), "event-1");
    assert_eq!(fingerprint(&in_sns), fingerprint(event_bridge(json!({ "amount": 1250 }), 3)));
    assert_eq!(key_at("body:/detail/amount", &message("sqs", &in_sns)).unwrap(), "1250");
    let event = event_bridge(json!({ "amount": 1250 }), 1).to_string();
    let in_two = message("sqs", sns(sns(&event, 2), 3));
    assert_eq!(Payload::of(&in_two, Envelopes::Auto).text(), event);
    let with_attribute = |value: &str, mut notification: Value| {
        notification["MessageAttributes"] = json!({ "Key": { "Type": "String", "Value": value } });
        notification
    };
    let in_both = with_attribute("outer", sns(with_attribute("inner", sns(PAYMENT, 1)), 2));
    assert_eq!(key_at("attribute:Key", &message("sqs", &in_both)).unwrap(), "inner");
    let forwarded = sns(sns(PAYMENT, 1), 2);
    assert_eq!(id(&forwarded), "sns-1");
    assert_eq!(fingerprint(&forwarded), fingerprint(PAYMENT));
}

#[test]
fn at_most_four_nested_envelopes_are_opened() {
    let nested = |depth: u32| {
        (1..=depth).fold(Value::from(PAYMENT), |inner, time| match inner {
            Value::String(text) => sns(text, time),
            inner => sns(inner, time),
        })
    };
    assert_eq!((id(nested(4)), fingerprint(nested(4))), ("sns-1".into(), fingerprint(PAYMENT)));
    assert_eq!(id(nested(5)), "sns-2", "the fifth envelope from outside is not opened");
    assert_ne!(fingerprint(nested(5)), fingerprint(PAYMENT));
}

#[test]
fn a_key_lookup_does_not_change_the_fingerprint() {
    let event = event_bridge(json!({ "paymentId": "pay_1" }), 1);
    let bodies = [PAYMENT.to_owned(), "not JSON".into(), event.to_string(), s3("a", "b", 1).to_string()];
    let in_sns = bodies.clone().map(|body| sns(&body, 1).to_string());
    for body in bodies.into_iter().chain(in_sns) {
        let message = message("sqs", &body);
        for source in ["body", "body:/amount,/detail"].map(|source| source.parse::<FingerprintSource>().unwrap()) {
            let payload = Payload::of(&message, Envelopes::Auto);
            let before = source.compute(&payload);
            let key = KeySource::find(&[KeySource::Body("/none".into())], &payload);
            assert_eq!(key, Err(KeyError::Absent), "{body}");
            assert_eq!(source.compute(&payload), before, "{body}");
        }
    }
}

#[test]
fn a_body_that_only_resembles_an_envelope_is_a_payload() {
    let is_payload = |body: Value| {
        let message = message("sqs", &body);
        let fingerprints = [Envelopes::Auto, Envelopes::None]
            .map(|envelopes| FingerprintSource::Body.compute(&Payload::of(&message, envelopes)));
        assert_eq!(fingerprints[0], fingerprints[1], "{body}");
        assert_eq!(key_at("messageId", &message).unwrap(), "sqs", "{body}");
    };
    let with_invalid = |mut body: Value, pointer: &str| {
        for value in [Value::Null, 7.into(), "".into(), "another".into()] {
            *body.pointer_mut(pointer).unwrap() = value;
            is_payload(body.clone());
        }
    };
    for pointer in ["/Type", "/TopicArn"] {
        with_invalid(sns(PAYMENT, 1), pointer);
    }
    for pointer in ["/version", "/resources", "/detail"] {
        with_invalid(event_bridge(json!({}), 1), pointer);
    }
    with_invalid(s3("0055", "etag", 1), "/Records");
    with_invalid(s3("0055", "etag", 1), "/Records/0/eventSource");
    let without = |mut body: Value, pointer: &str, field: &str| {
        body.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(field);
        is_payload(body);
    };
    for field in ["Type", "MessageId", "TopicArn", "Message", "Timestamp"] {
        without(sns(PAYMENT, 1), "", field);
    }
    let fields = ["version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail"];
    for field in fields {
        without(event_bridge(json!({}), 1), "", field);
    }
    for (pointer, field) in [("", "eventSource"), ("", "eventName"), ("/s3/bucket", "name"), ("/s3/object", "key")] {
        without(s3("0055", "etag", 1), &format!("/Records/0{pointer}"), field);
    }
    let mut with_another_record = s3("0055", "etag", 1);
    with_another_record["Records"].as_array_mut().unwrap().push(json!({ "eventSource": "aws:ses" }));
    is_payload(with_another_record);
    is_payload(json!({ "Records": [] , "note": "\"aws:s3\"" }));
    is_payload(json!([sns(PAYMENT, 1)]));
    is_payload(json!({ "wrapped": sns(PAYMENT, 1) }));
    is_payload(json!({ "TopicArn": "arn:aws:sns:eu-central-1:123456789012:payments", "Message": PAYMENT }));
}

#[test]
fn an_envelope_in_which_a_field_occurs_twice_is_a_payload() {
    for (body, field, first) in [
        (sns(PAYMENT, 1), "\"Message\":", "\"other\""),
        (sns(PAYMENT, 1), "\"Idempotency-Key\":", "{\"Type\":\"String\",\"Value\":\"other\"}"),
        (sns(PAYMENT, 1), "\"Value\":", "\"other\""),
        (event_bridge(json!({ "paymentId": "pay_1" }), 1), "\"detail\":", "{}"),
        (s3("1", "etag", 1), "\"Records\":", "[]"),
        (s3("1", "etag", 1), "\"eventName\":", "\"other\""),
        (s3("1", "etag", 1), "\"s3\":", "{}"),
        (s3("1", "etag", 1), "\"name\":", "\"other\""),
        (s3("1", "etag", 1), "\"size\":", "1"),
    ] {
        let twice = body.to_string().replacen(field, &format!("{field}{first},{field}"), 1);
        assert_ne!(fingerprint(&twice), fingerprint(&body), "{twice}");
        assert_eq!(id(&twice), "sqs", "{twice}");
    }
}

#[tokio::test]
async fn envelopes_are_not_opened_if_disabled() {
    let (store, work) = (MemoryStore::default(), Bodies::default());
    let settings = with!(BatchSettings::default(), envelopes = Envelopes::None);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    let reports = batch.run(&[message("sqs", sns(PAYMENT, 1))], Deadline::within(Duration::from_secs(30))).await;
    assert_eq!(reports.unwrap()[0].key.as_ref().unwrap().as_str(), "sqs");
}
