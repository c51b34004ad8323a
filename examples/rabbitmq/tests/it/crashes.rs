//! The process ends: killed at any point, or asked to.

use std::collections::BTreeSet;
use std::time::Duration;

use harness::front::Front;
use harness::until;

use crate::consumer::{Consumer, Settings};
use crate::fixture::Fixture;
use crate::queues::{NO_AMOUNT, PAYMENT};

#[tokio::test]
async fn a_payment_whose_process_was_killed_in_mid_work_is_a_recovery_and_is_made_once() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(1000).await else { return };
    fixture.queues.send("pay-1", PAYMENT).await;
    fixture.in_flight(1).await;
    consumer.kill().await;
    assert!(consumer.payments().is_empty());
    consumer.restart().await;
    consumer.until_paid(1).await;
    consumer.terminate().await;
    let payments = consumer.payments();
    assert_eq!((payments.len(), payments[0]["is_recovery"].as_bool()), (1, Some(true)));
    // At once, and after the lease.
    assert_eq!(consumer.logged("Conflict"), 1);
    fixture.queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_payment_that_was_made_before_the_process_was_killed_is_found_by_the_recovery() {
    let Some(fixture) = Fixture::start().await else { return };
    let front = Front::to(fixture.redis.port()).await;
    let redis_url = format!("redis://127.0.0.1:{}", front.port);
    let mut consumer = Consumer::start(Settings { redis_url, work_ms: 300, ..fixture.settings.clone() }).await;
    fixture.queues.send("pay-1", PAYMENT).await;
    fixture.in_flight(1).await;
    // The payment is made, and its record cannot be written.
    front.drop_requests(true);
    consumer.until_paid(1).await;
    consumer.kill().await;
    front.drop_requests(false);
    consumer.restart().await;
    until(|| async { consumer.logged("Done {") == 1 }).await;
    consumer.terminate().await;
    assert_eq!(consumer.payments().len(), 1);
    assert_eq!(consumer.logged("recovery: true"), 1);
    fixture.queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_process_that_is_asked_to_end_acknowledges_what_runs_and_leaves_the_rest() {
    let Some(fixture) = Fixture::start().await else { return };
    let settings = Settings { work_ms: 700, prefetch: 2, ..fixture.settings.clone() };
    let mut consumer = Consumer::start(settings).await;
    for number in 0..6 {
        fixture.queues.send(&format!("pay-{number}"), PAYMENT).await;
    }
    fixture.in_flight(2).await;
    consumer.terminate().await;
    let paid = consumer.payments().len();
    assert_eq!((paid, consumer.logged("Done {")), (2, 2));
    assert_eq!((fixture.queues.ready("").await, fixture.queues.delayed().await), (4, 0));
    consumer.restart().await;
    consumer.until_paid(6).await;
    consumer.terminate().await;
    assert_eq!((consumer.payments().len(), consumer.logged("Duplicate"), consumer.logged("Conflict")), (6, 0, 0));
    fixture.queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn each_payment_is_made_once_by_processes_that_are_killed_again_and_again() {
    let Some(fixture) = Fixture::start().await else { return };
    let settings = Settings { work_ms: 20, prefetch: 4, ..fixture.settings.clone() };
    let front = Front::to(settings.amqp_port).await;
    let mut consumer = Consumer::start(Settings { amqp_port: front.port, ..settings }).await;
    let (payments, failures) = (120, 12);
    for number in 0..payments {
        fixture.queues.send(&format!("pay-{number}"), PAYMENT).await;
        if number % 10 == 0 {
            fixture.queues.send(&format!("fail-{number}"), NO_AMOUNT).await;
        }
        match number {
            15 | 45 | 75 | 105 => {
                consumer.kill().await;
                consumer.restart().await;
            }
            30 | 60 | 90 => front.cut(),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    consumer.until_paid(payments).await;
    // Each has a letter, and another one after a crash between its confirmation and the acknowledgement.
    let mut letters = BTreeSet::new();
    while letters.len() < failures {
        let letter = fixture.queues.letter().await;
        letters.insert(letter.delivery.properties.message_id().as_ref().unwrap().to_string());
    }
    until(|| async { fixture.queues.ready("").await == 0 && fixture.queues.delayed().await == 0 }).await;
    consumer.terminate().await;
    let mut keys: Vec<_> = consumer.payments().iter().map(|payment| payment["key"].to_string()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((keys.len(), consumer.payments().len()), (payments, payments));
    fixture.queues.assert_all_acknowledged().await;
}
