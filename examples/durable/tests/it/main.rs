//! The dispatcher's binary, from the Lambda Runtime API to an API of Lambda that follows AWS's documentation. Test
//! names are sentences.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]

mod durable;

use durable::{Durable, Fault};
use harness::event::{Record, event};
use harness::lambda::Function;
use harness::redis::{Redis, closed_port};
use tokio::net::TcpListener;

const FUNCTION: &str = "arn:aws:lambda:eu-central-1:123456789012:function:order:live";

async fn dispatcher(redis: &Redis, endpoint: &str) -> Function {
    let redis = redis.url();
    let settings = [
        ("REDIS_URL", redis.as_str()),
        ("DURABLE_FUNCTION", FUNCTION),
        ("AWS_ENDPOINT_URL_LAMBDA", endpoint),
        ("IDEMPOTENCY_NAMESPACE", "orders"),
        ("VISIBILITY_BACKOFF", "false"),
        // The first start in a debug build is slow.
        ("REDIS_TIMEOUT_MS", "5000"),
    ];
    Function::start(env!("CARGO_BIN_EXE_durable-dispatcher"), &settings).await
}

fn order(message: &str, key: &str, body: &str) -> String {
    event([Record::new(message).key(key).body(body)])
}

/// Outcome and reason of the last delivery, after this number of them.
async fn logged(function: &Function, deliveries: usize) -> (String, String) {
    let line = function.messages(deliveries).await.swap_remove(deliveries - 1);
    let text = |name: &str| line[name].as_str().unwrap().to_owned();
    (text("outcome"), text("reason"))
}

#[tokio::test]
async fn an_execution_is_started_once_for_each_key_with_a_name_of_64_characters() {
    let (redis, lambda) = (Redis::start().await, Durable::start().await);
    let function = dispatcher(&redis, &lambda.url()).await;
    let long = "k".repeat(150);
    for message in ["m1", "m1", "m2"] {
        assert_eq!(function.invoke(order(message, "order/1 ä", r#"{"order": 1}"#)).await, [""; 0]);
    }
    assert_eq!(function.invoke(order("m3", &long, r#"{"order": 3}"#)).await, [""; 0]);
    let started = lambda.executions();
    assert_eq!((lambda.calls(), started.len()), (2, 2), "{started:?}");
    let payloads: Vec<_> = started.iter().map(|(_, payload)| payload.as_str()).collect();
    assert_eq!(payloads, [r#"{"order": 1}"#, r#"{"order": 3}"#]);
    for (name, _) in &started {
        assert!(name.len() == 64 && name.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
    }
    assert_eq!(logged(&function, 3).await.0, "DUPLICATE");
}

#[tokio::test]
async fn no_second_execution_is_started_if_redis_loses_its_records() {
    let (redis, lambda) = (Redis::start().await, Durable::start().await);
    let function = dispatcher(&redis, &lambda.url()).await;
    for _ in 0..2 {
        assert_eq!(function.invoke(order("m1", "o1", r#"{"order": 1}"#)).await, [""; 0]);
        let () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.unwrap();
    }
    assert_eq!((lambda.calls(), lambda.executions().len()), (2, 1));
}

#[tokio::test]
async fn another_payload_under_the_name_fails_permanently() {
    let (redis, lambda) = (Redis::start().await, Durable::start().await);
    let function = dispatcher(&redis, &lambda.url()).await;
    assert_eq!(function.invoke(order("m1", "o1", r#"{"order": 1}"#)).await, [""; 0]);
    let () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.unwrap();
    assert_eq!(function.invoke(order("m2", "o1", r#"{"order": 2}"#)).await, ["m2"]);
    let (_, reason) = logged(&function, 2).await;
    assert!(reason.starts_with("failed permanently") && reason.contains("AlreadyStarted"), "{reason}");
    assert_eq!(lambda.executions().len(), 1);
}

#[tokio::test]
async fn a_throttle_or_a_missing_right_or_no_connection_is_not_an_attempt() {
    let (redis, lambda) = (Redis::start().await, Durable::start().await);
    let function = dispatcher(&redis, &lambda.url()).await;
    for (delivery, fault) in [Fault::Throttled, Fault::Denied].into_iter().enumerate() {
        lambda.fail(Some(fault));
        assert_eq!(function.invoke(order("m1", "o1", r#"{"order": 1}"#)).await, ["m1"]);
        let (_, reason) = logged(&function, delivery + 1).await;
        assert!(reason.starts_with("unavailable"), "{fault:?}: {reason}");
    }
    lambda.fail(None);
    assert_eq!(function.invoke(order("m1", "o1", r#"{"order": 1}"#)).await, [""; 0]);
    assert_eq!(function.messages(3).await[2]["attempt"], 1);

    let closed = dispatcher(&redis, &format!("http://127.0.0.1:{}", closed_port())).await;
    assert_eq!(closed.invoke(order("m2", "o2", r#"{"order": 2}"#)).await, ["m2"]);
    let (_, reason) = logged(&closed, 1).await;
    assert!(reason.starts_with("unavailable"), "{reason}");
}

#[tokio::test]
async fn a_connection_that_fails_is_not_an_attempt_whatever_the_reason() {
    let (redis, lambda) = (Redis::start().await, Durable::start().await);
    // The connection is accepted, and the TLS handshake has no reply.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("https://{}", listener.local_addr().unwrap());
    let no_name = format!("http://{}.invalid", "n".repeat(64));
    let no_tls = lambda.url().replace("http://", "https://");
    for endpoint in [no_name.as_str(), "http://255.255.255.255:80", &no_tls, &silent] {
        let function = dispatcher(&redis, endpoint).await;
        assert_eq!(function.invoke(order("m1", "o1", r#"{"order": 1}"#)).await, ["m1"]);
        let (_, reason) = logged(&function, 1).await;
        assert!(reason.starts_with("unavailable"), "{endpoint}: {reason}");
    }
    assert_eq!(lambda.calls(), 0);
}

#[tokio::test]
async fn after_a_lost_reply_the_recovery_starts_no_second_execution() {
    for fault in [Fault::ReplyLost, Fault::Internal] {
        let (redis, lambda) = (Redis::start().await, Durable::start().await);
        let function = dispatcher(&redis, &lambda.url()).await;
        lambda.fail(Some(fault));
        assert_eq!(function.invoke(order("m1", "o1", r#"{"order": 1}"#)).await, ["m1"], "{fault:?}");
        lambda.fail(None);
        assert_eq!(function.invoke(order("m1", "o1", r#"{"order": 1}"#)).await, [""; 0]);
        assert_eq!(logged(&function, 2).await.0, "ACQUIRED_STALE", "{fault:?}");
        assert_eq!((lambda.calls(), lambda.executions().len()), (2, 1), "{fault:?}");
    }
}

#[test]
fn the_page_shows_the_call_of_the_work() {
    let source = include_str!("../../src/start.rs");
    let call = &source[source.find("        let started").unwrap()..source.find("        Ok(started").unwrap()];
    let shown = call.replace("\n        ", "\n");
    assert!(include_str!("../../../../docs/durable.md").contains(shown.trim_start()), "{shown}");
}
