//! `show`: one letter and its record.

use harness::redis::Redis;
use idempotent_sqs::idempotency::{Store, StoredResult};
use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs_testing::SendRequest;
use serde_json::json;

use super::super::{DIGEST, LONG, Tool, claim};
use super::Queues;

#[tokio::test]
async fn a_letter_is_found_by_either_id_and_by_its_key_and_shown_whole() {
    let queues = Queues::standard().await;
    queues.add("other", &json!({}));
    let attribute = queues.description("1", &json!({}));
    let letter = SendRequest::new("amount: 12.50\n").attribute(DeadLetter::ATTRIBUTE, attribute);
    let id = queues.send(
        letter
            .attribute("Tenant", "acme")
            .attribute("Signature", idempotent_sqs_testing::Attribute::Binary(vec![255, 0])),
    );
    for wanted in [&*id, "1", "pay_1"] {
        let (code, shown) = queues.json(&["show", wanted]).await;
        assert_eq!((code, &shown["message_id"], &shown["original_message_id"]), (0, &json!(id), &json!("1")));
        assert_eq!((&shown["key"], &shown["fence"]), (&json!("pay_1"), &json!(1_795_277_141_025_032_u64)));
        assert_eq!(shown["attributes"]["Signature"], json!({ "data_type": "Binary", "base64": "/wA=" }));
        assert_eq!((&shown["body"], &shown["body_bytes"], &shown["record"]), (&json!(null), &json!(14), &json!(null)));
        assert_eq!(queues.dead.in_flight(), 0);
    }
    let output = queues.run(&["show", "1"]).await;
    assert_eq!(output.row("reason"), "the webhook returned 422");
    assert_eq!(output.row("received"), "2026-11-22T09:31:05.123Z to 2026-11-22T09:41:05.123Z");
    assert_eq!(output.row("function"), "payments, version 7");
    assert_eq!(output.row("body"), "14 bytes; --body shows it");
    assert!(output.stdout.contains("Tenant = acme (String)") && output.stdout.contains("Signature = /wA= (Binary)"));
    assert!(output.stdout.ends_with("\nrecord: not read, because REDIS_URL is not set\n"), "{}", output.stdout);
}

#[tokio::test]
async fn the_body_is_shown_only_on_request_and_escaped() {
    let queues = Queues::standard().await;
    queues.send(
        SendRequest::new("card: 4111\n\u{202e}").attribute(DeadLetter::ATTRIBUTE, queues.description("1", &json!({}))),
    );
    for arguments in [&["show", "1"][..], &["show", "1", "--json"], &["list"], &["list", "--json"]] {
        assert!(!queues.run(arguments).await.stdout.contains("4111"), "{arguments:?}");
    }
    assert_eq!(queues.run(&["show", "1", "--body"]).await.row("body"), "card: 4111\\n\\u{202e}");
    assert_eq!(queues.json(&["show", "1", "--body"]).await.1["body"], "card: 4111\n\u{202e}");
}

#[tokio::test]
async fn the_record_of_the_key_is_shown_beside_the_letter() {
    let mut redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let (store, url) = (tool.store(), &tool.settings[0].1);
    let queues = Queues::standard().await.with("REDIS_URL", url).with("IDEMPOTENCY_NAMESPACE", "payments");
    (1..=2).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    store.complete(&claim(&store, "pay_1", LONG).await, StoredResult::Inline(b"receipt")).await.unwrap();
    let (code, shown) = queues.json(&["show", "pay_1"]).await;
    assert_eq!(
        (code, &shown["record"]["state"], &shown["record"]["result"]["text"]),
        (0, &json!("COMPLETED"), &json!("receipt"))
    );
    assert!(queues.run(&["show", "pay_1"]).await.stdout.contains("\nstate        COMPLETED\n"));
    queues.add("3", &json!({ "key": DIGEST }));
    claim(&store, DIGEST, LONG).await;
    assert_eq!(queues.json(&["show", DIGEST]).await.1["record"]["state"], "PROCESSING");
    let absent = queues.run(&["show", "pay_2"]).await;
    assert!(absent.code == 0 && absent.stdout.contains("record: no record of pay_2"), "{}", absent.stdout);
    redis.kill();
    let unread = queues.with("REDIS_TIMEOUT_MS", "200").run(&["show", "pay_1"]).await;
    assert_eq!(unread.code, 2);
    assert!(unread.row("key") == "pay_1" && unread.stdout.ends_with("\nrecord: not read\n"), "{}", unread.stdout);
    assert!(unread.stderr.starts_with("error: no usable reply from Redis"), "{}", unread.stderr);
}

#[tokio::test]
async fn a_letter_that_is_not_there_exits_with_1() {
    let queues = Queues::standard().await;
    queues.add("1", &json!({}));
    let output = queues.run(&["show", "2"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (1, "no letter has the messageId or key 2\n"));
    assert_eq!(queues.json(&["show", "2"]).await.1["outcome"], "ABSENT");
    assert_eq!(queues.dead.in_flight(), 0);
}

#[tokio::test]
async fn the_key_of_a_letter_of_the_redrive_policy_is_found_by_the_key_sources_of_the_function() {
    let body = r#"{"id": "pay_9"}"#;
    for (sources, expected) in [("", None), ("body:/id", Some("pay_9")), ("attribute:Order, body:/id", Some("o-1"))] {
        let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", sources);
        let id = queues.move_by_policy(SendRequest::new(body).attribute("Order", "o-1"));
        let (_, shown) = queues.json(&["show", &id]).await;
        assert_eq!(shown["key"], expected.unwrap_or(&id), "{sources}");
        assert_eq!(
            (&shown["outcome"], &shown["source_queue_arn"]),
            (&json!("REDRIVE_POLICY"), &json!(queues.payments.arn()))
        );
    }
    let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", "body");
    let output = queues.run(&["list"]).await;
    assert!(
        output.code == 2 && output.stderr.contains("IDEMPOTENCY_KEY: \"body\" is not a key source"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn a_key_that_cannot_be_determined_is_unknown() {
    // Its messageId in the source queue is not known.
    let queues = Queues::standard().await;
    let id = queues.send(SendRequest::new("1"));
    assert_eq!(queues.json(&["show", &id]).await.1["key"], json!(null));
    // The redrive policy of a FIFO queue replaces the deduplicationId, and the payload is in S3.
    let pointer = r#"["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"k"}]"#;
    let offloaded = SendRequest::new(pointer)
        .attribute("ExtendedPayloadSize", idempotent_sqs_testing::Attribute::Number("300000".into()));
    let message = |request: SendRequest| request.group("a").deduplication_id("d");
    for (sources, request) in [("deduplicationId,messageId", SendRequest::new("1")), ("body:/id,messageId", offloaded)]
    {
        let queues = Queues::fifo().await.with("IDEMPOTENCY_KEY", sources);
        let id = queues.move_by_policy(message(request));
        assert_eq!(queues.json(&["show", &id]).await.1["key"], json!(null), "{sources}");
    }
}
