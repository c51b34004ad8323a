//! Concurrent invocations in one process, as on Lambda Managed Instances, and a process restored from a snapshot.
//!
//! On Managed Instances Lambda neither kills nor freezes an invocation.

use std::time::{Duration, Instant};

use redis::AsyncCommands;

use super::{Fixture, NO_FAILURES, function, pay};
use harness::event::event;
use harness::front::Front;
use harness::http::Answer;
use harness::lambda::PASSWORD;
use harness::redis::closed_port;

/// Eight concurrent invocations.
const CONCURRENT: (&str, &str) = ("AWS_LAMBDA_MAX_CONCURRENCY", "8");

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn concurrent_invocations_share_a_process_and_its_connection() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let function = fixture.function_with(&[CONCURRENT]).await;
    let ids: Vec<_> = (0..8).map(|n| format!("m{n}")).collect();
    let pending: Vec<_> = ids.iter().map(|id| function.begin(event([pay(id, id)]), LONG)).collect();
    fixture.webhook.called(8).await;

    let mut redis = fixture.redis.connection().await;
    let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut redis).await.unwrap();
    assert_eq!(clients.lines().count(), 2, "the connection of the test and the one of all invocations: {clients}");

    fixture.webhook.respond(Answer::status(200));
    for pending in pending {
        assert_eq!(pending.answer().await, NO_FAILURES);
    }
    for id in &ids {
        assert_eq!(fixture.webhook.calls_for(id), 1);
    }
    assert_eq!(function.messages(8).await.len(), 8);
}

#[tokio::test]
async fn without_the_setting_invocations_run_one_after_another() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let function = fixture.function().await;
    let first = function.begin(event([pay("m1", "pay_1")]), LONG);
    let second = function.begin(event([pay("m2", "pay_2")]), LONG);
    fixture.webhook.called(1).await;
    assert_eq!(fixture.webhook.calls_for("pay_2"), 0);
    fixture.webhook.respond(Answer::status(200));
    assert_eq!(first.answer().await, NO_FAILURES);
    assert_eq!(second.answer().await, NO_FAILURES);
}

#[tokio::test]
async fn the_same_key_in_two_invocations_of_one_process_runs_once() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let function = fixture.function_with(&[CONCURRENT]).await;
    let owner = function.begin(event([pay("m1", "pay_1")]), LONG);
    fixture.webhook.called(1).await;
    assert_eq!(function.invoke(event([pay("m2", "pay_1")])).await, ["m2"]);
    fixture.webhook.respond(Answer::status(200));
    assert_eq!(owner.answer().await, NO_FAILURES);
    assert_eq!(function.answer(event([pay("m2", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 1);
}

#[tokio::test]
async fn a_log_line_has_the_request_id_of_its_own_invocation() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let function = fixture.function_with(&[CONCURRENT]).await;
    let first = function.begin(event([pay("m1", "pay_1")]), LONG);
    fixture.webhook.called(1).await;
    let second = function.begin(event([pay("m2", "pay_2")]), LONG);
    fixture.webhook.called(2).await;
    for key in ["pay_2", "pay_1"] {
        fixture.webhook.respond_for(key, Answer::status(200));
    }
    assert_eq!((first.answer().await, second.answer().await), (NO_FAILURES.into(), NO_FAILURES.into()));
    assert_eq!(function.request_ids("m1").await, ["request-0"]);
    assert_eq!(function.request_ids("m2").await, ["request-1"]);
}

#[tokio::test]
async fn an_invocation_responds_before_its_timeout_and_another_continues() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let function = fixture.function_with(&[CONCURRENT]).await;
    let (started, timeout) = (Instant::now(), Duration::from_secs(4));
    let times_out = function.begin(event([pay("m1", "times_out")]), timeout);
    let continues = function.begin(event([pay("m2", "continues")]), LONG);
    fixture.webhook.called(2).await;

    assert_eq!(times_out.failures().await, ["m1"]);
    assert!(started.elapsed() < timeout, "{:?}", started.elapsed());
    let mut redis = fixture.redis.connection().await;
    let record: String = redis.getrange("payments:times_out", 0, 0).await.unwrap();
    assert_eq!(record, "F", "settled in time");

    fixture.webhook.respond(Answer::status(200));
    assert_eq!(continues.answer().await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 2);
}

#[tokio::test]
async fn a_claim_not_settled_in_time_is_not_settled_after_its_invocation() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let front = Front::to(fixture.redis.port()).await;
    let url = format!("redis://default:{PASSWORD}@127.0.0.1:{}", front.port);
    let function = function(&url, &fixture.webhook, &fixture.sqs, &[CONCURRENT]).await;
    let times_out = function.begin(event([pay("m1", "times_out")]), Duration::from_secs(4));
    let continues = function.begin(event([pay("m2", "continues")]), LONG);
    fixture.webhook.called(2).await;
    front.forward_to(closed_port());
    front.cut();
    assert_eq!(times_out.failures().await, ["m1"]);

    front.forward_to(fixture.redis.port());
    fixture.webhook.respond(Answer::status(200));
    assert_eq!(continues.answer().await, NO_FAILURES);
    // Earlier calls are complete by then, because all invocations share one connection.
    assert_eq!(function.answer(event([pay("m3", "later")])).await, NO_FAILURES);
    let mut redis = fixture.redis.connection().await;
    for (key, expected) in [("times_out", "P"), ("continues", "C"), ("later", "C")] {
        let record: String = redis.getrange(format!("payments:{key}"), 0, 0).await.unwrap();
        assert_eq!(record, expected, "{key}");
    }
}

#[tokio::test]
async fn a_snapshot_has_no_connections_and_works_after_it_is_restored() {
    let fixture = Fixture::start().await;
    let mut redis = fixture.redis.connection().await;
    let function = fixture.function_with(&[("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")]).await;
    function.is_ready_for_its_snapshot().await;
    let info: String = redis::cmd("INFO").arg("stats").query_async(&mut redis).await.unwrap();
    let received = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
    assert_eq!(received, "1", "only the connection of the test");
    function.restore();
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 1);
}
