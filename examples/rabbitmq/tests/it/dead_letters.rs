//! Messages that cannot succeed, and their redrive.

use std::collections::BTreeMap;

use harness::until;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use serde_json::json;

use crate::fixture::Fixture;
use crate::queues::{NO_AMOUNT, PAYMENT, headers};

#[tokio::test]
async fn a_message_that_cannot_succeed_is_a_dead_letter_with_its_reason() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let queues = &fixture.queues;
    queues.send("pay-1", PAYMENT).await;
    consumer.until_paid(1).await;
    let empty_key = BasicProperties::default().with_message_id("".into());
    let number = FieldTable::from(BTreeMap::from([(ShortString::from("Idempotency-Key"), AMQPValue::from(7_i64))]));
    let number_key = BasicProperties::default().with_message_id("pay-5".into()).with_headers(number);
    let id = |id: &str| BasicProperties::default().with_message_id(id.into());
    for (properties, body, outcome, reason) in [
        (id("pay-2"), NO_AMOUNT, "FAILED_PERMANENTLY", "the amount is 0"),
        (id("pay-2"), NO_AMOUNT, "FAILED", "an earlier delivery failed permanently, or used up the attempts"),
        (id("pay-1"), br#"{"amount": 99, "currency": "EUR"}"#, "MISMATCH", "the key was used for another payment"),
        (BasicProperties::default(), PAYMENT, "NO_KEY", "there is neither a header Idempotency-Key nor a message_id"),
        (empty_key, PAYMENT, "NO_KEY", "the key is empty"),
        (number_key, PAYMENT, "NO_KEY", "the header Idempotency-Key is not a string"),
        (id("pay-3"), br#"{"amount": "1111-2222"}"#, "UNREADABLE", "the body is not a payment: line 1, column 22"),
    ] {
        queues.send_with(properties.clone().with_content_type("application/json".into()), body).await;
        let letter = queues.letter().await;
        assert_eq!((&letter.why["outcome"], &letter.why["reason"]), (&json!(outcome), &json!(reason)));
        assert_eq!(letter.delivery.data, body);
        assert_eq!(letter.delivery.properties.message_id(), properties.message_id());
        assert_eq!(letter.delivery.properties.content_type().as_ref().unwrap().as_str(), "application/json");
    }
    consumer.terminate().await;
    assert_eq!((consumer.payments().len(), queues.ready(".dead").await), (1, 0));
    queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_redrive_of_a_dead_letter_runs_again_and_a_repetition_of_its_message_does_not() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let queues = &fixture.queues;
    queues.send("pay-1", NO_AMOUNT).await;
    assert_eq!(queues.letter().await.why["attempts"], 1);
    // Sent again by its producer, as after a lost acknowledgement.
    queues.send("pay-1", NO_AMOUNT).await;
    let repetition = queues.letter().await;
    assert_eq!((&repetition.why["outcome"], &repetition.why["attempts"]), (&json!("FAILED"), &json!(null)));
    queues.redrive(&repetition, NO_AMOUNT).await;
    let redriven = queues.letter().await;
    assert_eq!((&redriven.why["outcome"], &redriven.why["attempts"]), (&json!("FAILED_PERMANENTLY"), &json!(2)));
    // A corrected body may run, because no attempt took effect.
    queues.redrive(&redriven, PAYMENT).await;
    consumer.until_paid(1).await;
    consumer.terminate().await;
    let payment = &consumer.payments()[0];
    assert_eq!((payment["attempt"].as_u64(), payment["is_recovery"].as_bool()), (Some(3), Some(false)));
    assert_eq!(queues.ready(".dead").await, 0);
    queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_message_that_is_malformed_in_any_way_harms_only_itself() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let queues = &fixture.queues;
    let large = vec![b'['; 1 << 20];
    let bodies: [&[u8]; 6] = [b"", b"\xff\xfe\0", b"{", b"null", &large, br#"{"amount": -1, "currency": "EUR"}"#];
    for (number, body) in bodies.iter().enumerate() {
        queues.send(&format!("bad-{number}"), body).await;
        queues.send(&format!("good-{number}"), PAYMENT).await;
    }
    // Headers and properties that the broker would refuse or act upon in a copy.
    let properties = BasicProperties::default().with_message_id("bad-6".into()).with_user_id("guest".into());
    let properties = properties.with_expiration("60000".into()).with_headers(headers([
        ("Idempotency-Dead-Letters", "many"),
        ("Idempotency-Deliveries", "-1"),
        ("x-death", "none"),
    ]));
    queues.send_with(properties, b"{").await;
    queues.send("good-6", PAYMENT).await;
    for _ in 0..7 {
        let letter = queues.letter().await;
        assert_eq!(letter.why["outcome"], "UNREADABLE");
        let properties = &letter.delivery.properties;
        assert_eq!((properties.user_id(), properties.expiration()), (&None, &None));
        assert_eq!(properties.delivery_mode(), &Some(2));
    }
    consumer.until_paid(7).await;
    consumer.terminate().await;
    assert_eq!((consumer.payments().len(), consumer.logged("not connected")), (7, 0));
    queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_copy_is_not_sent_to_the_other_queues_of_its_message() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let queues = &fixture.queues;
    // Sender-selected distribution: the broker also sends this message to the dead-letter queue.
    let other = AMQPValue::FieldArray(vec![AMQPValue::LongString(format!("{}.dead", queues.work).into())].into());
    let cc = FieldTable::from(BTreeMap::from([(ShortString::from("CC"), other)]));
    consumer.allow_payments(false);
    queues.send_with(BasicProperties::default().with_message_id("pay-1".into()).with_headers(cc), PAYMENT).await;
    until(|| async { queues.ready(".dead").await == 1 }).await;
    until(|| async { consumer.logged("Failed {") == 2 }).await;
    consumer.allow_payments(true);
    consumer.until_paid(1).await;
    consumer.terminate().await;
    assert_eq!((consumer.payments().len(), queues.ready(".dead").await), (1, 1));
    queues.assert_all_acknowledged().await;
}
