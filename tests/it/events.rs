use harness::with;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idempotent_sqs::idempotency::{Idempotency, Objects, Policy};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{
    self, Batch, BatchSettings, Disposition, Envelopes, ExtendedClient, FingerprintSource, KeySource, Message, Payload,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::MemoryObjects;
use lambda_runtime::Context;

use harness::work::{Do, Told};

fn sample(name: &str) -> String {
    std::fs::read_to_string(format!("{}/events/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// A function in this process, on records in memory, as `events/README.md` says to run the samples.
fn function<'a>(store: &'a MemoryStore, told: &'a Told) -> Handler<&'a MemoryStore, &'a Told> {
    let settings = with!(
        BatchSettings::default(),
        keys = vec![
            KeySource::Attribute("Idempotency-Key".into()),
            KeySource::Body("/paymentId".into()),
            KeySource::Body("/detail/paymentId".into()),
        ]
    );
    Handler::new(Batch::new(Idempotency::new(store, Policy::default()), told, settings), None)
}

/// The response's bytes, or the error of the invocation.
async fn invoke(function: &Handler<&MemoryStore, &Told>, event: &str) -> Result<String, String> {
    let mut context = Context::default();
    let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(30);
    context.deadline = u64::try_from(end.as_millis()).unwrap();
    let response = function.handle(event, &context).await;
    response.map(|response| serde_json::to_string(&response).unwrap()).map_err(|error| error.to_string())
}

fn failures(ids: &[&str]) -> String {
    let ids: Vec<_> = ids.iter().map(|id| format!("{{\"itemIdentifier\":\"{id}\"}}")).collect();
    format!("{{\"batchItemFailures\":[{}]}}", ids.join(","))
}

fn ids(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.id.as_str()).collect()
}

#[test]
fn every_sample_is_parsed_whole_and_carries_what_aws_sends() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/events")).unwrap() {
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
async fn a_first_delivery_runs_its_redelivery_and_its_redrive_are_duplicates() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let function = function(&store, &told);
    for name in ["first-delivery", "redelivery", "redrive"] {
        assert_eq!(invoke(&function, &sample(name)).await.unwrap(), failures(&[]), "{name}");
        assert_eq!(told.runs().len(), 3, "{name}");
    }
    let (first, redriven) =
        (sqs::messages(&sample("first-delivery")).unwrap(), sqs::messages(&sample("redrive")).unwrap());
    assert!(ids(&redriven).iter().all(|id| !ids(&first).contains(id)), "a redrive brings new messageIds");
}

#[tokio::test(start_paused = true)]
async fn of_a_mixed_batch_only_what_is_in_conflict_or_wrong_comes_again() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let function = function(&store, &told);
    invoke(&function, &sample("first-delivery")).await.unwrap();
    let messages = sqs::messages(&sample("mixed")).unwrap();

    let hangs = Told::to(Do::Hang);
    let other = crate::events::function(&store, &hangs);
    let conflict: serde_json::Value = serde_json::from_str(&sample("mixed")).unwrap();
    let conflict = serde_json::json!({ "Records": [conflict["Records"][2]] }).to_string();
    assert!(tokio::time::timeout(Duration::from_secs(1), invoke(&other, &conflict)).await.is_err());

    let ids = ids(&messages);
    assert_eq!(invoke(&function, &sample("mixed")).await.unwrap(), failures(&[ids[2], ids[3], ids[4]]));
    assert_eq!(told.ran()[3..], [ids[0], ids[5]], "new, and one of the in-batch duplicates");
}

#[tokio::test]
async fn a_fifo_batch_runs_in_order_within_its_groups() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let messages = sqs::messages(&sample("fifo")).unwrap();
    assert!(messages.iter().all(Message::is_fifo));
    assert!(messages.iter().all(|message| message.deduplication_id.is_some()));
    assert_eq!(invoke(&function(&store, &told), &sample("fifo")).await.unwrap(), failures(&[]));
    let ran = told.ran();
    for group in messages.iter().map(|message| &message.group_id) {
        let sent: Vec<_> =
            messages.iter().filter(|message| message.group_id == *group).map(|message| &message.id).collect();
        let ran: Vec<_> = ran.iter().filter(|id| sent.contains(id)).collect();
        assert_eq!(sent, ran);
    }
}

#[tokio::test]
async fn a_fifo_batch_whose_groups_have_the_same_deduplication_ids_is_worked_on_whole() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let messages = sqs::messages(&sample("fifo")).unwrap();
    let ids: HashSet<_> = messages.iter().map(|message| &message.deduplication_id).collect();
    assert!(ids.len() < messages.len());
    let settings = with!(BatchSettings::default(), keys = vec![KeySource::DeduplicationId]);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &told, settings);
    assert_eq!(invoke(&Handler::new(batch, None), &sample("fifo")).await.unwrap(), failures(&[]));
    assert_eq!(told.runs().len(), messages.len());
}

#[tokio::test]
async fn a_fifo_batch_names_the_failed_and_the_rest_of_its_group() {
    let messages = sqs::messages(&sample("fifo")).unwrap();
    let first = messages[0].id.clone();
    let group = messages[0].group_id.clone();
    let (store, told) = (
        MemoryStore::default(),
        Told::by(move |run| if run.message_id == first { Do::Refuse } else { Do::Return(b"") }),
    );
    let held: Vec<_> =
        messages.iter().filter(|message| message.group_id == group).map(|message| message.id.as_str()).collect();
    let mut named: Vec<_> = held.clone();
    named.sort_by_key(|id| messages.iter().position(|message| message.id == **id));
    assert_eq!(invoke(&function(&store, &told), &sample("fifo")).await.unwrap(), failures(&named));
    assert_eq!(told.runs().len(), 1 + messages.len() - held.len());
}

#[tokio::test]
async fn a_payment_that_comes_again_by_sns_or_eventbridge_runs_once() {
    for name in ["sns-envelope", "eventbridge"] {
        let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
        let function = function(&store, &told);
        for _ in 0..2 {
            assert_eq!(invoke(&function, &sample(name)).await.unwrap(), failures(&[]));
        }
        assert_eq!(told.runs().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_notification_of_s3_runs_once_and_its_test_is_a_message_of_its_own() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &told, BatchSettings::default());
    assert_eq!(invoke(&Handler::new(batch, None), &sample("s3-notification")).await.unwrap(), failures(&[]));
    let messages = sqs::messages(&sample("s3-notification")).unwrap();
    assert_eq!(told.ran(), ids(&messages)[..2]);
}

#[tokio::test]
async fn a_payload_in_s3_is_worked_on_where_the_settings_name_its_bucket_and_else_reported() {
    let messages = sqs::messages(&sample("extended-client")).unwrap();
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let reported = failures(&ids(&messages));
    assert_eq!(invoke(&function(&store, &told), &sample("extended-client")).await.unwrap(), reported);
    assert_eq!(told.runs().len(), 0);

    let objects = MemoryObjects::default();
    let place = Payload::of(&messages[0], Envelopes::Auto).pointer().unwrap().clone();
    objects.put(&place, b"12.50 EUR".to_vec()).await.unwrap();
    let extended_client =
        with!(ExtendedClient::default(), objects = Some(Arc::new(objects)), buckets = vec![place.bucket.clone()]);
    let settings = with!(BatchSettings::default(), extended_client = extended_client);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &told, settings);
    assert_eq!(invoke(&Handler::new(batch, None), &sample("extended-client")).await.unwrap(), failures(&[]));
    assert_eq!(told.runs()[0].key, "pay_Tn6YhJ3kQw9ZcR5d");
}

#[test]
fn the_response_is_these_bytes() {
    let message = |id: &str| with!(Message::default(), id = id.into());
    let (a, b) = (message("059f36b4-87a3-44ab-83d2-661975830a7d"), message("2e1424d4-f796-459a-8184-9c92662be6da"));
    let again = Disposition::Redeliver { after: None };
    let bytes = |answers: Vec<(&Message, Disposition)>| serde_json::to_string(&sqs::response(answers)).unwrap();
    assert_eq!(bytes(vec![]), r#"{"batchItemFailures":[]}"#);
    assert_eq!(bytes(vec![(&a, Disposition::Done), (&b, Disposition::Done)]), r#"{"batchItemFailures":[]}"#);
    assert_eq!(
        bytes(vec![(&a, Disposition::Done), (&b, again)]),
        r#"{"batchItemFailures":[{"itemIdentifier":"2e1424d4-f796-459a-8184-9c92662be6da"}]}"#
    );
    assert_eq!(
        bytes(vec![(&a, again), (&b, again), (&a, again)]),
        r#"{"batchItemFailures":[{"itemIdentifier":"059f36b4-87a3-44ab-83d2-661975830a7d"},{"itemIdentifier":"2e1424d4-f796-459a-8184-9c92662be6da"}]}"#
    );
}

#[tokio::test]
async fn an_event_without_records_is_answered_and_one_that_is_not_sqs_s_fails_the_invocation() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let function = function(&store, &told);
    assert_eq!(invoke(&function, r#"{"Records":[]}"#).await.unwrap(), failures(&[]));
    for not_sqs in ["{}", "null", "[]", r#"{"Records":null}"#, r#"{"records":[]}"#, r#"{"key1":"value1"}"#] {
        let error = invoke(&function, not_sqs).await.unwrap_err();
        assert!(error.contains("not an SQS event"), "{not_sqs}: {error}");
    }
    for not_json in ["", "{\"Records\":[", "{\"Records\":[]}]"] {
        let error = invoke(&function, not_json).await.unwrap_err();
        assert!(error.contains("not an SQS event"), "{not_json}: {error}");
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_named_fails_the_invocation_before_anything_runs() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let good = r#"{"messageId":"good","body":"{\"paymentId\":\"1\"}"}"#;
    for nameless in [
        r#"{"body":"x"}"#,
        r#"{"messageId":null,"body":"x"}"#,
        r#"{"messageId":"","body":"x"}"#,
        r#"{"messageId":7}"#,
        "{}",
        "7",
        "null",
    ] {
        let records = format!("{{\"Records\":[{good},{nameless}]}}");
        let error = invoke(&function(&store, &told), &records).await.unwrap_err();
        assert!(error.contains("record 1 has no messageId"), "{nameless}: {error}");
    }
    assert_eq!(told.runs().len(), 0);
}

#[tokio::test]
async fn a_record_of_a_strange_shape_harms_only_itself() {
    let good = r#"{"messageId":"good","body":"{\"paymentId\":\"1\"}"}"#;
    let strange = [
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
    for fields in strange {
        let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
        let records = format!("{{\"Records\":[{{\"messageId\":\"strange\",{fields}}},{good}]}}");
        assert_eq!(invoke(&function(&store, &told), &records).await.unwrap(), failures(&["strange"]), "{fields}");
        assert_eq!(told.ran(), ["good"], "{fields}");
    }
}

#[test]
fn a_record_that_cannot_be_read_keeps_what_sends_it_to_the_dead_letter_queue() {
    let arn = "arn:aws:sqs:eu-central-1:123456789012:payments";
    let records = format!(
        r#"{{"Records":[{{"messageId":"m","body":7,"receiptHandle":"r","eventSourceARN":"{arn}"}},{{"messageId":"n"}}]}}"#
    );
    let messages = sqs::messages(&records).unwrap();
    assert_eq!(ids(&messages), ["m", "n"]);
    assert_eq!((messages[0].receipt_handle.as_deref(), messages[0].queue_arn.as_deref()), (Some("r"), Some(arn)));
    assert_eq!(messages[0].body, None);
}

#[tokio::test]
async fn a_record_with_the_least_of_fields_is_worked_on() {
    for fields in
        ["", r#","attributes":null,"messageAttributes":null"#, r#","attributes":{"ApproximateReceiveCount":"many"}"#]
    {
        let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
        let records = format!(r#"{{"Records":[{{"messageId":"m","body":"{{\"paymentId\":\"1\"}}"{fields}}}]}}"#);
        assert_eq!(invoke(&function(&store, &told), &records).await.unwrap(), failures(&[]), "{fields}");
        assert_eq!(told.runs().len(), 1);
    }
}

#[tokio::test]
async fn a_body_of_a_mebibyte_is_worked_on() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let body = serde_json::json!({ "paymentId": "1", "note": "n".repeat(1_048_576) }).to_string();
    let records = serde_json::json!({ "Records": [{ "messageId": "m", "body": body }] }).to_string();
    assert_eq!(invoke(&function(&store, &told), &records).await.unwrap(), failures(&[]));
    assert_eq!(told.runs().len(), 1);
}

#[test]
fn json_nested_without_end_is_a_payload_like_any_other() {
    let deep = "[".repeat(500_000);
    let message = with!(Message::default(), body = Some(deep));
    let fingerprint = || FingerprintSource::Body.compute(&Payload::of(&message, Envelopes::Auto));
    assert_eq!(fingerprint(), fingerprint());
}

#[test]
fn a_record_whose_arn_or_handle_is_no_text_harms_only_itself() {
    for field in [r#""eventSourceARN":7"#, r#""receiptHandle":{}"#, r#""attributes":[]"#] {
        let event =
            format!(r#"{{"Records":[{{"messageId":"m1","body":"a"}},{{"messageId":"m2","body":"b",{field}}}]}}"#);
        let messages = idempotent_sqs::sqs::messages(&event).unwrap();
        assert_eq!(messages.iter().map(|message| &*message.id).collect::<Vec<_>>(), ["m1", "m2"]);
        assert_eq!((messages[0].body.as_deref(), messages[1].body.as_deref()), (Some("a"), None), "{field}");
    }
}
