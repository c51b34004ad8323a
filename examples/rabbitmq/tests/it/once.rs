//! A payment is made once, however often its message is delivered.

use harness::front::Front;
use harness::until;
use lapin::BasicProperties;

use crate::consumer::{CONSUMING, Consumer, Settings};
use crate::fixture::Fixture;
use crate::queues::{PAYMENT, headers};

#[tokio::test]
async fn a_hundred_concurrent_deliveries_of_a_key_pay_once() {
    let Some(fixture) = Fixture::start().await else { return };
    let mut consumer = Consumer::start(Settings { work_ms: 300, prefetch: 100, ..fixture.settings.clone() }).await;
    // All wait in the queue that it has created, and are then delivered together.
    consumer.terminate().await;
    for _ in 0..100 {
        fixture.queues.send("pay-1", PAYMENT).await;
    }
    consumer.restart().await;
    // Those that came during the payment are delivered again when its lease ends.
    until(|| async { consumer.logged("Duplicate") == 99 }).await;
    consumer.terminate().await;
    assert_eq!(consumer.payments().len(), 1);
    assert!(consumer.logged("Conflict") > 0, "no two deliveries were concurrent");
    fixture.queues.assert_all_acknowledged().await;
    assert_eq!(fixture.queues.ready(".dead").await, 0);
}

#[tokio::test]
async fn the_header_and_the_message_id_are_keys() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let queues = &fixture.queues;
    let with_header = |message_id: &str, key: &str| {
        let properties = BasicProperties::default().with_message_id(message_id.into());
        properties.with_headers(headers([("Idempotency-Key", key)]))
    };
    queues.send("pay-1", PAYMENT).await;
    queues.send_with(with_header("message-1", "pay-2"), PAYMENT).await;
    consumer.until_paid(2).await;
    queues.send_with(with_header("message-2", "pay-2"), PAYMENT).await;
    queues.send_with(with_header("pay-1", "pay-3"), PAYMENT).await;
    consumer.until_paid(3).await;
    until(|| async { consumer.logged("Duplicate") == 1 }).await;
    consumer.terminate().await;
    let mut keys: Vec<_> = consumer.payments().iter().map(|payment| payment["key"].to_string()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["\"pay-1\"", "\"pay-2\"", "\"pay-3\""]);
    queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_message_whose_acknowledgement_was_lost_is_a_duplicate() {
    let Some(fixture) = Fixture::start().await else { return };
    let front = Front::to(fixture.settings.amqp_port).await;
    let settings = Settings { amqp_port: front.port, work_ms: 300, ..fixture.settings.clone() };
    let mut consumer = Consumer::start(settings).await;
    fixture.queues.send("pay-1", PAYMENT).await;
    fixture.in_flight(1).await;
    front.drop_requests(true);
    // The acknowledgement.
    front.dropped().await;
    assert_eq!((consumer.payments().len(), consumer.logged("Done {")), (1, 1));
    front.drop_requests(false);
    front.cut();
    until(|| async { consumer.logged("Duplicate") == 1 }).await;
    consumer.terminate().await;
    assert_eq!(consumer.payments().len(), 1);
    fixture.queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_payment_during_which_the_connection_is_lost_is_settled_and_then_a_duplicate() {
    let Some(fixture) = Fixture::start().await else { return };
    let front = Front::to(fixture.settings.amqp_port).await;
    let settings = Settings { amqp_port: front.port, work_ms: 500, ..fixture.settings.clone() };
    let mut consumer = Consumer::start(settings).await;
    fixture.queues.send("pay-1", PAYMENT).await;
    fixture.in_flight(1).await;
    front.cut();
    until(|| async { consumer.logged("Duplicate") == 1 }).await;
    assert_eq!((consumer.logged("Conflict"), consumer.logged(CONSUMING)), (0, 2));
    consumer.terminate().await;
    assert_eq!(consumer.payments().len(), 1);
    fixture.queues.assert_all_acknowledged().await;
}
