//! `redrive`: the idempotency key of the message that it sends.

use harness::sqs::ACCESS_DENIED;
use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs_testing::SendRequest;
use serde_json::{Value, json};

use super::{Queues, contents, results};

/// Redrives the only letter. Returns its attribute `Idempotency-Key` and the number of letters with a new key.
async fn redriven_key(queues: &Queues, arguments: &[&str]) -> (Value, Value) {
    let (code, output) = queues.redrive(&[&["--all"], arguments].concat()).await;
    assert_eq!(code, 0, "{output}");
    let [message] = contents(&queues.payments).try_into().unwrap();
    (message["messageAttributes"]["Idempotency-Key"]["stringValue"].clone(), output["new_keys"].clone())
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
async fn a_function_that_does_not_read_the_attribute_gets_a_new_key() {
    for sources in ["messageId", "messageId,attribute:Idempotency-Key"] {
        let queues = Queues::standard().await.with("IDEMPOTENCY_KEY", sources);
        queues.add("1", &json!({ "key": "1" }));
        assert_eq!(redriven_key(&queues, &[]).await, (json!(null), json!(1)), "{sources}");
    }
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
        ("attribute:X-Key,messageId", json!({ "key": "1" }), json!(null), 1),
        ("messageId", json!({ "key": "pay_1" }), json!(null), 1),
        ("body:/id,messageId", json!({ "key": "1" }), json!(null), 1),
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
    let mut message = SendRequest::new("1");
    for n in 0..10 {
        message = message.attribute(format!("a{n}"), "text");
    }
    // As the function sends it, without room for a description.
    queues.send(message);
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
    queues.add("1", &json!({ "key": "1" }));
    queues.api.fail(|call| (call.action == "SendMessage").then_some(ACCESS_DENIED));
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, results(&output), &output["new_keys"]), (1, vec!["NOT_SENT"], &json!(0)));
    let (_, output) = queues.redrive(&["--all", "--dry-run"]).await;
    assert_eq!((results(&output), &output["new_keys"]), (vec!["WOULD_REDRIVE"], &json!(1)));
}
