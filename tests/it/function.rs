//! The function's own binary, from the Lambda Runtime API to Redis, the webhook and SQS.

/// Several invocations in one process, and a process that was a snapshot.
mod concurrent;
/// Who the function says it is: tokens of IAM, secrets, and what becomes of both in time.
mod identity;
/// What harms only itself.
mod input;
/// What CloudWatch is told of an invocation.
mod metrics;
/// Payloads and results that are in S3.
mod objects;
/// Two at the same work, and one that dies at it.
mod owners;
/// Redis out of reach, restarted, with TLS, as a cluster.
mod servers;
/// What a collector of traces is sent.
#[cfg(feature = "otel")]
mod traces;
/// What the webhook hears, and what its answers mean.
mod webhook;

use serde_json::{Value, json};

use harness::event::{MARKER, Record, event};
use harness::http::{Answer, Sqs, Webhook};
use harness::lambda::{Function, PASSWORD};
use harness::redis::Redis;

/// All that a function talks to but Lambda.
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
    let usual = [("REDIS_URL", redis), ("TARGET_URL", &target), ("AWS_ENDPOINT_URL_SQS", &sqs)];
    Function::start(env!("CARGO_BIN_EXE_idempotent-sqs"), &[&usual, settings].concat()).await
}

const NO_FAILURES: &str = r#"{"batchItemFailures":[]}"#;

fn pay(message_id: &str, key: &str) -> Record {
    Record::new(message_id).key(key)
}

#[tokio::test]
async fn each_message_is_delivered_once_and_the_same_event_again_calls_nobody() {
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
async fn only_the_failed_message_of_a_batch_is_named() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers_for("pay_2", Answer::status(500));
    let function = fixture.function().await;
    let event = event([pay("m1", "pay_1"), pay("m2", "pay_2"), pay("m3", "pay_3")]);
    assert_eq!(function.answer(event).await, r#"{"batchItemFailures":[{"itemIdentifier":"m2"}]}"#);
}

#[tokio::test]
async fn in_batch_duplicates_are_delivered_once() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1"), pay("m2", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls().len(), 1);
}

#[tokio::test]
async fn a_failure_holds_back_the_rest_of_its_group_alone_and_for_the_same_time() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers_for("a1", Answer::with(429, &[("Retry-After", "77")], b""));
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

#[tokio::test]
async fn visibility_is_asked_of_the_queue_of_the_arn_by_ten_at_most() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::status(400));
    let function = fixture.function().await;
    let records = (0..12).map(|n| pay(&format!("m{n}"), &format!("pay_{n}")));
    assert_eq!(function.invoke(event(records)).await.len(), 12);
    let calls = fixture.sqs.take_calls();
    let mut entries: Vec<_> = calls.iter().map(|call| call["Entries"].as_array().unwrap().len()).collect();
    entries.sort_unstable();
    assert_eq!(entries, [2, 10]);
    for call in calls {
        assert_eq!(call["QueueUrl"], "https://sqs.eu-central-1.amazonaws.com/123456789012/payments");
    }
}

#[tokio::test]
async fn a_visibility_that_cannot_be_changed_is_logged_and_harms_nothing() {
    for sqs in [Sqs::start_failing().await, Sqs::start_refusing().await] {
        let fixture = Fixture { sqs, ..Fixture::start().await };
        fixture.webhook.answers_for("pay_1", Answer::status(500));
        let function = fixture.function().await;
        assert_eq!(function.invoke(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await, ["m1"]);
        assert_eq!(fixture.sqs.take_calls().len(), 1);
        function.logs("visibility timeouts not changed").await;
    }
}

#[tokio::test]
async fn a_failed_message_without_receipt_handle_or_arn_is_reported_all_the_same() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::status(400));
    let function = fixture.function().await;
    let records = [
        pay("m1", "pay_1").without("receiptHandle"),
        pay("m2", "pay_2").without("eventSourceARN"),
        pay("m3", "pay_3").with("eventSourceARN", "payments".into()),
        pay("m4", "pay_4"),
    ];
    assert_eq!(function.invoke(event(records)).await, ["m1", "m2", "m3", "m4"]);
    assert_eq!(fixture.sqs.take(), [("m4".into(), 2)].into());
}

#[tokio::test]
async fn visibility_is_left_alone_where_the_settings_say_so() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::status(500));
    let function = fixture.function_with(&[("VISIBILITY_BACKOFF", "false")]).await;
    assert_eq!(function.invoke(event([pay("m1", "pay_1")])).await, ["m1"]);
    assert!(fixture.sqs.take_calls().is_empty());
}

#[tokio::test]
async fn a_message_is_one_line_of_the_log_with_all_that_happened_to_it() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers_for("pay_2", Answer::status(500));
    let function = fixture.function().await;
    function.invoke(event([pay("m1", "pay_1"), pay("m2", "pay_2").received(3)])).await;
    function.invoke(event([pay("m1", "pay_1").received(2), Record::new("m3").key("")])).await;

    let lines = function.messages(4).await;
    let fence = |key: &str| {
        let calls = fixture.webhook.calls();
        let call = calls.iter().find(|call| call.header("Idempotency-Key") == Some(key)).unwrap();
        call.number("Idempotency-Fence").unwrap().into()
    };
    let told = |line: &Value| {
        ["message_id", "idempotency_key", "outcome", "disposition", "fence", "attempt", "receive_count"]
            .map(|field| line[field].clone())
    };
    let wanted = |message: &str, key: &str, outcome: &str, disposition: &str, received: u32| {
        [json!(message), json!(key), json!(outcome), json!(disposition), fence(key), json!(1), json!(received)]
    };
    assert_eq!(told(&lines[0]), wanted("m1", "pay_1", "ACQUIRED", "done", 1));
    assert_eq!(told(&lines[1]), wanted("m2", "pay_2", "ACQUIRED", "redeliver", 3));
    assert_eq!(told(&lines[2]), wanted("m1", "pay_1", "DUPLICATE", "done", 2));
    let keyless = [json!("m3"), Value::Null, json!("NO_KEY"), json!("redeliver"), Value::Null, Value::Null, json!(1)];
    assert_eq!(told(&lines[3]), keyless);
    assert_eq!(lines.len(), 4);
}

/// What a function logs is searched when it ends, in every test; here it says more than usual.
#[tokio::test]
async fn no_log_shows_a_payload_a_password_or_a_token() {
    let mut fixture = Fixture::start().await;
    for (key, answer) in [
        ("500", Answer::status(500)),
        ("400", Answer::with(400, &[("Location", &fixture.webhook.url())], MARKER.as_bytes())),
        ("reset", Answer::Reset),
        ("cut", Answer::Cut(MARKER.into())),
    ] {
        fixture.webhook.answers_for(key, answer);
    }
    let function = fixture.function_with(&[("AWS_LAMBDA_LOG_LEVEL", "DEBUG")]).await;
    let keys = ["200", "500", "400", "reset", "cut"];
    assert_eq!(function.invoke(event(keys.map(|key| pay(key, key)))).await, keys[1..]);
    function.error(event([Record::new("odd").without("messageId")])).await;
    fixture.redis.kill();
    function.error(event(keys.map(|key| pay(key, key)))).await;
    assert!(function.messages(5).await.len() >= 5);
}
