//! The function's binary, from the Lambda Runtime API to PostgreSQL.

use super::*;
use harness::event::{Record, event};
use harness::lambda::Function;
use harness::redis::{Redis, closed_port};

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
    let (nowhere, database) = (format!("redis://127.0.0.1:{}", closed_port()), base.url());
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

/// Books a payment, and finds neither its account nor its amount in the log of the function with these settings.
async fn assert_log_has_no_payment(settings: &[(&str, &str)]) {
    let function = Function::start(env!("CARGO_BIN_EXE_ledger"), settings).await;
    let batch = event([record("m1", &payment("e1", "DE-4711-0815", "CREDIT", 123_454_321, 1))]);
    assert_eq!(function.invoke(batch).await, [""; 0]);
    function.messages(1).await;
    let log = function.logs("ACQUIRED").await;
    let quoted: Vec<_> =
        log.iter().filter(|line| line.contains("DE-4711-0815") || line.contains("123454321")).collect();
    assert!(quoted.is_empty(), "{quoted:#?}");
}

/// At level DEBUG the driver of PostgreSQL logs the parameters of each statement.
#[tokio::test]
async fn at_level_debug_without_the_driver_the_log_has_no_payload_and_no_result() {
    let (base, redis) = (books(&["DE-4711-0815"]).await, Redis::start().await);
    let (cache, database) = (redis.url(), base.url());
    let settings = [
        settings(&cache, &database),
        vec![("AWS_LAMBDA_LOG_LEVEL", "DEBUG"), ("RUST_LOG", "debug,tokio_postgres=info")],
    ]
    .concat();
    assert_log_has_no_payment(&settings).await;
}

#[tokio::test]
async fn the_log_has_no_notices_of_the_server_which_may_have_values_of_rows() {
    let (base, redis) = (books(&["DE-4711-0815"]).await, Redis::start().await);
    let trigger = "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                   RAISE NOTICE 'account % has %', NEW.account_id, NEW.balance; RETURN NEW; END $$; \
                   CREATE TRIGGER note BEFORE UPDATE ON ledger_account FOR EACH ROW EXECUTE FUNCTION note()";
    base.client.batch_execute(trigger).await.unwrap();
    let (cache, database) = (redis.url(), base.url());
    assert_log_has_no_payment(&settings(&cache, &database)).await;
}
