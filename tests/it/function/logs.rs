//! The log lines of messages, and that no log contains secrets.

use std::fs;

use serde_json::{Value, json};

use super::{Fixture, NO_FAILURES, function, pay};
use harness::event::{MARKER, Record, event};
use harness::http::{Answer, Sqs, Webhook};
use harness::redis::Redis;
use harness::workspace;

#[tokio::test]
async fn each_message_is_one_log_line_with_its_outcome_and_attempt() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("pay_2", Answer::status(500));
    let function = fixture.function().await;
    function.invoke(event([pay("m1", "pay_1"), pay("m2", "pay_2").received(3)])).await;
    function.invoke(event([pay("m1", "pay_1").received(2), Record::new("m3").key("")])).await;

    let lines = function.messages(4).await;
    let fence = |key: &str| {
        let calls = fixture.webhook.calls();
        let call = calls.iter().find(|call| call.header("Idempotency-Key") == Some(key)).unwrap();
        call.number("Idempotency-Fence").unwrap().into()
    };
    let fields = |line: &Value| {
        ["message_id", "idempotency_key", "outcome", "disposition", "fence", "attempt", "receive_count"]
            .map(|field| line[field].clone())
    };
    let expected = |message: &str, key: &str, outcome: &str, disposition: &str, received: u32| {
        [json!(message), json!(key), json!(outcome), json!(disposition), fence(key), json!(1), json!(received)]
    };
    assert_eq!(fields(&lines[0]), expected("m1", "pay_1", "ACQUIRED", "done", 1));
    assert_eq!(fields(&lines[1]), expected("m2", "pay_2", "ACQUIRED", "redeliver", 3));
    assert_eq!(fields(&lines[2]), expected("m1", "pay_1", "DUPLICATE", "done", 2));
    let without_key =
        [json!("m3"), Value::Null, json!("NO_KEY"), json!("redeliver"), Value::Null, Value::Null, json!(1)];
    assert_eq!(fields(&lines[3]), without_key);
    assert_eq!(lines.len(), 4);
}

#[tokio::test]
async fn each_message_of_an_invocation_that_fails_without_redis_has_a_log_line() {
    let mut fixture = Fixture::start().await;
    let function = fixture.function().await;
    fixture.redis.kill();
    function.error(event([pay("m1", "pay_1"), pay("m2", "pay_2").received(5)])).await;
    let lines = function.messages(2).await;
    let delays = fixture.sqs.take();
    for (line, id, received) in [(&lines[0], "m1", 1), (&lines[1], "m2", 5)] {
        let fields = ["message_id", "outcome", "disposition", "receive_count"].map(|field| line[field].clone());
        assert_eq!(fields, [json!(id), json!("UNAVAILABLE"), json!("redeliver"), json!(received)]);
        assert!(line["reason"].as_str().unwrap().starts_with("the idempotency store is unavailable"), "{line}");
        assert_eq!(line["retry_after_s"].as_f64(), Some(f64::from(u32::try_from(delays[id]).unwrap())), "{delays:?}");
    }
    assert_eq!(lines.len(), 2);
}

/// If the trigger is a queue, the error of an invocation is in the log alone.
#[tokio::test]
async fn an_event_without_a_response_is_logged_with_what_is_wrong() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let without_id = event([pay("m1", "pay_1").without("messageId")]);
    for (sent, expected) in [("{}", "check that the function's trigger is"), (&without_id, "record 0 has no messageId")]
    {
        let error = function.error(sent).await;
        assert!(error.contains(expected), "{error}");
        function.logs(&error).await;
    }
}

#[tokio::test]
async fn the_runbook_names_the_errors_of_redis_as_the_log_does() {
    let page = fs::read_to_string(workspace("docs/runbook.md")).unwrap();
    let page = page.split("## `ErrorsAlarm`").nth(1).unwrap().split("\n## ").next().unwrap();
    let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
    let (tls, _files) = Redis::start_with_tls().await;
    let secured = Redis::start_with(&["--requirepass", "other"]).await;
    let full = Redis::start_with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]).await;
    let limited = Redis::start().await;
    let reader = ["SETUSER", "reader", "on", ">reader", "~*", "-@all", "+ping"];
    let () = redis::cmd("ACL").arg(&reader).query_async(&mut limited.connection().await).await.unwrap();
    let mut killed = Redis::start().await;
    killed.kill();
    for (text, login, redis) in [
        ("rejected the user and password", "redis://:wrong@", &secured),
        ("rejected the user and password", "redis://", &secured),
        ("has no permissions", "redis://reader:reader@", &limited),
        ("invalid peer certificate", "rediss://", &tls),
        ("command not allowed when used memory > 'maxmemory'", "redis://", &full),
        ("Connection refused", "redis://", &killed),
    ] {
        assert!(page.contains(&format!("`{text}`")), "{text}");
        let function = function(&format!("{login}localhost:{}", redis.port()), &webhook, &sqs, &[]).await;
        let error = function.error(event([pay("m1", "pay_1")])).await;
        assert!(error.contains(text), "{error}");
        let lines = function.messages(1).await;
        assert!(lines[0]["reason"].as_str().unwrap().contains(text), "{}", lines[0]);
    }
}

#[tokio::test]
async fn the_runbook_names_the_errors_of_an_invalid_root_certificate_beside_a_valid_one() {
    let page = fs::read_to_string(workspace("docs/runbook.md")).unwrap();
    let (webhook, sqs) = (Webhook::start().await, Sqs::start().await);
    let (redis, files) = Redis::start_with_tls().await;
    let directory = tempfile::tempdir().unwrap();
    fs::copy(&files.ca_crt, directory.path().join("ca.crt")).unwrap();
    // The first TLS handshake of a debug build is slow.
    let settings = [("REDIS_TIMEOUT_MS", "5000"), ("SSL_CERT_DIR", directory.path().to_str().unwrap())];
    // The first is no base64, and the second no certificate.
    for (body, text) in [("!!!!", "failed to read PEM from file"), ("AAAA", "invalid peer certificate: BadEncoding")] {
        assert!(page.contains(&format!("`{text}`")), "{text}");
        let invalid = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        fs::write(directory.path().join("invalid.crt"), invalid).unwrap();
        let function = function(&redis.url(), &webhook, &sqs, &settings).await;
        let error = function.error(event([pay("m1", "pay_1")])).await;
        assert!(error.contains(text), "{error}");
    }
    fs::remove_file(directory.path().join("invalid.crt")).unwrap();
    let function = function(&redis.url(), &webhook, &sqs, &settings).await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
}

/// In every test, the log of a function is searched for secrets when it ends. Here it includes debug lines.
#[tokio::test]
async fn logs_contain_no_payload_password_or_token() {
    let mut fixture = Fixture::start().await;
    for (key, answer) in [
        ("500", Answer::status(500)),
        ("400", Answer::with(400, &[("Location", &fixture.webhook.url())], MARKER.as_bytes())),
        ("reset", Answer::Reset),
        ("cut", Answer::Cut(MARKER.into())),
    ] {
        fixture.webhook.respond_for(key, answer);
    }
    let function = fixture.function_with(&[("AWS_LAMBDA_LOG_LEVEL", "DEBUG")]).await;
    let keys = ["200", "500", "400", "reset", "cut"];
    assert_eq!(function.invoke(event(keys.map(|key| pay(key, key)))).await, keys[1..]);
    function.error(event([Record::new("odd").without("messageId")])).await;
    fixture.redis.kill();
    function.error(event(keys.map(|key| pay(key, key)))).await;
    assert_eq!(function.messages(10).await.len(), 10);
}
