//! Redis by Sentinel: failovers between and during invocations, and TLS.

use std::time::Duration;

use redis::AsyncCommands;

use super::{NO_FAILURES, function, pay};
use harness::event::event;
use harness::http::{Sqs, Webhook};
use harness::redis::Redis;
use harness::sentinel::{self, Sentinel, Service};
use harness::{soon, until};

#[tokio::test]
async fn batches_are_processed_before_and_after_a_failover() {
    let mut service = Service::start().await;
    let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
    let function = function(&service.url(), &webhook, &sqs, &[]).await;
    assert_eq!(function.answer(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await, NO_FAILURES);
    let replica = service.servers[1].connection().await;
    until(|| {
        let mut replica = replica.clone();
        async move {
            let states: (String, String) = redis::pipe()
                .getrange("payments:pay_1", 0, 0)
                .getrange("payments:pay_2", 0, 0)
                .query_async(&mut replica)
                .await
                .unwrap();
            states == ("C".into(), "C".into())
        }
    })
    .await;

    service.servers[0].kill();
    soon(async {
        loop {
            let after = function.begin(event([pay("m1", "pay_1"), pay("m3", "pay_3")]), Duration::from_secs(20));
            match after.outcome().await {
                Ok(answer) => break assert_eq!(String::from_utf8(answer).unwrap(), NO_FAILURES),
                Err(error) => {
                    let error = String::from_utf8(error).unwrap();
                    assert!(error.contains("the idempotency store is unavailable"), "{error}");
                }
            }
        }
    })
    .await;
    let log = function.logs("min-replicas-to-write is 0").await;
    assert_eq!(log.iter().filter(|line| line.contains("unsafe Redis configuration")).count(), 1, "{log:#?}");
    for key in ["pay_1", "pay_2", "pay_3"] {
        assert_eq!(webhook.calls_for(key), 1, "{key}");
    }
    let exists: bool = service.servers[1].connection().await.exists("payments:pay_3").await.unwrap();
    assert!(exists, "recorded on the new primary");
}

#[tokio::test]
async fn tls_applies_to_the_sentinels_and_to_the_server() {
    let (redis, files) = Redis::start_with_tls().await;
    let sentinel = Sentinel::watch_with_tls(&redis, &files).await;
    let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
    let url = sentinel::url(&[sentinel.port()]).replace("redis+", "rediss+");
    // The first TLS handshake of a debug build is slow.
    let long_timeout = ("REDIS_TIMEOUT_MS", "5000");
    let with_ca = [long_timeout, ("SSL_CERT_FILE", files.ca_crt.to_str().unwrap())];

    let without_ca = function(&url, &webhook, &sqs, &[long_timeout]).await;
    let error = without_ca.error(event([pay("m1", "pay_1")])).await;
    assert!(error.contains("none of 1 sentinels replied") && error.contains("certificate"), "{error}");

    let with_ca = function(&url, &webhook, &sqs, &with_ca).await;
    assert_eq!(with_ca.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert_eq!(webhook.calls().len(), 1);
}
