//! The function's binary, from the Lambda Runtime API to Redis, the webhook and SQS.

mod concurrency;
mod credentials;
mod dead_letters;
mod events;
mod leases;
mod logs;
mod metrics;
mod redis;
mod s3;
mod sentinel;
#[cfg(feature = "otel")]
mod traces;
mod visibility;
mod webhook;

use harness::event::{Record, event};
use harness::front::Front;
use harness::http::{Answer, Sqs, Webhook};
use harness::lambda::{Function, PASSWORD};
use harness::redis::Redis;

/// The servers that a function uses, except Lambda.
struct Fixture {
    redis: Redis,
    webhook: Webhook,
    sqs: Sqs,
}

impl Fixture {
    async fn start() -> Self {
        Self { redis: Redis::start().await, webhook: Webhook::start().await, sqs: Sqs::start().await }
    }

    async fn function(&self) -> Function {
        self.function_with(&[]).await
    }

    async fn function_with(&self, settings: &[(&str, &str)]) -> Function {
        let redis = format!("redis://default:{PASSWORD}@127.0.0.1:{}", self.redis.port());
        function(&redis, &self.webhook, &self.sqs, settings).await
    }
}

async fn function(redis: &str, webhook: &Webhook, sqs: &Sqs, settings: &[(&str, &str)]) -> Function {
    let (target, sqs) = (webhook.url(), sqs.url());
    let endpoints = [("REDIS_URL", redis), ("TARGET_URL", &target), ("AWS_ENDPOINT_URL_SQS", &sqs)];
    Function::start(env!("CARGO_BIN_EXE_idempotent-sqs"), &[&endpoints, settings].concat()).await
}

/// A proxy in front of the server at this URL, and its own URL.
async fn front_of(url: &str) -> (Front, String) {
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    let front = Front::to(port).await;
    let url = format!("http://127.0.0.1:{}", front.port);
    (front, url)
}

/// The response to an event whose messages are all done.
const NO_FAILURES: &str = r#"{"batchItemFailures":[]}"#;

/// A record with this key.
fn pay(message_id: &str, key: &str) -> Record {
    Record::new(message_id).key(key)
}

#[tokio::test]
async fn each_message_is_sent_once_even_if_the_event_is_redelivered() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let event = event([pay("m1", "pay_1"), pay("m2", "pay_2"), pay("m3", "pay_3")]);
    assert_eq!(function.answer(event.clone()).await, NO_FAILURES);
    assert_eq!(function.answer(event).await, NO_FAILURES);
    for key in ["pay_1", "pay_2", "pay_3"] {
        assert_eq!(fixture.webhook.calls_for(key), 1);
    }
    assert_eq!(fixture.webhook.calls().len(), 3);
    assert!(fixture.sqs.take_calls().is_empty());
}

#[tokio::test]
async fn only_the_failed_message_of_a_batch_is_reported() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("pay_2", Answer::status(500));
    let function = fixture.function().await;
    let event = event([pay("m1", "pay_1"), pay("m2", "pay_2"), pay("m3", "pay_3")]);
    assert_eq!(function.answer(event).await, r#"{"batchItemFailures":[{"itemIdentifier":"m2"}]}"#);
}

#[tokio::test]
async fn in_batch_duplicates_are_sent_once() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1"), pay("m2", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 1);
}

#[tokio::test]
async fn a_failure_delays_only_the_rest_of_its_group_and_by_the_same_time() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("a1", Answer::with(409, &[("Retry-After", "77")], b""));
    let function = fixture.function().await;
    let event = event([
        pay("m1", "a1").group("a"),
        pay("m2", "b1").group("b"),
        pay("m3", "a2").group("a"),
        pay("m4", "b2").group("b"),
    ]);
    assert_eq!(function.invoke(event).await, ["m1", "m3"]);
    assert_eq!(fixture.webhook.calls_for("a2"), 0);
    assert_eq!(fixture.sqs.take(), [("m1".into(), 77), ("m3".into(), 77)].into());
}
