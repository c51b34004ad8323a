//! Redis: unreachable, restarted, with TLS, as a cluster, with an unsafe configuration.

use std::collections::HashSet;
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
async fn the_invocation_fails_without_redis_and_the_next_one_succeeds_with_it() {
    let mut fixture = Fixture::start().await;
    fixture.redis.kill();
    let mut function = fixture.function().await;
    for _ in 0..2 {
        let error = function.error(event([pay("m1", "pay_1"), pay("m2", "pay_2").received(9)])).await;
        assert!(error.contains("the idempotency store is unavailable"), "{error}");
        assert!(function.is_running());
        // Otherwise each receive would wait for the visibility timeout of the queue.
        let delays = fixture.sqs.take();
        assert!((1..=2).contains(&delays["m1"]) && (256..=512).contains(&delays["m2"]), "{delays:?}");
    }
    assert!(fixture.webhook.calls().is_empty());

    fixture.redis.restart().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 2);
}

#[tokio::test]
async fn an_unresponsive_redis_fails_the_invocation_in_time() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[("REDIS_TIMEOUT_MS", "100")]).await;
    fixture.redis.signal("-STOP");
    let error = function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(5)).error().await;
    assert!(error.contains("the idempotency store is unavailable"), "{error}");
    fixture.redis.signal("-CONT");
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 1);
}

/// Waits until the record of `pay_1` has this state, and returns the record.
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
async fn an_acquire_whose_reply_was_lost_is_released_within_the_invocation_and_not_counted() {
    let fixture = Fixture::start().await;
    let front = Front::to(fixture.redis.port()).await;
    let url = format!("redis://default:{PASSWORD}@127.0.0.1:{}", front.port);
    let function = fixture.function_with(&[("REDIS_URL", &url), ("REDIS_TIMEOUT_MS", "100")]).await;
    assert_eq!(function.answer(event([pay("m0", "pay_0")])).await, NO_FAILURES);
    for _ in 0..3 {
        let before = front.connections();
        front.drop_replies(true);
        let pending = function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(20));
        record_in(b'P', &fixture.redis).await;
        // The second attempt to acquire, and the first to release.
        until(|| std::future::ready(front.connections() >= before + 2)).await;
        front.drop_replies(false);
        let error = pending.error().await;
        assert!(error.contains("the idempotency store is unavailable"), "{error}");
    }
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    let calls = fixture.webhook.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!((calls[1].header("Idempotency-Attempt"), calls[1].header("Idempotency-Recovery")), (Some("1"), None));
}

#[tokio::test]
async fn after_eight_crashes_each_with_a_lost_acquire_reply_the_work_runs_once() {
    let fixture = Fixture::start().await;
    let front = Front::to(fixture.redis.port()).await;
    let url = format!("redis://default:{PASSWORD}@127.0.0.1:{}", front.port);
    let settings = [("REDIS_URL", url.as_str()), ("LEASE_GRACE_MS", "0")];
    let mut owners = HashSet::new();
    for attempt in 1..=8 {
        // In a conflict with the previous lease, the record keeps its owner.
        soon(async {
            loop {
                let mut function = fixture.function_with(&settings).await;
                assert_eq!(function.answer(event([pay("m0", "pay_0")])).await, NO_FAILURES);
                front.drop_replies(true);
                let _unanswered = function.begin(event([pay("m1", "pay_1")]), Duration::from_millis(500));
                let record = record_in(b'P', &fixture.redis).await;
                function.kill();
                front.drop_replies(false);
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
async fn a_rejected_password_fails_the_invocation_and_is_not_logged() {
    let redis = Redis::start_with(&["--requirepass", "another"]).await;
    let fixture = Fixture { redis, webhook: Webhook::start().await, sqs: Sqs::start().await };
    let mut function = fixture.function().await;
    let error = function.error(event([pay("m1", "pay_1")])).await;
    assert!(error.contains("the idempotency store is unavailable"), "{error}");
    assert!(function.is_running());
}

#[tokio::test]
async fn the_next_invocation_succeeds_after_a_restart_without_data() {
    let mut fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    fixture.redis.kill();
    fixture.redis.restart().await;
    assert_eq!(function.answer(event([pay("m2", "pay_2")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 2);
}

#[tokio::test]
async fn the_next_invocation_succeeds_after_the_scripts_were_flushed() {
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
async fn the_next_invocation_succeeds_after_the_connection_was_killed() {
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
async fn a_value_that_is_not_a_record_fails_only_its_message_and_is_not_changed() {
    let fixture = Fixture::start().await;
    let mut redis = fixture.redis.connection().await;
    let () = redis::pipe()
        .set("payments:string", "not a record")
        .hset("payments:hash", "field", "not a record")
        .query_async(&mut redis)
        .await
        .unwrap();
    let function = fixture.function().await;
    let delivered = event(["string", "good", "hash"].map(|key| pay(key, key)));
    assert_eq!(function.invoke(delivered).await, ["string", "hash"]);
    assert_eq!(fixture.sqs.take().len(), 2, "both are delivered again after a backoff");
    assert_eq!(fixture.webhook.calls().len(), 1);

    let values: (String, String) =
        redis::pipe().get("payments:string").hget("payments:hash", "field").query_async(&mut redis).await.unwrap();
    assert_eq!(values, ("not a record".into(), "not a record".into()));
    let outcomes: Vec<_> = function.messages(3).await.into_iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["NOT_A_RECORD", "ACQUIRED", "NOT_A_RECORD"]);
}

#[tokio::test]
async fn tls_needs_only_the_url_and_certificates_are_verified() {
    let (redis, files) = Redis::start_with_tls().await;
    let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
    let url = format!("rediss://default:{PASSWORD}@127.0.0.1:{}", redis.port());
    let delivered = || event([pay("m1", "pay_1")]);
    // The first TLS handshake of a debug build is slow.
    let long_timeout = ("REDIS_TIMEOUT_MS", "5000");

    let with_ca = [long_timeout, ("SSL_CERT_FILE", files.ca_crt.to_str().unwrap())];
    let without_ca = function(&url, &webhook, &sqs, &[long_timeout]).await;
    let error = without_ca.error(delivered()).await;
    assert!(error.contains("certificate"), "{error}");
    assert!(webhook.calls().is_empty());

    let with_ca = function(&url, &webhook, &sqs, &with_ca).await;
    assert_eq!(with_ca.answer(delivered()).await, NO_FAILURES);
    assert_eq!(webhook.calls().len(), 1);
}

#[tokio::test]
async fn a_cluster_needs_only_its_setting_and_the_error_without_it_names_it() {
    let cluster = || RedisCluster::new(RedisClusterConfiguration::default());
    let cluster = tokio::task::spawn_blocking(cluster).await.unwrap();
    let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
    let url = format!("redis://default:{PASSWORD}@{}", cluster.servers[0].addr);
    let mut node = connect(url.as_str()).await;
    let mut on_other_node = None;
    for n in 0..10 {
        let value: redis::RedisResult<Option<String>> = node.get(format!("payments:pay_{n}")).await;
        on_other_node = on_other_node.or(value.is_err().then(|| event([pay("m", &format!("pay_{n}"))])));
    }
    let delivered = || event((0..10).map(|n| pay(&format!("m{n}"), &format!("pay_{n}"))));

    let without_setting = function(&url, &webhook, &sqs, &[]).await;
    for event in [on_other_node.expect("one of ten keys is on another node"), delivered()] {
        let error = without_setting.error(event).await;
        assert!(error.contains("set REDIS_CLUSTER=true"), "{error}");
    }
    assert!(webhook.calls().is_empty());

    let with_setting = function(&url, &webhook, &sqs, &[("REDIS_CLUSTER", "true")]).await;
    assert_eq!(with_setting.answer(delivered()).await, NO_FAILURES);
    assert_eq!(with_setting.answer(delivered()).await, NO_FAILURES);
    assert_eq!(webhook.calls().len(), 10);
}

#[tokio::test]
async fn an_unsafe_redis_configuration_is_logged_once_and_does_not_stop_messages() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]).await;
    let fixture = Fixture { redis, ..Fixture::start().await };
    let function = fixture.function_with(&[("IDEMPOTENCY_RETENTION_SECONDS", "3600")]).await;
    for id in ["m1", "m2", "m3"] {
        assert_eq!(function.answer(event([pay(id, id)])).await, NO_FAILURES);
        // The function reconnects and does not check the server again.
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
async fn a_server_without_script_flags_is_logged_once() {
    const WARNING: &str = "the server does not support script flags";
    let fixture = Fixture::start().await;
    let front = Front::to(fixture.redis.port()).await;
    front.reject_script_flags();
    let url = format!("redis://127.0.0.1:{}", front.port);
    let function = function(&url, &fixture.webhook, &fixture.sqs, &[]).await;
    for key in ["pay_1", "pay_2", "pay_1"] {
        assert_eq!(function.answer(event([pay(key, key)])).await, NO_FAILURES);
    }
    let log = function.logs("DUPLICATE").await;
    assert_eq!(log.iter().filter(|line| line.contains(WARNING)).count(), 1, "{log:#?}");
}

#[tokio::test]
async fn a_safe_redis_configuration_logs_no_warning() {
    let fixture = Fixture { redis: Redis::start_with(&["--appendonly", "yes"]).await, ..Fixture::start().await };
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    let log = function.logs("DUPLICATE").await;
    assert!(!log.iter().any(|line| line.contains("WARN")), "{log:#?}");
}

#[tokio::test]
async fn a_redelivery_during_a_lease_is_logged_once() {
    const WARNING: &str = "delivered again during a lease of its key";
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let (owner, other) = (fixture.function().await, fixture.function().await);
    let in_progress = owner.begin(event([pay("m1", "pay_1")]), Duration::from_secs(30));
    fixture.webhook.called(1).await;
    for received in [1, 2, 2] {
        assert_eq!(other.invoke(event([pay("m1", "pay_1").received(received)])).await, ["m1"]);
    }
    let log = other.logs(WARNING).await;
    assert_eq!(log.iter().filter(|line| line.contains(WARNING)).count(), 1);
    fixture.webhook.respond(Answer::status(200));
    assert_eq!(in_progress.answer().await, NO_FAILURES);
}
