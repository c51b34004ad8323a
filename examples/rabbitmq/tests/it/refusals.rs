//! The broker accepts no copy of a message.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use harness::{soon, until};

use crate::consumer::CONSUMING;
use crate::fixture::Fixture;
use crate::queues::{DELAY_QUEUES, NO_AMOUNT, PAYMENT};

const REFUSED: &str = "RabbitMQ did not accept";

#[tokio::test]
async fn a_dead_letter_whose_queue_is_missing_is_delayed_until_it_is_accepted() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let queues = &fixture.queues;
    queues.delete(".dead").await;
    queues.send("pay-1", NO_AMOUNT).await;
    until(|| async { queues.delayed().await == 1 }).await;
    assert_eq!(consumer.logged(REFUSED), 1);
    queues.create_dead_letter_queue(10).await;
    assert_eq!(queues.letter().await.why["outcome"], "FAILED");
    consumer.terminate().await;
    queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_dead_letter_whose_queue_is_full_is_delayed_until_it_is_accepted() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let queues = &fixture.queues;
    queues.delete(".dead").await;
    queues.create_dead_letter_queue(1).await;
    // A quorum queue may accept a few more than its limit.
    let mut sent = 0;
    let send_until_refused = async {
        while consumer.logged(REFUSED) == 0 {
            queues.send(&format!("pay-{sent}"), NO_AMOUNT).await;
            sent += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(send_until_refused).await;
    let mut letters = BTreeSet::new();
    while letters.len() < sent {
        letters.insert(queues.letter().await.delivery.properties.message_id().clone().unwrap());
    }
    consumer.terminate().await;
    queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_message_that_no_queue_accepts_stays_in_its_own_without_a_busy_loop() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let queues = &fixture.queues;
    for suffix in DELAY_QUEUES {
        queues.delete(suffix).await;
    }
    queues.delete(".dead").await;
    let begin = Instant::now();
    queues.send("pay-1", NO_AMOUNT).await;
    // Both copies, of two deliveries.
    until(|| async { consumer.logged(REFUSED) >= 4 }).await;
    assert!(begin.elapsed() >= Duration::from_secs(1), "the second delivery comes after a pause");
    // Others are not affected.
    queues.send("pay-2", PAYMENT).await;
    consumer.until_paid(1).await;
    consumer.terminate().await;
    assert_eq!((queues.ready("").await, consumer.logged(CONSUMING)), (1, 1));
    // The next process creates the queues.
    consumer.restart().await;
    assert_eq!(queues.letter().await.why["outcome"], "FAILED");
    consumer.terminate().await;
    queues.assert_all_acknowledged().await;
}

#[tokio::test]
async fn a_delayed_message_whose_own_queue_is_missing_waits_for_it() {
    let Some((fixture, mut consumer)) = Fixture::with_consumer(0).await else { return };
    let queues = &fixture.queues;
    consumer.allow_payments(false);
    queues.send("pay-1", PAYMENT).await;
    until(|| async { queues.delayed().await == 1 }).await;
    consumer.terminate().await;
    queues.delete("").await;
    until(|| async { queues.delayed().await == 0 }).await;
    consumer.allow_payments(true);
    consumer.restart().await;
    consumer.until_paid(1).await;
    consumer.terminate().await;
    queues.assert_all_acknowledged().await;
}
