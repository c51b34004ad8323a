//! Two owners of one key: conflicts, leases of killed processes and recoveries.

use std::time::{Duration, Instant};

use super::{Fixture, NO_FAILURES, pay};
use harness::event::event;
use harness::http::Answer;
use harness::soon;

#[tokio::test]
async fn a_conflict_is_redelivered_after_the_lease_ends_and_is_then_a_duplicate() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let (owner, other) = (fixture.function().await, fixture.function().await);
    let in_progress = owner.begin(event([pay("m1", "pay_1")]), Duration::from_secs(30));
    fixture.webhook.called(1).await;

    assert_eq!(other.invoke(event([pay("m1", "pay_1").received(2)])).await, ["m1"]);
    // The rest of 30 seconds, 1 second of grace and up to 2 seconds of jitter.
    let visibility = fixture.sqs.take()["m1"];
    assert!((11..=33).contains(&visibility), "{visibility}");

    fixture.webhook.respond(Answer::status(200));
    assert_eq!(in_progress.answer().await, NO_FAILURES);
    assert_eq!(other.answer(event([pay("m1", "pay_1").received(3)])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 1);
    let outcomes: Vec<_> = other.messages(2).await.into_iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["CONFLICT", "DUPLICATE"]);
}

#[tokio::test]
async fn a_conflict_does_not_affect_other_messages() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("held", Answer::Held);
    let (owner, other) = (fixture.function().await, fixture.function().await);
    let in_progress = owner.begin(event([pay("m1", "held")]), Duration::from_secs(30));
    fixture.webhook.called(1).await;
    assert_eq!(other.invoke(event([pay("m0", "pay_0"), pay("m1", "held"), pay("m2", "pay_2")])).await, ["m1"]);
    fixture.webhook.respond_for("held", Answer::status(200));
    assert_eq!(in_progress.answer().await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 3);
}

#[tokio::test]
async fn work_of_a_killed_process_is_a_conflict_until_its_lease_ends_and_then_a_recovery() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let mut killed = fixture.function_with(&[("LEASE_GRACE_MS", "0")]).await;
    let lease = Duration::from_secs(4);
    let started = Instant::now();
    let _unanswered = killed.begin(event([pay("m1", "pay_1")]), lease);
    fixture.webhook.called(1).await;
    killed.kill();
    fixture.webhook.respond(Answer::status(200));

    let function = fixture.function().await;
    let redelivered = || event([pay("m1", "pay_1").received(2)]);
    assert_eq!(function.invoke(redelivered()).await, ["m1"]);
    assert!(started.elapsed() < lease, "the test machine is too slow to observe the lease");
    assert!(matches!(fixture.sqs.take()["m1"], 1..=6));

    soon(async { while !function.invoke(redelivered()).await.is_empty() {} }).await;
    assert!(started.elapsed() >= lease, "{:?}", started.elapsed());
    let calls = fixture.webhook.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].header("Idempotency-Recovery"), None);
    assert_eq!(calls[1].header("Idempotency-Recovery"), Some("true"));
    assert_eq!(calls[1].header("Idempotency-Attempt"), Some("2"));
    assert!(calls[1].number("Idempotency-Fence") > calls[0].number("Idempotency-Fence"));
}

#[tokio::test]
async fn a_recovery_can_be_parked_for_an_operator() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Reset);
    let function = fixture.function_with(&[("IDEMPOTENCY_RECOVERY", "park")]).await;
    let delivered = |received| event([pay("m1", "pay_1").received(received)]);
    assert_eq!(function.invoke(delivered(1)).await, ["m1"]);
    assert!(matches!(fixture.sqs.take()["m1"], 1..=2));
    for received in [2, 3] {
        assert_eq!(function.invoke(delivered(received)).await, ["m1"]);
        let step = 2_u64.pow(received);
        assert!((step / 2..=step).contains(&fixture.sqs.take()["m1"]));
    }
    assert_eq!(fixture.webhook.calls().len(), 1);
}

#[tokio::test]
async fn two_processes_with_the_same_event_send_each_message_once() {
    let fixture = Fixture::start().await;
    let functions = [fixture.function().await, fixture.function().await];
    let delivered = || event((0..10).map(|n| pay(&format!("m{n}"), &format!("pay_{n}"))));
    fixture.webhook.respond(Answer::Held);
    let pending = functions.each_ref().map(|function| function.begin(delivered(), Duration::from_secs(20)));
    fixture.webhook.called(10).await;
    fixture.webhook.respond(Answer::status(200));
    let mut conflicts = 0;
    for pending in pending {
        conflicts += pending.failures().await.len();
    }
    assert_eq!(conflicts, 10);
    for function in &functions {
        assert_eq!(function.answer(delivered()).await, NO_FAILURES);
    }
    for n in 0..10 {
        assert_eq!(fixture.webhook.calls_for(&format!("pay_{n}")), 1);
    }
}
