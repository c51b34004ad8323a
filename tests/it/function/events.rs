//! Records with unusual or malformed fields: each affects only its own message.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Fixture, NO_FAILURES, pay};
use harness::event::{MARKER, Record, event};

/// Delivers the record between two valid ones, twice. Returns the failures of the first delivery.
async fn deliver_between_valid_records(record: impl FnOnce(Record) -> Record) -> (Fixture, Vec<String>) {
    let delivered = event([pay("valid_1", "valid_1"), record(pay("unusual", "unusual")), pay("valid_2", "valid_2")]);
    // JSON can escape an unpaired surrogate, but a Rust string cannot contain it.
    let delivered = delivered.replace("LONE", "\\ud800");
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let failures = function.invoke(delivered.clone()).await;
    assert_eq!(function.invoke(delivered).await, failures);
    for key in ["valid_1", "valid_2"] {
        assert_eq!(fixture.webhook.calls_for(key), 1);
    }
    drop(function);
    (fixture, failures)
}

async fn assert_processed(record: impl FnOnce(Record) -> Record) {
    let (fixture, failures) = deliver_between_valid_records(record).await;
    assert!(failures.is_empty());
    assert_eq!(fixture.webhook.calls().len(), 3);
}

/// Only this record is reported, with the first step of the backoff.
async fn assert_reported_alone(record: impl FnOnce(Record) -> Record) {
    let (fixture, failures) = deliver_between_valid_records(record).await;
    assert_eq!(failures, ["unusual"]);
    assert_eq!(fixture.webhook.calls().len(), 2);
    assert_eq!(fixture.sqs.take(), [("unusual".into(), 2)].into());
}

macro_rules! records {
    ($($name:ident: $assert:ident($record:expr);)*) => {
        $(#[tokio::test] async fn $name() { $assert($record).await })*
    };
}

records! {
    a_record_without_body_is_reported_alone: assert_reported_alone(|record| record.without("body"));
    a_body_that_is_not_a_string_is_reported_alone:
        assert_reported_alone(|record| record.with("body", json!({ "note": MARKER })));
    a_body_with_an_unpaired_surrogate_is_reported_alone:
        assert_reported_alone(|record| record.body("SECRET-PAYLOAD LONE"));
    a_null_body_is_reported_alone: assert_reported_alone(|record| record.with("body", Value::Null));
    an_empty_body_is_processed: assert_processed(|record| record.body(""));
    a_body_that_is_not_json_is_processed: assert_processed(|record| record.body("{SECRET-PAYLOAD"));
    a_body_of_one_mib_is_processed: assert_processed(|record| record.body(&MARKER.repeat((1 << 20) / MARKER.len())));
    a_deeply_nested_body_is_processed: assert_processed(|record| record.body(&"[".repeat(100_000)));
    a_body_with_control_and_non_ascii_characters_is_processed:
        assert_processed(|record| record.body("\0\u{1}\u{7f}\u{feff}\u{1F4B6}\r\n"));

    a_record_without_attributes_is_processed: assert_processed(|record| record.without("attributes"));
    a_record_with_null_attributes_is_processed: assert_processed(|record| record.with("attributes", Value::Null));
    a_record_without_message_attributes_is_processed: assert_processed(|record| record.without("messageAttributes"));
    a_record_with_null_message_attributes_is_processed:
        assert_processed(|record| record.with("messageAttributes", Value::Null));
    message_attributes_that_are_a_string_are_reported_alone:
        assert_reported_alone(|record| record.with("messageAttributes", MARKER.into()));
    message_attributes_that_are_a_list_are_reported_alone:
        assert_reported_alone(|record| record.with("messageAttributes", json!([MARKER])));
    a_message_attribute_that_is_a_number_is_reported_alone:
        assert_reported_alone(|record| record.with("messageAttributes", json!({ "Idempotency-Key": 5 })));
    a_binary_key_is_reported_alone: assert_reported_alone(|record| {
        let key = json!({ "binaryValue": "cGF5", "stringListValues": [], "binaryListValues": [], "dataType": "Binary" });
        record.with("messageAttributes", json!({ "Idempotency-Key": key }))
    });
    a_record_without_receipt_handle_is_processed: assert_processed(|record| record.without("receiptHandle"));
    a_record_without_arn_is_processed: assert_processed(|record| record.without("eventSourceARN"));
    a_record_with_unknown_fields_is_processed: assert_processed(|record| record.with("new", json!([{ "of": "AWS" }])));

    an_empty_key_is_reported_alone: assert_reported_alone(|record| record.key(""));
    a_key_of_one_kib_is_processed: assert_processed(|record| record.key(&"k".repeat(1024)));
    a_key_with_spaces_is_processed: assert_processed(|record| record.key(" a b "));
    a_key_with_braces_is_processed: assert_processed(|record| record.key("{a}{}"));
    a_key_with_a_newline_is_processed: assert_processed(|record| record.key("a\r\nb: c"));
    a_key_with_a_nul_is_processed: assert_processed(|record| record.key("a\0b"));
    a_non_ascii_key_is_processed: assert_processed(|record| record.key("gr\u{f6}\u{df}e \u{1F4B6}"));
}

#[tokio::test]
async fn similar_keys_are_different_work() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let long = "k".repeat(1024);
    let keys = ["a b", "a%20b", "a\nb", "a\0b", "ab", "A b", "{a} b", &long, &long[1..]];
    let records = keys.iter().enumerate().map(|(at, key)| pay(&format!("m{at}"), key));
    assert_eq!(function.answer(event(records)).await, NO_FAILURES);
    let calls = fixture.webhook.calls();
    let received: HashSet<_> = calls.iter().map(|call| call.header("Idempotency-Key")).collect();
    assert_eq!((calls.len(), received.len()), (keys.len(), keys.len()));
}

#[tokio::test]
async fn a_body_without_its_key_is_reported_alone() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[("IDEMPOTENCY_KEY", "body:/id")]).await;
    let bodies = [r#"{"id":"pay_1"}"#, "not JSON", r#"{"id":null}"#, r#"{"id":{}}"#, r#"{"id":""}"#, "", r#"{"id":7}"#];
    let records = bodies.iter().enumerate().map(|(at, body)| Record::new(&format!("m{at}")).body(body));
    assert_eq!(function.invoke(event(records)).await, ["m1", "m2", "m3", "m4", "m5"]);
    let calls = fixture.webhook.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!((fixture.webhook.calls_for("pay_1"), fixture.webhook.calls_for("7")), (1, 1));
}

#[tokio::test]
async fn a_key_reused_with_another_payload_is_reported_alone() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1").body(r#"{"amount":1}"#)])).await, NO_FAILURES);
    let again = [pay("m2", "pay_1").body(r#"{ "amount": 1.0 }"#), pay("m3", "pay_1").body(r#"{"amount":2}"#)];
    assert_eq!(function.invoke(event(again)).await, ["m3"]);
    assert_eq!(fixture.webhook.calls().len(), 1);
    assert_eq!(fixture.sqs.take(), [("m3".into(), 2)].into());
}

#[tokio::test]
async fn an_event_without_records_has_an_empty_list_of_failures() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(r#"{"Records":[]}"#).await, NO_FAILURES);
}

#[tokio::test]
async fn an_event_that_is_not_from_sqs_fails_only_its_own_invocation() {
    let fixture = Fixture::start().await;
    let mut function = fixture.function().await;
    for event in [
        "{}",
        "[]",
        "null",
        "5",
        r#""SECRET-PAYLOAD""#,
        r#"{"Records":null}"#,
        r#"{"Records":{}}"#,
        r#"{"Records":"SECRET-PAYLOAD"}"#,
        r#"{"records":[]}"#,
    ] {
        let error = function.error(event).await;
        assert!(error.contains("not an SQS event"), "{event}: {error}");
    }
    for broken in ["", "{\"Records\":[", "\u{0}"] {
        function.error(broken).await;
    }
    function.error(b"{\"Records\":[{\"messageId\":\"m1\",\"body\":\"\xff\"}]}".as_slice()).await;
    assert!(fixture.webhook.calls().is_empty());
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert!(function.is_running());
}

#[tokio::test]
async fn a_record_without_message_id_fails_the_invocation() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let without_id = [
        pay("m2", "pay_2").without("messageId"),
        pay("m2", "pay_2").with("messageId", Value::Null),
        pay("m2", "pay_2").with("messageId", "".into()),
        pay("m2", "pay_2").with("messageId", 5.into()),
        pay("m2", "pay_2").without("messageId").without("body"),
    ];
    for record in without_id {
        let error = function.error(event([pay("m1", "pay_1"), record])).await;
        assert!(error.contains("record 1 has no messageId"), "{error}");
    }
    for record in ["null", "5", "\"text\"", "{}"] {
        let error = function.error(format!(r#"{{"Records":[{record}]}}"#)).await;
        assert!(error.contains("record 0 has no messageId"), "{error}");
    }
    assert!(fixture.webhook.calls().is_empty());
}
