//! `redrive`: the idempotency key of the message that it sends.

use harness::sqs::ACCESS_DENIED;
use idempotent_sqs::sqs::{DeadLetter, Message};
use idempotent_sqs_testing::{Attribute, SendRequest};
use serde_json::{Value, json};

use super::{Queues, contents, results, without_description};

/// Redrives the only letter. Returns its attribute `Idempotency-Key`, or as [`kept`] its messageId in an attribute, and the
/// number of letters with a new key.
async fn redriven_key(queues: &Queues, arguments: &[&str]) -> (Value, Value) {
    let (code, output) = queues.redrive(&[&["--all"], arguments].concat()).await;
    assert_eq!(code, 0, "{output}");
    let [message] = contents(&queues.payments).try_into().unwrap();
    let attribute = |name| message["messageAttributes"][name]["stringValue"].as_str();
    let id = attribute(Message::ID_ATTRIBUTE).map_or(Value::Null, kept);
    (attribute("Idempotency-Key").map_or(id, Value::from), output["new_keys"].clone())
}

/// This messageId in an attribute.
fn kept(id: &str) -> Value {
    json!({ "id": id })
}

/// A message whose payload is in S3.
fn pointer() -> SendRequest {
    let body = r#"["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"k"}]"#;
    SendRequest::new(body).attribute("ExtendedPayloadSize", Attribute::Number("300000".into()))
}

#[tokio::test]
async fn a_key_that_is_the_original_message_id_is_added_as_an_attribute() {
    let queues = Queues::standard().await;
    queues.add("0191d3a2", &json!({ "key": "0191d3a2" }));
    assert_eq!(redriven_key(&queues, &[]).await, (json!("0191d3a2"), json!(0)));
    queues.add("0191d3a2", &json!({ "key": "0191d3a2" }));
    assert_eq!(redriven_key(&queues, &["--as-is"]).await, (json!(null), json!(1)));
}

#[tokio::test]
async fn a_letter_of_the_redrive_policy_keeps_its_message_id_as_its_key() {
    let queues = Queues::standard().await;
    let id = queues.move_by_policy(SendRequest::new("1"));
    assert_eq!(redriven_key(&queues, &[]).await, (json!(id), json!(0)));
}

#[tokio::test]
async fn a_key_that_the_function_would_not_find_again_is_added() {
    let queues = Queues::standard().await;
    queues.add("1", &json!({ "key": "of-other-sources" }));
    assert_eq!(redriven_key(&queues, &[]).await, (json!("of-other-sources"), json!(0)));
    queues.add("2", &json!({ "outcome": "NO_KEY", "key": null }));
    assert_eq!(redriven_key(&queues, &[]).await, (json!(null), json!(1)), "the messageId is a key by default");
    let own = SendRequest::new("3").attribute("Idempotency-Key", "own");
    queues.send(own.attribute(DeadLetter::ATTRIBUTE, queues.description("3", &json!({ "key": "own" }))));
    assert_eq!(redriven_key(&queues, &[]).await, (json!("own"), json!(0)));
}

#[tokio::test]
async fn a_key_in_the_body_stays_the_same_whatever_it_contains() {
    let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", "body:/id");
    for key in ["pay_1", "1", "pay\0_1", "pay_1\0new"] {
        let message = SendRequest::new(json!({ "id": key }).to_string());
        queues.send(message.attribute(DeadLetter::ATTRIBUTE, queues.description("1", &json!({ "key": key }))));
        assert_eq!(redriven_key(&queues, &[]).await, (json!(null), json!(0)), "{key:?}");
    }
}

#[tokio::test]
async fn a_message_with_ten_attributes_gets_no_other_one_and_its_new_key_is_reported() {
    let queues = Queues::standard().await;
    let mut message = SendRequest::new("1");
    for n in 0..10 {
        message = message.attribute(format!("a{n}"), "text");
    }
    queues.move_by_policy(message);
    assert_eq!(redriven_key(&queues, &[]).await, (json!(null), json!(1)));
    // With the description it had ten attributes, so there is room for the key.
    let mut message =
        SendRequest::new("2").attribute(DeadLetter::ATTRIBUTE, queues.description("2", &json!({ "key": "2" })));
    for n in 0..9 {
        message = message.attribute(format!("a{n}"), "text");
    }
    queues.send(message);
    assert_eq!(redriven_key(&queues, &[]).await, (json!("2"), json!(0)));
}

#[tokio::test]
async fn a_function_that_does_not_read_keys_from_the_attribute_gets_the_old_message_id() {
    for sources in ["messageId", "messageId,attribute:Idempotency-Key"] {
        let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", sources);
        queues.add("1", &json!({ "key": "1" }));
        assert_eq!(redriven_key(&queues, &[]).await, (kept("1"), json!(0)), "{sources}");
    }
}

/// The payload may be an envelope, whose id is the key. If it is none, the old messageId is.
#[tokio::test]
async fn a_message_whose_payload_is_in_s3_keeps_its_message_id_and_gets_no_key_that_the_payload_may_replace() {
    for sources in ["attribute:Idempotency-Key,messageId", "body:/id,messageId"] {
        let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", sources);
        let id = queues.move_by_policy(pointer());
        assert_eq!(queues.json(&["show", &id]).await.1["key"], json!(null), "{sources}");
        assert_eq!(redriven_key(&queues, &[]).await, (kept(&id), json!(0)), "{sources}");
        let description = queues.description("m1", &json!({ "outcome": "UNREADABLE", "key": null }));
        let letter = || pointer().attribute(DeadLetter::ATTRIBUTE, description.clone());
        queues.send(letter());
        assert_eq!(redriven_key(&queues, &["--as-is"]).await, (json!(null), json!(1)), "{sources}");
        queues.send(letter());
        assert_eq!(redriven_key(&queues, &[]).await, (kept("m1"), json!(0)), "{sources}");
        // It failed again.
        let again = queues.move_by_policy(pointer().attribute(Message::ID_ATTRIBUTE, "m1"));
        assert_ne!(again, "m1");
        assert_eq!(redriven_key(&queues, &[]).await, (kept("m1"), json!(0)), "{sources}");
    }
}

#[tokio::test]
async fn a_key_in_a_payload_in_s3_stays_the_same() {
    for (sources, key, attribute) in [
        ("body:/id", "pay_1", json!(null)),
        ("attribute:Idempotency-Key,messageId", "of-the-envelope", json!("of-the-envelope")),
    ] {
        let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", sources);
        let description = queues.description("m1", &json!({ "key": key }));
        queues.send(pointer().attribute(DeadLetter::ATTRIBUTE, description));
        assert_eq!(redriven_key(&queues, &[]).await, (attribute, json!(0)), "{sources}");
    }
}

/// A FIFO queue gives it another deduplicationId, and the payload is not known.
#[tokio::test]
async fn a_message_whose_payload_is_in_s3_may_have_a_new_key_after_a_deduplication_id() {
    let queues = Queues::fifo().await.with("IDEMPOTENCY_KEY", "body:/id,deduplicationId,messageId");
    let description = queues.description("m1", &json!({ "outcome": "UNREADABLE", "key": null }));
    queues.send(pointer().attribute(DeadLetter::ATTRIBUTE, description).group("a").deduplication_id("1"));
    assert_eq!(redriven_key(&queues, &[]).await, (json!(null), json!(1)));
}

#[tokio::test]
async fn a_key_from_the_deduplication_id_is_added_because_a_redrive_changes_that_id() {
    for (sources, added, new_keys) in [
        ("attribute:Idempotency-Key,deduplicationId", json!("a d1"), 0),
        ("deduplicationId", json!(null), 1),
        ("attribute:Idempotency-Key,messageId", json!("a d1"), 0),
    ] {
        let queues = Queues::fifo().await.with("IDEMPOTENCY_KEY", sources);
        let attribute = queues.description("1", &json!({ "key": "a d1" }));
        let letter = SendRequest::new("1").attribute(DeadLetter::ATTRIBUTE, attribute);
        queues.send(letter.group("a").deduplication_id("1"));
        assert_eq!(redriven_key(&queues, &[]).await, (added, json!(new_keys)), "{sources}");
    }
}

#[tokio::test]
async fn the_new_key_is_what_the_function_finds_with_its_present_sources() {
    for (sources, fields, added, new_keys) in [
        ("attribute:X-Key,messageId", json!({ "key": "1" }), kept("1"), 0),
        ("messageId", json!({ "key": "pay_1" }), json!(null), 1),
        ("body:/id,messageId", json!({ "key": "1" }), kept("1"), 0),
        ("body:/id,attribute:Idempotency-Key", json!({ "key": "1" }), json!("1"), 0),
        // The function found no key, and now it would find the messageId.
        ("messageId", json!({ "outcome": "NO_KEY", "key": null }), json!(null), 1),
        ("body:/id", json!({ "outcome": "NO_KEY", "key": null }), json!(null), 0),
    ] {
        let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", sources);
        queues.add("1", &fields);
        assert_eq!(redriven_key(&queues, &[]).await, (added, json!(new_keys)), "{sources} {fields}");
    }
}

#[tokio::test]
async fn a_letter_whose_key_is_unknown_may_have_a_new_key() {
    let queues = Queues::standard().await;
    queues.send(without_description("1"));
    let (code, output) = queues.redrive(&["--all", "--to", &queues.api.queue_url(&queues.payments)]).await;
    assert_eq!((code, &output["new_keys"]), (0, &json!(1)), "{output}");
}

/// The FIFO queue gives the message a deduplicationId, which the first source reads.
#[tokio::test]
async fn a_letter_of_a_standard_queue_that_goes_to_a_fifo_queue_is_reported_with_its_new_key() {
    let queues = Queues::of_types(".fifo", "").await;
    let queues = queues.with("IDEMPOTENCY_KEY", "deduplicationId,attribute:Idempotency-Key,messageId");
    let attribute = queues.description("m1", &json!({ "key": "a d1" }));
    queues.send(SendRequest::new("m1").attribute(DeadLetter::ATTRIBUTE, attribute).group("a"));
    assert_eq!(redriven_key(&queues, &[]).await, (json!(null), json!(1)));
}

/// The message has no deduplicationId in the standard queue, so the function finds the attribute.
#[tokio::test]
async fn a_letter_of_a_fifo_queue_that_goes_to_a_standard_queue_keeps_its_key() {
    let queues = Queues::of_types("", ".fifo").await;
    let queues = queues.with("IDEMPOTENCY_KEY", "deduplicationId,attribute:Idempotency-Key,messageId");
    queues.add_to_group("m1", "m1");
    assert_eq!(redriven_key(&queues, &[]).await, (json!("pay_m1"), json!(0)));
}

#[tokio::test]
async fn only_messages_that_sqs_accepted_are_counted_under_new_keys() {
    let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", "messageId");
    queues.add("1", &json!({ "key": "pay_1" }));
    queues.api.fail(|call| (call.action == "SendMessage").then_some(ACCESS_DENIED));
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, results(&output), &output["new_keys"]), (1, vec!["NOT_SENT"], &json!(0)));
    let (_, output) = queues.redrive(&["--all", "--dry-run"]).await;
    assert_eq!((results(&output), &output["new_keys"]), (vec!["WOULD_REDRIVE"], &json!(1)));
}

/// A message in S3 with this description.
fn in_s3(queues: &Queues, message_id: &str, description: &Value) -> SendRequest {
    let pointer = r#"["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"k"}]"#;
    SendRequest::new(pointer)
        .attribute("ExtendedPayloadSize", Attribute::Number("300000".into()))
        .attribute(DeadLetter::ATTRIBUTE, queues.description(message_id, description))
}

/// Its key was its deduplicationId, which the standard queue does not have.
#[tokio::test]
async fn a_letter_of_a_fifo_queue_whose_payload_is_in_s3_is_reported_with_its_new_key_in_a_standard_queue() {
    let queues = Queues::of_types("", "").await.with("IDEMPOTENCY_KEY", "deduplicationId,messageId");
    let source = "arn:aws:sqs:eu-central-1:123456789012:orders.fifo";
    queues.send(in_s3(&queues, "m1", &json!({ "key": "a d1", "source_queue_arn": source })).group("a"));
    let (code, output) = queues.redrive(&["--all", "--to", &queues.api.queue_url(&queues.payments)]).await;
    assert_eq!((code, &output["new_keys"]), (0, &json!(1)), "{output}");
}

/// It had no deduplicationId in the standard queue, and gets none there.
#[tokio::test]
async fn a_letter_of_a_standard_queue_whose_payload_is_in_s3_keeps_its_key_by_way_of_a_fifo_dead_letter_queue() {
    for (sources, key) in [("deduplicationId,messageId", "m1"), ("deduplicationId,body:/id", "pay_1")] {
        let queues = Queues::of_types("", ".fifo").await.with("IDEMPOTENCY_KEY", sources);
        queues.send(in_s3(&queues, "m1", &json!({ "key": key })).group("m1").deduplication_id("m1"));
        let (code, output) = queues.redrive(&["--all"]).await;
        assert_eq!((code, &output["new_keys"]), (0, &json!(0)), "{sources}: {output}");
    }
}

#[tokio::test]
async fn the_id_of_an_envelope_is_the_key_of_a_letter_without_a_description() {
    let queues = Queues::standard().await;
    let body = r#"{"Type": "Notification", "MessageId": "a9fe3c1d", "Message": "12.50 EUR",
        "TopicArn": "arn:aws:sns:eu-central-1:123456789012:payments", "Timestamp": "2026-11-19T09:31:05Z"}"#;
    queues.send(without_description(body));
    assert_eq!(queues.listed(&[], "key").await, ["a9fe3c1d"]);
    let (code, output) = queues.redrive(&["--all", "--to", &queues.api.queue_url(&queues.payments)]).await;
    assert_eq!((code, &output["new_keys"]), (0, &json!(0)), "{output}");
}

/// The queue that it comes from may be a FIFO queue.
#[tokio::test]
async fn a_letter_without_a_description_may_have_had_a_deduplication_id() {
    let queues = Queues::of_types("", "").await.with("IDEMPOTENCY_KEY", "deduplicationId,attribute:a0");
    queues.send(without_description("1").group("g"));
    assert_eq!(queues.listed(&[], "key").await, [json!(null)]);
    let (code, output) = queues.redrive(&["--all", "--to", &queues.api.queue_url(&queues.payments)]).await;
    assert_eq!((code, &output["new_keys"]), (0, &json!(1)), "{output}");
}

#[tokio::test]
async fn a_message_that_has_no_key_before_and_after_is_not_counted_as_new() {
    let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", "body:/id");
    queues.move_by_policy(SendRequest::new("{}"));
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, &output["new_keys"]), (0, &json!(0)), "{output}");
}

/// With other sources before, an id was the key. Now the function takes it from the payload, which is not known.
#[tokio::test]
async fn a_key_that_was_an_id_and_is_now_taken_from_a_payload_in_s3_is_reported_as_new() {
    for (id, key, new_keys) in [("m1", "m1", 1), ("m1", "a d1", 1), ("m1", "kept", 1), ("m1", "pay_1", 0)] {
        let queues = Queues::of_types(".fifo", ".fifo").await.with("IDEMPOTENCY_KEY", "body:/paymentId");
        let letter = in_s3(&queues, id, &json!({ "key": key })).attribute(Message::ID_ATTRIBUTE, "kept");
        queues.send(letter.group("a").deduplication_id("1"));
        assert_eq!(redriven_key(&queues, &[]).await, (kept("kept"), json!(new_keys)), "{key}");
    }
}

/// The function reads it before the payload.
#[tokio::test]
async fn a_key_that_was_an_id_is_added_as_an_attribute_also_if_the_payload_is_in_s3() {
    let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", "attribute:Idempotency-Key,body:/paymentId");
    queues.send(in_s3(&queues, "m1", &json!({ "key": "m1" })));
    assert_eq!(redriven_key(&queues, &[]).await, (json!("m1"), json!(0)));
}
