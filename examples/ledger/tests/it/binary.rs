//! The function's binary, from the Lambda Runtime API to PostgreSQL.

use super::*;
use harness::event::{Record, event};
use harness::lambda::Function;
use harness::redis::{Redis, free_port};

fn record(id: &str, body: &str) -> Record {
    Record::new(id).body(body)
}

/// The required settings, without changes of visibility timeouts, because there is no SQS.
pub(super) fn settings<'a>(redis: &'a str, database: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("REDIS_URL", redis),
        ("DATABASE_URL", database),
        ("IDEMPOTENCY_NAMESPACE", "ledger"),
        ("IDEMPOTENCY_KEY", ""),
        ("VISIBILITY_BACKOFF", "false"),
    ]
}

#[tokio::test]
async fn the_function_books_a_batch_once_even_if_redis_loses_its_records() {
    let (base, redis) = (books(&["a"]).await, Redis::start().await);
    let (cache, database) = (redis.url(), base.url());
    let function = Function::start(env!("CARGO_BIN_EXE_ledger"), &settings(&cache, &database)).await;
    let batch = || {
        event([
            record("m1", &payment("e1", "a", "CREDIT", 1250, 1)),
            record("m2", &payment("e2", "nobody", "CREDIT", 1, 1)),
            record("m3", "no event"),
        ])
    };
    assert_eq!(function.invoke(batch()).await, ["m2", "m3"]);
    assert_eq!(function.invoke(batch()).await, ["m2", "m3"]);
    let () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.unwrap();
    assert_eq!(function.invoke(batch()).await, ["m2", "m3"]);
    assert_eq!(balance(&base, "a").await, (1250, 1));
    let outcomes: Vec<_> = audit(&base).await.into_iter().map(|(outcome, _)| outcome).collect();
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "APPLIED").count(), 1);
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "REFUSED").count(), 2, "one row for each message");
    let lines = function.messages(9).await;
    let of_m1: Vec<_> = lines.iter().filter(|line| line["message_id"] == "m1").map(|line| &line["outcome"]).collect();
    assert_eq!(of_m1, ["ACQUIRED", "DUPLICATE", "DUPLICATE"]);
    let reason = lines.iter().find(|line| line["message_id"] == "m2").unwrap()["reason"].as_str().unwrap();
    assert!(reason.contains("the account does not exist"), "{reason}");
}

#[tokio::test]
async fn without_redis_the_function_fails_the_invocation_or_proceeds_as_configured() {
    let base = books(&["a"]).await;
    let (nowhere, database) = (format!("redis://127.0.0.1:{}", free_port()), base.url());
    let settings = settings(&nowhere, &database);
    let refuses = Function::start(env!("CARGO_BIN_EXE_ledger"), &settings).await;
    let batch = || event([record("m1", &payment("e1", "a", "CREDIT", 1250, 1))]);
    assert!(refuses.error(batch()).await.contains("store is unavailable"));
    assert_eq!(balance(&base, "a").await, (0, 0));
    let proceeds =
        Function::start(env!("CARGO_BIN_EXE_ledger"), &[settings, vec![("INBOX_WITHOUT_REDIS", "proceed")]].concat())
            .await;
    for _ in 0..2 {
        assert_eq!(proceeds.invoke(batch()).await, [""; 0]);
    }
    assert_eq!(balance(&base, "a").await, (1250, 1));
}

#[tokio::test]
async fn a_database_without_the_inbox_fails_the_invocation_and_names_the_file_to_run() {
    let (base, redis) = (Base::empty().await, Redis::start().await);
    let (cache, database) = (redis.url(), base.url());
    let function = Function::start(env!("CARGO_BIN_EXE_ledger"), &settings(&cache, &database)).await;
    let error = function.error(event([record("m1", &payment("e1", "a", "CREDIT", 1250, 1))])).await;
    assert!(error.contains("sql/inbox.sql"), "{error}");
}

/// `cargo lambda` and SAM put only the binary into the package.
#[test]
fn the_binary_contains_the_root_certificates_of_rds() {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_ledger")).unwrap();
    let file = include_bytes!("../../../../crates/postgres/certificates/rds.pem");
    assert!(binary.windows(file.len()).any(|part| part == file));
}
