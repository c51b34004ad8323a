//! SQS events (`sqs::event`) and responses (`sqs::response`): the samples in `events/`, and malformed events.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lambda_runtime::Context;
use serde_json::{Value, json};

use harness::work::{Action, ScriptedWork};
use harness::{with, workspace};
use idempotent_sqs::idempotency::{Idempotency, ObjectStore, Policy};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{
    self, AttributeValue, Batch, BatchSettings, Disposition, Envelopes, ExtendedClient, FingerprintSource, KeySource,
    Message, Payload,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::MemoryObjectStore;

fn sample(name: &str) -> String {
    fs::read_to_string(workspace(&format!("events/{name}.json"))).unwrap()
}

/// A handler in this process with records in memory, and the key sources that `events/README.md` gives for the samples.
fn handler<'a>(store: &'a MemoryStore, work: &'a ScriptedWork) -> Handler<&'a MemoryStore, &'a ScriptedWork> {
    let settings = with!(
        BatchSettings::default(),
        keys = vec![
            KeySource::Attribute("Idempotency-Key".into()),
            KeySource::Body("/paymentId".into()),
            KeySource::Body("/detail/paymentId".into()),
        ]
    );
    Handler::new(Batch::new(Idempotency::new(store, Policy::default()), work, settings), None)
}

/// Invokes the handler. Returns the JSON of the response, or the error of the invocation.
async fn invoke(handler: &Handler<&MemoryStore, &ScriptedWork>, event: &str) -> Result<String, String> {
    let mut context = Context::default();
    let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(30);
    context.deadline = u64::try_from(end.as_millis()).unwrap();
    let response = handler.handle(event, &context).await;
    response.map(|response| serde_json::to_string(&response).unwrap()).map_err(|error| error.to_string())
}

/// The JSON of a response that reports these messages.
fn failures(ids: &[&str]) -> String {
    let ids: Vec<_> = ids.iter().map(|id| format!("{{\"itemIdentifier\":\"{id}\"}}")).collect();
    format!("{{\"batchItemFailures\":[{}]}}", ids.join(","))
}

fn ids(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.id.as_str()).collect()
}

#[test]
fn every_sample_event_is_parsed_with_the_fields_that_aws_sends() {
    for entry in fs::read_dir(workspace("events")).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_stem().filter(|_| path.extension().is_some_and(|ext| ext == "json")) else {
            continue;
        };
        let messages = sqs::messages(&sample(name.to_str().unwrap())).unwrap();
        assert!(!messages.is_empty(), "{name:?}");
        for message in messages {
            assert!(message.body.is_some() && message.receipt_handle.is_some() && message.receive_count.is_some());
            assert_eq!(message.id.len(), 36, "{name:?}");
            assert!(message.queue_arn.unwrap().starts_with("arn:aws:sqs:eu-central-1:123456789012:payments"));
        }
    }
}

#[tokio::test]
async fn a_first_delivery_runs_and_its_redelivery_and_redrive_are_duplicates() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let handler = handler(&store, &work);
    for name in ["first-delivery", "redelivery", "redrive"] {
        assert_eq!(invoke(&handler, &sample(name)).await.unwrap(), failures(&[]), "{name}");
        assert_eq!(work.runs().len(), 3, "{name}");
    }
    let (first, redriven) =
        (sqs::messages(&sample("first-delivery")).unwrap(), sqs::messages(&sample("redrive")).unwrap());
    assert!(ids(&redriven).iter().all(|id| !ids(&first).contains(id)), "a redrive changes the messageId");
}

#[tokio::test(start_paused = true)]
async fn a_mixed_batch_reports_only_conflicts_and_invalid_messages() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let handler = handler(&store, &work);
    invoke(&handler, &sample("first-delivery")).await.unwrap();
    let messages = sqs::messages(&sample("mixed")).unwrap();

    let hangs = ScriptedWork::always(Action::Hang);
    let other = self::handler(&store, &hangs);
    let conflict: Value = serde_json::from_str(&sample("mixed")).unwrap();
    let conflict = json!({ "Records": [conflict["Records"][2]] }).to_string();
    assert!(tokio::time::timeout(Duration::from_secs(1), invoke(&other, &conflict)).await.is_err());

    let ids = ids(&messages);
    assert_eq!(invoke(&handler, &sample("mixed")).await.unwrap(), failures(&[ids[2], ids[3], ids[4]]));
    assert_eq!(work.message_ids()[3..], [ids[0], ids[5]], "the new message and one of the in-batch duplicates");
}

#[tokio::test]
async fn a_fifo_batch_runs_each_group_in_order() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let messages = sqs::messages(&sample("fifo")).unwrap();
    assert!(messages.iter().all(Message::is_fifo));
    assert!(messages.iter().all(|message| message.deduplication_id.is_some()));
    assert_eq!(invoke(&handler(&store, &work), &sample("fifo")).await.unwrap(), failures(&[]));
    let ran = work.message_ids();
    for group in messages.iter().map(|message| &message.group_id) {
        let sent: Vec<_> =
            messages.iter().filter(|message| message.group_id == *group).map(|message| &message.id).collect();
        let ran: Vec<_> = ran.iter().filter(|id| sent.contains(id)).collect();
        assert_eq!(sent, ran);
    }
}

#[tokio::test]
async fn a_fifo_batch_with_equal_deduplication_ids_in_several_groups_is_processed_completely() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let messages = sqs::messages(&sample("fifo")).unwrap();
    let ids: HashSet<_> = messages.iter().map(|message| &message.deduplication_id).collect();
    assert!(ids.len() < messages.len());
    let settings = with!(BatchSettings::default(), keys = vec![KeySource::DeduplicationId]);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    assert_eq!(invoke(&Handler::new(batch, None), &sample("fifo")).await.unwrap(), failures(&[]));
    assert_eq!(work.runs().len(), messages.len());
}

#[tokio::test]
async fn a_fifo_batch_reports_the_failed_message_and_the_rest_of_its_group() {
    let messages = sqs::messages(&sample("fifo")).unwrap();
    let first = messages[0].id.clone();
    let group = messages[0].group_id.clone();
    let (store, work) = (
        MemoryStore::default(),
        ScriptedWork::new(move |run| if run.message_id == first { Action::FailRetryable } else { Action::Return(b"") }),
    );
    let reported: Vec<_> =
        messages.iter().filter(|message| message.group_id == group).map(|message| message.id.as_str()).collect();
    let mut expected: Vec<_> = reported.clone();
    expected.sort_by_key(|id| messages.iter().position(|message| message.id == **id));
    assert_eq!(invoke(&handler(&store, &work), &sample("fifo")).await.unwrap(), failures(&expected));
    assert_eq!(work.runs().len(), 1 + messages.len() - reported.len());
}

#[tokio::test]
async fn a_payment_sent_twice_through_sns_or_eventbridge_runs_once() {
    for name in ["sns-envelope", "eventbridge"] {
        let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
        let handler = handler(&store, &work);
        for _ in 0..2 {
            assert_eq!(invoke(&handler, &sample(name)).await.unwrap(), failures(&[]));
        }
        assert_eq!(work.runs().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn an_s3_notification_runs_once_and_its_test_event_runs_separately() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, BatchSettings::default());
    assert_eq!(invoke(&Handler::new(batch, None), &sample("s3-notification")).await.unwrap(), failures(&[]));
    let messages = sqs::messages(&sample("s3-notification")).unwrap();
    assert_eq!(work.message_ids(), ids(&messages)[..2]);
}

#[tokio::test]
async fn a_payload_in_s3_is_processed_if_its_bucket_is_allowed_and_reported_otherwise() {
    let messages = sqs::messages(&sample("extended-client")).unwrap();
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let all = failures(&ids(&messages));
    assert_eq!(invoke(&handler(&store, &work), &sample("extended-client")).await.unwrap(), all);
    assert_eq!(work.runs().len(), 0);

    let objects = MemoryObjectStore::default();
    let location = Payload::of(&messages[0], Envelopes::Auto).pointer().unwrap().clone();
    objects.put(&location, b"12.50 EUR".to_vec()).await.unwrap();
    let extended_client =
        with!(ExtendedClient::default(), objects = Some(Arc::new(objects)), buckets = vec![location.bucket.clone()]);
    let settings = with!(BatchSettings::default(), extended_client = extended_client);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    assert_eq!(invoke(&Handler::new(batch, None), &sample("extended-client")).await.unwrap(), failures(&[]));
    assert_eq!(work.runs()[0].key, "pay_Tn6YhJ3kQw9ZcR5d");
}

#[test]
fn the_response_has_the_format_of_aws_byte_for_byte() {
    let message = |id: &str| with!(Message::default(), id = id.into());
    let (a, b) = (message("059f36b4-87a3-44ab-83d2-661975830a7d"), message("2e1424d4-f796-459a-8184-9c92662be6da"));
    let redeliver = Disposition::Redeliver { after: None };
    let response =
        |dispositions: Vec<(&Message, Disposition)>| serde_json::to_string(&sqs::response(dispositions)).unwrap();
    assert_eq!(response(vec![]), r#"{"batchItemFailures":[]}"#);
    assert_eq!(response(vec![(&a, Disposition::Done), (&b, Disposition::Done)]), r#"{"batchItemFailures":[]}"#);
    assert_eq!(
        response(vec![(&a, Disposition::Done), (&b, redeliver)]),
        r#"{"batchItemFailures":[{"itemIdentifier":"2e1424d4-f796-459a-8184-9c92662be6da"}]}"#
    );
    assert_eq!(
        response(vec![(&a, redeliver), (&b, redeliver), (&a, redeliver)]),
        r#"{"batchItemFailures":[{"itemIdentifier":"059f36b4-87a3-44ab-83d2-661975830a7d"},{"itemIdentifier":"2e1424d4-f796-459a-8184-9c92662be6da"}]}"#
    );
}

#[tokio::test]
async fn an_event_without_records_succeeds_and_one_that_is_not_from_sqs_fails_the_invocation() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let handler = handler(&store, &work);
    assert_eq!(invoke(&handler, r#"{"Records":[]}"#).await.unwrap(), failures(&[]));
    for not_sqs in ["{}", "null", "[]", r#"{"Records":null}"#, r#"{"records":[]}"#, r#"{"key1":"value1"}"#] {
        let error = invoke(&handler, not_sqs).await.unwrap_err();
        assert!(error.contains("not an SQS event"), "{not_sqs}: {error}");
    }
    for not_json in ["", "{\"Records\":[", "{\"Records\":[]}]"] {
        let error = invoke(&handler, not_json).await.unwrap_err();
        assert!(error.contains("not an SQS event"), "{not_json}: {error}");
    }
}

#[test]
fn an_event_of_another_service_is_not_an_sqs_event() {
    for record in [
        json!({ "EventSource": "aws:sns", "EventVersion": "1.0", "Sns": { "MessageId": "1", "Message": "hello" } }),
        json!({ "eventSource": "aws:s3", "eventVersion": "2.1", "s3": { "bucket": { "name": "b" } } }),
        json!({ "eventSource": "aws:kinesis", "eventID": "shard:1", "kinesis": { "data": "aGVsbG8=" } }),
        json!({ "eventSource": "aws:dynamodb", "eventID": "1", "dynamodb": { "SequenceNumber": "1" } }),
        json!({ "eventSource": "aws:ses", "eventVersion": "1.0", "ses": { "mail": { "messageId": "1" } } }),
    ] {
        let error = sqs::messages(&json!({ "Records": [record] }).to_string()).unwrap_err().to_string();
        assert!(error.contains("check that the function's trigger is an SQS queue"), "{record}: {error}");
    }
    let other = json!({ "eventSource": "test", "messageId": "1" });
    for record in [json!({ "eventSource": "aws:sqs", "body": "b" }), json!({ "eventSource": "", "body": "b" })] {
        let of_sqs = json!({ "Records": [record, other] }).to_string();
        assert!(sqs::messages(&of_sqs).unwrap_err().to_string().contains("record 0 has no messageId"));
    }
}

#[tokio::test]
async fn a_record_without_message_id_fails_the_invocation_before_any_work() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let good = r#"{"messageId":"good","body":"{\"paymentId\":\"1\"}"}"#;
    for without_id in [
        r#"{"body":"x"}"#,
        r#"{"messageId":null,"body":"x"}"#,
        r#"{"messageId":"","body":"x"}"#,
        r#"{"messageId":7}"#,
        "{}",
        "7",
        "null",
    ] {
        let records = format!("{{\"Records\":[{good},{without_id}]}}");
        let error = invoke(&handler(&store, &work), &records).await.unwrap_err();
        assert!(error.contains("record 1 has no messageId"), "{without_id}: {error}");
    }
    assert_eq!(work.runs().len(), 0);
}

#[tokio::test]
async fn a_malformed_record_affects_only_its_own_message() {
    let good = r#"{"messageId":"good","body":"{\"paymentId\":\"1\"}"}"#;
    let malformed = [
        r#""body":null"#,
        r#""md5OfBody":"x""#,
        r#""body":{"paymentId":"2"}"#,
        r#""body":7"#,
        r#""body":"\ud800""#,
        r#""body":"{\"paymentId\":\"2\"}","attributes":[1]"#,
        r#""body":"{\"paymentId\":\"2\"}","messageAttributes":{"a":7}"#,
        r#""body":"{\"paymentId\":\"2\"}","messageAttributes":{"Idempotency-Key":{"binaryValue":"AAAA","dataType":"Binary"}}"#,
        r#""body":"""#,
        r#""body":"not JSON""#,
        r#""body":"{\"paymentId\":[1]}""#,
    ];
    for fields in malformed {
        let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
        let records = format!("{{\"Records\":[{{\"messageId\":\"bad\",{fields}}},{good}]}}");
        assert_eq!(invoke(&handler(&store, &work), &records).await.unwrap(), failures(&["bad"]), "{fields}");
        assert_eq!(work.message_ids(), ["good"], "{fields}");
    }
}

#[test]
fn an_attribute_whose_bytes_cannot_be_decoded_is_unreadable() {
    let value = |bytes: &str| {
        let attribute = format!(r#"{{"dataType":"Binary","binaryValue":"{bytes}"}}"#);
        let records =
            format!(r#"{{"Records":[{{"messageId":"m","body":"b","messageAttributes":{{"a":{attribute}}}}}]}}"#);
        sqs::messages(&records).unwrap()[0].attributes["a"].value.clone()
    };
    assert_eq!(value("AAE="), AttributeValue::Binary(vec![0, 1]));
    assert_eq!(value("%"), AttributeValue::Unreadable);
}

#[test]
fn a_malformed_record_keeps_its_readable_fields_except_the_body_and_message_attributes() {
    let arn = "arn:aws:sqs:eu-central-1:123456789012:payments.fifo";
    let attributes = r#"{"MessageGroupId":"g","MessageDeduplicationId":"d","ApproximateReceiveCount":"3"}"#;
    let fields = format!(r#""receiptHandle":"r","eventSourceARN":"{arn}","attributes":{attributes}"#);
    for malformed in [r#""body":7"#, r#""body":"b","messageAttributes":7"#] {
        let records = format!(r#"{{"Records":[{{"messageId":"m",{malformed},{fields}}},{{"messageId":"n"}}]}}"#);
        let messages = sqs::messages(&records).unwrap();
        assert_eq!(ids(&messages), ["m", "n"]);
        let Message { body, receipt_handle, queue_arn, group_id, deduplication_id, receive_count, .. } = &messages[0];
        assert_eq!((body.as_deref(), receipt_handle.as_deref(), queue_arn.as_deref()), (None, Some("r"), Some(arn)));
        assert_eq!((group_id.as_deref(), deduplication_id.as_deref(), *receive_count), (Some("g"), Some("d"), Some(3)));
        assert!(messages[0].attributes.is_empty());
    }
}

#[tokio::test]
async fn later_messages_of_a_group_do_not_overtake_a_malformed_record() {
    let arn = "arn:aws:sqs:eu-central-1:123456789012:payments.fifo";
    let record = |id: &str, group: &str, body: &str| {
        let attributes = format!(r#"{{"MessageGroupId":"{group}","MessageDeduplicationId":"{id}"}}"#);
        format!(r#"{{"messageId":"{id}","body":{body},"eventSourceARN":"{arn}","attributes":{attributes}}}"#)
    };
    let body = r#""{\"paymentId\":\"1\"}""#;
    let malformed_attribute =
        record("a1", "a", body).replace(r#""attributes":{"#, r#""attributes":{"ApproximateReceiveCount":1,"#);
    for malformed in [record("a1", "a", "7"), malformed_attribute] {
        let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
        let records = [malformed, record("a2", "a", body), record("b1", "b", body)].join(",");
        let response = invoke(&handler(&store, &work), &format!(r#"{{"Records":[{records}]}}"#)).await.unwrap();
        assert_eq!(response, failures(&["a1", "a2"]), "{records}");
        assert_eq!(work.message_ids(), ["b1"], "{records}");
    }
}

#[tokio::test]
async fn a_record_with_only_the_required_fields_is_processed() {
    for fields in
        ["", r#","attributes":null,"messageAttributes":null"#, r#","attributes":{"ApproximateReceiveCount":"many"}"#]
    {
        let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
        let records = format!(r#"{{"Records":[{{"messageId":"m","body":"{{\"paymentId\":\"1\"}}"{fields}}}]}}"#);
        assert_eq!(invoke(&handler(&store, &work), &records).await.unwrap(), failures(&[]), "{fields}");
        assert_eq!(work.runs().len(), 1);
    }
}

#[tokio::test]
async fn a_body_of_one_mib_is_processed() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let body = json!({ "paymentId": "1", "note": "n".repeat(1_048_576) }).to_string();
    let records = json!({ "Records": [{ "messageId": "m", "body": body }] }).to_string();
    assert_eq!(invoke(&handler(&store, &work), &records).await.unwrap(), failures(&[]));
    assert_eq!(work.runs().len(), 1);
}

#[test]
fn deeply_nested_json_is_an_ordinary_payload() {
    let deep = "[".repeat(500_000);
    let message = with!(Message::default(), body = Some(deep));
    let fingerprint = || FingerprintSource::Body.compute(&Payload::of(&message, Envelopes::Auto));
    assert_eq!(fingerprint(), fingerprint());
}

#[test]
fn an_arn_or_receipt_handle_that_is_not_a_string_affects_only_its_own_message() {
    for field in [r#""eventSourceARN":7"#, r#""receiptHandle":{}"#, r#""attributes":[]"#] {
        let event =
            format!(r#"{{"Records":[{{"messageId":"m1","body":"a"}},{{"messageId":"m2","body":"b",{field}}}]}}"#);
        let messages = sqs::messages(&event).unwrap();
        assert_eq!(ids(&messages), ["m1", "m2"]);
        assert_eq!((messages[0].body.as_deref(), messages[1].body.as_deref()), (Some("a"), None), "{field}");
    }
}
