//! Kills, deadlines and outages.

use std::time::{Duration, Instant};

use harness::until;
use serde_json::Value;

use crate::fixture::{Fixture, event};

const HOUR_MS: u64 = 3_600_000;

/// Whether the only payment was made by a recovery.
fn was_recovered(fixture: &Fixture) -> bool {
    let payments = fixture.payments();
    assert_eq!(payments.len(), 1);
    payments[0]["is_recovery"] == Value::Bool(true)
}

#[tokio::test]
async fn a_retry_after_the_function_was_killed_in_mid_work_is_a_recovery_and_pays_once() {
    let fixture = Fixture::new().await;
    let (mut killed, retried) = (fixture.start(HOUR_MS).await, fixture.start(0).await);
    let _pending = killed.0.begin(event("http-api").to_string(), Duration::from_secs(3));
    fixture.in_flight().await;
    killed.0.kill();
    let conflict = retried.invoke(event("http-api-duplicate")).await;
    assert_eq!((conflict.status, &*conflict.problem()), (409, "in-flight"));
    // The invocation's three seconds and one more.
    assert!((1..=4).contains(&conflict.retry_after()), "{conflict:?}");
    tokio::time::sleep(Duration::from_secs(conflict.retry_after())).await;
    let recovered = retried.invoke(event("http-api")).await;
    assert_eq!((recovered.status, recovered.is_replayed()), (201, false));
    assert!(was_recovered(&fixture));
    assert_eq!(retried.invoke(event("http-api")).await.body, recovered.body);
}

#[tokio::test]
async fn a_payment_that_takes_too_long_ends_before_the_deadline_and_the_retry_is_a_recovery() {
    let fixture = Fixture::new().await;
    let (slow, retried) = (fixture.start(HOUR_MS).await, fixture.start(0).await);
    let (timeout, started) = (Duration::from_secs(4), Instant::now());
    let answer = slow.invoke_within(timeout, event("http-api")).await;
    assert_eq!((answer.status, &*answer.problem()), (504, "deadline"));
    assert!(started.elapsed() < timeout, "{:?}", started.elapsed());
    assert!(fixture.payments().is_empty());
    // Its record is settled, so no lease is in the way.
    let recovered = retried.invoke(event("http-api")).await;
    assert_eq!((recovered.status, recovered.is_replayed()), (201, false));
    assert!(was_recovered(&fixture));
}

#[tokio::test]
async fn while_redis_is_stopped_or_frozen_nothing_is_paid_and_the_answer_comes_before_the_deadline() {
    let mut fixture = Fixture::new().await;
    let function = fixture.start(0).await;
    assert_eq!(function.invoke(event("rest-api")).await.status, 201);
    let timeout = Duration::from_secs(4);
    // Frozen: connections stay open, and no reply comes.
    fixture.redis.signal("-STOP");
    for name in ["http-api", "rest-api"] {
        let started = Instant::now();
        let answer = function.invoke_within(timeout, event(name)).await;
        assert_eq!((answer.status, &*answer.problem(), answer.retry_after()), (503, "store-unavailable", 1));
        assert!(started.elapsed() < timeout, "{:?}", started.elapsed());
    }
    fixture.redis.signal("-CONT");
    fixture.redis.kill();
    let started = Instant::now();
    let answer = function.invoke_within(timeout, event("http-api")).await;
    assert_eq!((answer.status, &*answer.problem()), (503, "store-unavailable"));
    assert!(started.elapsed() < timeout, "{:?}", started.elapsed());
    assert_eq!(fixture.payments().len(), 1);
    fixture.redis.restart().await;
    until(|| async { function.invoke(event("http-api")).await.status == 201 }).await;
    assert_eq!(fixture.payments().len(), 2);
}
