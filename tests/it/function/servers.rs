use std::time::Duration;

use redis::AsyncCommands;
use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};

use super::{Fixture, NO_FAILURES, function, pay};
use harness::event::event;
use harness::front::Front;
use harness::http::{Answer, Sqs, Webhook};
use harness::lambda::PASSWORD;
use harness::redis::{Redis, connect};
use harness::{soon, until};

#[tokio::test]
async fn without_redis_the_invocation_fails_and_with_redis_the_next_one_works() {
    let mut fixture = Fixture::start().await;
    fixture.redis.kill();
    let mut function = fixture.function().await;
    for _ in 0..2 {
        let error = function.error(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await;
        assert!(error.contains("the idempotency store is unavailable"), "{error}");
        assert!(function.is_running());
    }
    assert!(fixture.webhook.calls().is_empty());
    assert!(fixture.sqs.take_calls().is_empty());

    fixture.redis.revive().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 2);
}

#[tokio::test]
async fn a_redis_that_does_not_answer_fails_the_invocation_in_time() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[("REDIS_TIMEOUT_MS", "100")]).await;
    fixture.redis.signal("-STOP");
    let error = function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(5)).error().await;
    assert!(error.contains("the idempotency store is unavailable"), "{error}");
    fixture.redis.signal("-CONT");
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 1);
}

/// State, attempts and owner of the record of `pay_1`, once it has this state.
async fn record_in(state: u8, redis: &Redis) -> Vec<u8> {
    let mut connection = redis.connection().await;
    soon(async {
        loop {
            let record: Vec<u8> = connection.get("payments:pay_1").await.unwrap();
            if record.first() == Some(&state) {
                return record;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn an_acquire_whose_reply_was_lost_is_given_back_within_the_invocation_and_counts_for_nothing() {
    let fixture = Fixture::start().await;
    let front = Front::to(fixture.redis.port()).await;
    let url = format!("redis://default:{PASSWORD}@127.0.0.1:{}", front.port);
    let function = fixture.function_with(&[("REDIS_URL", &url), ("REDIS_TIMEOUT_MS", "100")]).await;
    assert_eq!(function.answer(event([pay("m0", "pay_0")])).await, NO_FAILURES);
    for _ in 0..3 {
        let before = front.connections();
        front.swallow_replies(true);
        let begun = function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(20));
        record_in(b'P', &fixture.redis).await;
        // The second try of the acquire, and the first of the release.
        until(|| std::future::ready(front.connections() >= before + 2)).await;
        front.swallow_replies(false);
        let error = begun.error().await;
        assert!(error.contains("the idempotency store is unavailable"), "{error}");
    }
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    let calls = fixture.webhook.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!((calls[1].header("Idempotency-Attempt"), calls[1].header("Idempotency-Recovery")), (Some("1"), None));
}

#[tokio::test]
async fn eight_lost_replies_in_a_row_each_ended_by_the_end_of_the_process_leave_the_work_to_be_done_once() {
    let fixture = Fixture::start().await;
    let front = Front::to(fixture.redis.port()).await;
    let url = format!("redis://default:{PASSWORD}@127.0.0.1:{}", front.port);
    let settings = [("REDIS_URL", url.as_str()), ("LEASE_GRACE_MS", "0")];
    let mut owners = std::collections::HashSet::new();
    for attempt in 1..=8 {
        // A conflict with the lease of the one before leaves the record alone.
        soon(async {
            loop {
                let mut function = fixture.function_with(&settings).await;
                assert_eq!(function.answer(event([pay("m0", "pay_0")])).await, NO_FAILURES);
                front.swallow_replies(true);
                let _unanswered = function.begin(event([pay("m1", "pay_1")]), Duration::from_millis(500));
                let record = record_in(b'P', &fixture.redis).await;
                function.kill();
                front.swallow_replies(false);
                if owners.insert(record[12..20].to_vec()) {
                    assert_eq!(record[3], attempt);
                    return;
                }
            }
        })
        .await;
    }
    let function = fixture.function_with(&settings).await;
    soon(async { while !function.invoke(event([pay("m1", "pay_1")])).await.is_empty() {} }).await;
    let calls = fixture.webhook.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[1].header("Idempotency-Attempt"), Some("9"));
}

#[tokio::test]
async fn a_refused_password_fails_the_invocation_and_is_not_shown() {
    let redis = Redis::start_with(&["--requirepass", "another"]).await;
    let fixture = Fixture { redis, webhook: Webhook::start().await, sqs: Sqs::start().await };
    let mut function = fixture.function().await;
    let error = function.error(event([pay("m1", "pay_1")])).await;
    assert!(error.contains("the idempotency store is unavailable"), "{error}");
    assert!(function.is_running());
}

#[tokio::test]
async fn the_very_next_invocation_works_after_a_restart_that_lost_everything() {
    let mut fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    fixture.redis.kill();
    fixture.redis.revive().await;
    assert_eq!(function.answer(event([pay("m2", "pay_2")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 2);
}

#[tokio::test]
async fn the_very_next_invocation_works_after_a_flush_of_the_scripts() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let delivered = || event([pay("m1", "pay_1"), pay("m2", "pay_2")]);
    assert_eq!(function.answer(delivered()).await, NO_FAILURES);
    let mut redis = fixture.redis.connection().await;
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut redis).await.unwrap();
    assert_eq!(function.answer(delivered()).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 2);
}

#[tokio::test]
async fn the_very_next_invocation_works_after_the_connection_was_killed() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let mut redis = fixture.redis.connection().await;
    for round in 0..5 {
        let id = format!("m{round}");
        assert_eq!(function.answer(event([pay(&id, &id)])).await, NO_FAILURES);
        function.signal("-STOP");
        let killed: u32 = redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).query_async(&mut redis).await.unwrap();
        assert_eq!(killed, 1);
        function.signal("-CONT");
    }
    assert_eq!(fixture.webhook.calls().len(), 5);
}

#[tokio::test]
async fn a_foreign_value_under_our_key_is_an_error_of_its_message_alone_and_is_left_alone() {
    let fixture = Fixture::start().await;
    let mut redis = fixture.redis.connection().await;
    let () = redis::pipe()
        .set("payments:string", "somebody else's")
        .hset("payments:hash", "field", "somebody else's")
        .query_async(&mut redis)
        .await
        .unwrap();
    let function = fixture.function().await;
    let delivered = event(["string", "good", "hash"].map(|key| pay(key, key)));
    assert_eq!(function.invoke(delivered).await, ["string", "hash"]);
    assert!(fixture.sqs.take_calls().is_empty());
    assert_eq!(fixture.webhook.calls().len(), 1);

    let values: (String, String) =
        redis::pipe().get("payments:string").hget("payments:hash", "field").query_async(&mut redis).await.unwrap();
    assert_eq!(values, ("somebody else's".into(), "somebody else's".into()));
    let outcomes: Vec<_> = function.messages(3).await.into_iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["NOT_A_RECORD", "ACQUIRED", "NOT_A_RECORD"]);
}

#[tokio::test]
async fn tls_works_by_setting_alone_and_certificates_are_verified() {
    let (redis, files) = Redis::start_with_tls().await;
    let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
    let url = format!("rediss://default:{PASSWORD}@127.0.0.1:{}", redis.port());
    let delivered = || event([pay("m1", "pay_1")]);
    // The first handshake of a debug build is slow.
    let patient = ("REDIS_TIMEOUT_MS", "5000");

    let trusting = [patient, ("SSL_CERT_FILE", files.ca_crt.to_str().unwrap())];
    let suspicious = function(&url, &webhook, &sqs, &[patient]).await;
    let error = suspicious.error(delivered()).await;
    assert!(error.contains("certificate"), "{error}");
    assert!(webhook.calls().is_empty());

    let trusting = function(&url, &webhook, &sqs, &trusting).await;
    assert_eq!(trusting.answer(delivered()).await, NO_FAILURES);
    assert_eq!(webhook.calls().len(), 1);
}

#[tokio::test]
async fn a_cluster_works_by_setting_alone_and_without_it_the_error_says_so() {
    let cluster = || RedisCluster::new(RedisClusterConfiguration::default());
    let cluster = tokio::task::spawn_blocking(cluster).await.unwrap();
    let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
    let url = format!("redis://default:{PASSWORD}@{}", cluster.servers[0].addr);
    let mut node = connect(url.as_str()).await;
    let mut elsewhere = None;
    for n in 0..10 {
        let here: redis::RedisResult<Option<String>> = node.get(format!("payments:pay_{n}")).await;
        elsewhere = elsewhere.or(here.is_err().then(|| event([pay("m", &format!("pay_{n}"))])));
    }
    let delivered = || event((0..10).map(|n| pay(&format!("m{n}"), &format!("pay_{n}"))));

    let unset = function(&url, &webhook, &sqs, &[]).await;
    for event in [elsewhere.expect("ten keys are not all on one node of three"), delivered()] {
        let error = unset.error(event).await;
        assert!(error.contains("set REDIS_CLUSTER=true"), "{error}");
    }
    assert!(webhook.calls().is_empty());

    let set = function(&url, &webhook, &sqs, &[("REDIS_CLUSTER", "true")]).await;
    assert_eq!(set.answer(delivered()).await, NO_FAILURES);
    assert_eq!(set.answer(delivered()).await, NO_FAILURES);
    assert_eq!(webhook.calls().len(), 10);
}

#[tokio::test]
async fn what_could_cost_records_is_said_once_and_is_in_nobodys_way() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]).await;
    let fixture = Fixture { redis, ..Fixture::start().await };
    let function = fixture.function_with(&[("IDEMPOTENCY_RETENTION_SECONDS", "3600")]).await;
    for id in ["m1", "m2", "m3"] {
        assert_eq!(function.answer(event([pay(id, id)])).await, NO_FAILURES);
        // It is dialled anew, and not looked over again.
        fixture.redis.kill_connections().await;
    }
    for finding in
        ["records may expire before their messages", "maxmemory-policy is volatile-lru", "neither a replica nor"]
    {
        let log = function.logs(finding).await;
        assert_eq!(log.iter().filter(|line| line.contains(finding)).count(), 1, "{finding}");
    }
}

#[tokio::test]
async fn a_safe_server_and_a_long_retention_leave_the_log_in_peace() {
    let fixture = Fixture { redis: Redis::start_with(&["--appendonly", "yes"]).await, ..Fixture::start().await };
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    let log = function.logs("DUPLICATE").await;
    assert!(!log.iter().any(|line| line.contains("WARN")), "{log:#?}");
}

#[tokio::test]
async fn a_lease_that_outlives_the_visibility_timeout_is_named_where_the_event_shows_it() {
    const NAMED: &str = "delivered again during its lease";
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::Held);
    let (owner, other) = (fixture.function().await, fixture.function().await);
    let at_work = owner.begin(event([pay("m1", "pay_1")]), Duration::from_secs(30));
    fixture.webhook.called(1).await;
    for received in [1, 2, 2] {
        assert_eq!(other.invoke(event([pay("m1", "pay_1").received(received)])).await, ["m1"]);
    }
    let log = other.logs(NAMED).await;
    assert_eq!(log.iter().filter(|line| line.contains(NAMED)).count(), 1);
    fixture.webhook.answers(Answer::status(200));
    assert_eq!(at_work.answer().await, NO_FAILURES);
}
