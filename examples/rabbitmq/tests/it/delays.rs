//! Messages that are delivered again later.

use std::time::{Duration, Instant};

use harness::until;
use idempotent_sqs::idempotency::{Acquire, AcquireRequest};
use idempotent_sqs::{Key, RedisSettings, RedisStore, Store};

use crate::fixture::Fixture;
use crate::queues::PAYMENT;

#[tokio::test]
async fn a_message_in_conflict_is_delivered_again_after_the_lease_and_not_before() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let settings = RedisSettings::new(fixture.redis.url().parse().unwrap(), "rabbitmq-payments");
    let mut request = AcquireRequest::new(Key::new("pay-1").unwrap());
    request.lease = Duration::from_secs(3);
    let begin = Instant::now();
    let held = RedisStore::new(&settings).unwrap().acquire(request).await.unwrap();
    assert!(matches!(held, Acquire::Acquired(_)));
    fixture.queues.send("pay-1", PAYMENT).await;
    consumer.until_paid(1).await;
    assert!(begin.elapsed() >= Duration::from_secs(3));
    consumer.terminate().await;
    assert_eq!(consumer.logged("Conflict"), 1);
    assert_eq!(consumer.payments()[0]["is_recovery"].as_bool(), Some(true));
    fixture.queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_payment_that_fails_cleanly_is_tried_again_and_is_no_recovery() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    consumer.allow_payments(false);
    fixture.queues.send("pay-1", PAYMENT).await;
    until(|| async { consumer.logged("Failed {") == 2 }).await;
    consumer.allow_payments(true);
    consumer.until_paid(1).await;
    consumer.terminate().await;
    let payment = &consumer.payments()[0];
    assert_eq!((payment["attempt"].as_u64(), payment["is_recovery"].as_bool()), (Some(3), Some(false)));
    fixture.queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn while_redis_is_stopped_no_message_is_lost_or_dead_lettered() {
    let Some((mut fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    fixture.redis.kill();
    for number in 0..10 {
        fixture.queues.send(&format!("pay-{number}"), PAYMENT).await;
    }
    until(|| async { fixture.queues.delayed().await == 10 }).await;
    assert!(consumer.payments().is_empty());
    // Each has been delivered twice.
    until(|| async { consumer.logged("deliveries=2") >= 10 }).await;
    fixture.redis.restart().await;
    consumer.until_paid(10).await;
    until(|| async { fixture.queues.delayed().await == 0 }).await;
    consumer.terminate().await;
    assert_eq!((consumer.payments().len(), fixture.queues.ready(".dead").await), (10, 0));
    assert!(consumer.payments().iter().all(|payment| payment["attempt"] == 1));
    fixture.queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_message_that_redis_does_not_answer_for_is_delayed() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    // Frozen: connections stay open, and no reply comes.
    fixture.redis.signal("-STOP");
    fixture.queues.send("pay-1", PAYMENT).await;
    until(|| async { consumer.logged("Delay(") > 0 }).await;
    assert!(consumer.payments().is_empty());
    fixture.redis.signal("-CONT");
    consumer.until_paid(1).await;
    consumer.terminate().await;
    assert_eq!((consumer.payments().len(), fixture.queues.ready(".dead").await), (1, 0));
    fixture.queues.assert_all_acknowledged().await;
}
