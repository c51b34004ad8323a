//! As on Lambda Managed Instances, where no invocation is killed and none is frozen.

use std::time::{Duration, Instant};

use redis::AsyncCommands;

use super::{Fixture, NO_FAILURES, function, pay};
use harness::event::event;
use harness::front::Front;
use harness::http::Answer;
use harness::lambda::PASSWORD;
use harness::redis::free_port;

const SEVERAL: (&str, &str) = ("AWS_LAMBDA_MAX_CONCURRENCY", "8");

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn several_invocations_share_a_process_and_its_connection() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::Held);
    let function = fixture.function_with(&[SEVERAL]).await;
    let ids: Vec<_> = (0..8).map(|n| format!("m{n}")).collect();
    let pending: Vec<_> = ids.iter().map(|id| function.begin(event([pay(id, id)]), LONG)).collect();
    fixture.webhook.called(8).await;

    let mut redis = fixture.redis.connection().await;
    let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut redis).await.unwrap();
    assert_eq!(clients.lines().count(), 2, "the test's own, and one of all invocations: {clients}");

    fixture.webhook.answers(Answer::status(200));
    for pending in pending {
        assert_eq!(pending.answer().await, NO_FAILURES);
    }
    for id in &ids {
        assert_eq!(fixture.webhook.calls_for(id), 1);
    }
    assert_eq!(function.messages(8).await.len(), 8);
}

#[tokio::test]
async fn without_the_setting_one_invocation_comes_after_another() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::Held);
    let function = fixture.function().await;
    let first = function.begin(event([pay("m1", "pay_1")]), LONG);
    let second = function.begin(event([pay("m2", "pay_2")]), LONG);
    fixture.webhook.called(1).await;
    assert_eq!(fixture.webhook.calls_for("pay_2"), 0);
    fixture.webhook.answers(Answer::status(200));
    assert_eq!(first.answer().await, NO_FAILURES);
    assert_eq!(second.answer().await, NO_FAILURES);
}

#[tokio::test]
async fn the_same_key_in_two_invocations_of_one_process_runs_once() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::Held);
    let function = fixture.function_with(&[SEVERAL]).await;
    let owner = function.begin(event([pay("m1", "pay_1")]), LONG);
    fixture.webhook.called(1).await;
    assert_eq!(function.invoke(event([pay("m2", "pay_1")])).await, ["m2"]);
    fixture.webhook.answers(Answer::status(200));
    assert_eq!(owner.answer().await, NO_FAILURES);
    assert_eq!(function.answer(event([pay("m2", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 1);
}

#[tokio::test]
async fn a_line_of_the_log_carries_the_request_id_of_its_own_invocation() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::Held);
    let function = fixture.function_with(&[SEVERAL]).await;
    let first = function.begin(event([pay("m1", "pay_1")]), LONG);
    fixture.webhook.called(1).await;
    let second = function.begin(event([pay("m2", "pay_2")]), LONG);
    fixture.webhook.called(2).await;
    for key in ["pay_2", "pay_1"] {
        fixture.webhook.answers_for(key, Answer::status(200));
    }
    assert_eq!((first.answer().await, second.answer().await), (NO_FAILURES.into(), NO_FAILURES.into()));
    assert_eq!(function.request_ids("m1").await, ["request-0"]);
    assert_eq!(function.request_ids("m2").await, ["request-1"]);
}

#[tokio::test]
async fn a_timed_out_invocation_stops_by_itself_in_time_and_another_goes_on() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::Held);
    let function = fixture.function_with(&[SEVERAL]).await;
    let (begun, timeout) = (Instant::now(), Duration::from_secs(4));
    let ends = function.begin(event([pay("m1", "ends")]), timeout);
    let goes_on = function.begin(event([pay("m2", "goes_on")]), LONG);
    fixture.webhook.called(2).await;

    assert_eq!(ends.failures().await, ["m1"]);
    assert!(begun.elapsed() < timeout, "{:?}", begun.elapsed());
    let mut redis = fixture.redis.connection().await;
    let record: String = redis.getrange("payments:ends", 0, 0).await.unwrap();
    assert_eq!(record, "F", "it was settled in time");

    fixture.webhook.answers(Answer::status(200));
    assert_eq!(goes_on.answer().await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 2);
}

#[tokio::test]
async fn what_an_invocation_could_not_settle_in_time_is_not_settled_after_it() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::Held);
    let front = Front::to(fixture.redis.port()).await;
    let url = format!("redis://default:{PASSWORD}@127.0.0.1:{}", front.port);
    let function = function(&url, &fixture.webhook, &fixture.sqs, &[SEVERAL]).await;
    let ends = function.begin(event([pay("m1", "ends")]), Duration::from_secs(4));
    let goes_on = function.begin(event([pay("m2", "goes_on")]), LONG);
    fixture.webhook.called(2).await;
    front.lead_to(free_port());
    front.cut();
    assert_eq!(ends.failures().await, ["m1"]);

    front.lead_to(fixture.redis.port());
    fixture.webhook.answers(Answer::status(200));
    assert_eq!(goes_on.answer().await, NO_FAILURES);
    // All that was asked before is done by then, as they share a connection.
    assert_eq!(function.answer(event([pay("m3", "comes_after")])).await, NO_FAILURES);
    let mut redis = fixture.redis.connection().await;
    for (key, wanted) in [("ends", "P"), ("goes_on", "C"), ("comes_after", "C")] {
        let record: String = redis.getrange(format!("payments:{key}"), 0, 0).await.unwrap();
        assert_eq!(record, wanted, "{key}");
    }
}

#[tokio::test]
async fn before_the_snapshot_nothing_is_connected_and_after_the_restore_it_works() {
    let fixture = Fixture::start().await;
    let mut redis = fixture.redis.connection().await;
    let function = fixture.function_with(&[("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")]).await;
    function.is_ready_for_its_snapshot().await;
    let info: String = redis::cmd("INFO").arg("stats").query_async(&mut redis).await.unwrap();
    let received = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
    assert_eq!(received, "1", "the test's own");
    function.restore();
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 1);
}
