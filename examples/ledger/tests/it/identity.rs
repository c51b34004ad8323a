//! How the function signs in to PostgreSQL: with a secret or with IAM tokens.

use super::binary::settings;
use super::*;
use harness::event::{Record, event};
use harness::lambda::{Function, PASSWORD};
use harness::postgres::{Postgres, migration};
use harness::rds::Rds;
use harness::redis::Redis;
use harness::secrets::{ARN, Secrets};

/// The first handshake of a debug build is slow.
const PATIENT: [(&str, &str); 2] = [("DATABASE_TIMEOUT_MS", "5000"), ("REDIS_TIMEOUT_MS", "5000")];

/// A batch of ten events, each of which credits 1 to another account.
fn ten_credits(round: i64) -> String {
    event((0..10).map(|n| {
        let (id, account) = (format!("m{round}_{n}"), n.to_string());
        Record::new(&id).body(&payment(&id, &account, "CREDIT", 1, round))
    }))
}

const ACCOUNTS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

async fn booked(base: &Base) -> i64 {
    base.count("SELECT sum(balance)::bigint FROM ledger_account").await
}

/// A server whose user `payer` needs a password.
async fn guarded(password: &str) -> (Postgres, Base) {
    let mut server = Postgres::start();
    server.put("pg_hba.conf", b"host all payer 127.0.0.1/32 scram-sha-256\nhost all app 127.0.0.1/32 trust\n");
    server.restart_with(&[]);
    let base = Base::on(&server).await;
    base.client.batch_execute(&migration()).await.unwrap();
    open_accounts(&base, &ACCOUNTS).await;
    let user = "CREATE ROLE payer LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO payer; \
                GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO payer";
    base.client.batch_execute(user).await.unwrap();
    set_password(&base, password).await;
    (server, base)
}

async fn set_password(base: &Base, password: &str) {
    base.client.batch_execute(&format!("ALTER ROLE payer PASSWORD '{password}'")).await.unwrap();
}

async fn end_connections(base: &Base) {
    let query = "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE usename = 'payer'";
    base.client.execute(query, &[]).await.unwrap();
}

/// A secret in the format of RDS.
fn secret(password: &str) -> String {
    json!({ "engine": "postgres", "host": "db", "port": 5432, "username": "payer", "password": password }).to_string()
}

#[tokio::test]
async fn a_secret_is_read_once_and_once_more_after_its_rotation() {
    let (_server, base) = guarded(PASSWORD).await;
    let (redis, secrets) = (Redis::start().await, Secrets::start(&secret(PASSWORD)).await);
    let (cache, database, endpoint) = (redis.url(), base.url(), secrets.url());
    let by_secret = [("DATABASE_SECRET_ARN", ARN), ("AWS_ENDPOINT_URL_SECRETS_MANAGER", endpoint.as_str())];
    let settings = [&settings(&cache, &database)[..], &by_secret, &PATIENT].concat();
    let function = Function::start(env!("CARGO_BIN_EXE_ledger"), &settings).await;
    assert_eq!(function.invoke(ten_credits(1)).await, [""; 0]);
    assert_eq!((booked(&base).await, secrets.reads()), (10, 1));

    let rotated = format!("{PASSWORD}-2");
    set_password(&base, &rotated).await;
    secrets.set(Some(&secret(&rotated)));
    end_connections(&base).await;
    assert_eq!(function.invoke(ten_credits(2)).await, [""; 0]);
    assert_eq!((booked(&base).await, secrets.reads()), (20, 2));
}

#[tokio::test]
async fn a_secret_may_be_the_password_of_the_user_in_the_url() {
    let (_server, base) = guarded(PASSWORD).await;
    let (redis, secrets) = (Redis::start().await, Secrets::start(PASSWORD).await);
    let (cache, database, endpoint) = (redis.url(), base.url().replace("app@", "payer@"), secrets.url());
    let by_secret = [("DATABASE_SECRET_ARN", ARN), ("AWS_ENDPOINT_URL_SECRETS_MANAGER", endpoint.as_str())];
    let function = Function::start(
        env!("CARGO_BIN_EXE_ledger"),
        &[&settings(&cache, &database)[..], &by_secret, &PATIENT].concat(),
    )
    .await;
    assert_eq!(function.invoke(ten_credits(1)).await, [""; 0]);
}

#[tokio::test]
async fn an_unusable_secret_is_an_error_until_it_is_corrected() {
    let (_server, base) = guarded("open-sesame").await;
    let (redis, secrets) = (Redis::start().await, Secrets::start(&secret(PASSWORD)).await);
    let (cache, database, endpoint) = (redis.url(), base.url(), secrets.url());
    let by_secret = [("DATABASE_SECRET_ARN", ARN), ("AWS_ENDPOINT_URL_SECRETS_MANAGER", endpoint.as_str())];
    let function = Function::start(
        env!("CARGO_BIN_EXE_ledger"),
        &[&settings(&cache, &database)[..], &by_secret, &PATIENT].concat(),
    )
    .await;
    let credit = || event([Record::new("m1").body(&payment("e1", "0", "CREDIT", 10, 1))]);
    let error = function.error(credit()).await;
    assert!(error.contains("rejected the user and password of DATABASE_SECRET_ARN"), "{error}");
    assert_eq!(secrets.reads(), 2, "once, and once more after the rejection");
    secrets.set(None);
    let error = function.error(credit()).await;
    assert!(error.contains("check that the role may call secretsmanager:GetSecretValue"), "{error}");
    secrets.set(Some(&secret("open-sesame")));
    assert_eq!(function.invoke(credit()).await, [""; 0]);
    assert_eq!(booked(&base).await, 10);
}

#[tokio::test]
async fn each_connection_has_an_iam_token_that_was_signed_for_it() {
    let base = books(&ACCOUNTS).await;
    let (redis, rds) = (Redis::start().await, Rds::in_front_of(&base).await);
    let (cache, database) = (redis.url(), rds.url(&base));
    let iam = [("DATABASE_IAM", "true"), ("BATCH_CONCURRENCY", "1"), ("AWS_SESSION_TOKEN", "a+b/c==")];
    let function =
        Function::start(env!("CARGO_BIN_EXE_ledger"), &[&settings(&cache, &database)[..], &iam, &PATIENT].concat())
            .await;
    for round in 1..=2 {
        assert_eq!(function.invoke(ten_credits(round)).await, [""; 0]);
        assert_eq!(rds.tokens().len(), 1, "an open connection needs no token");
    }
    // A token has its time in whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    rds.cut();
    assert_eq!(function.invoke(ten_credits(3)).await, [""; 0]);
    let tokens = rds.tokens();
    assert!(tokens.iter().all(|token| token.fault.is_none()), "{tokens:?}");
    assert!(tokens.len() == 2 && tokens[0].text != tokens[1].text, "{tokens:?}");
    assert!(tokens[0].text.contains("&X-Amz-Security-Token=a%2Bb%2Fc%3D%3D"), "{tokens:?}");
    assert_eq!(booked(&base).await, 30);
}

#[tokio::test]
async fn a_rejected_iam_token_is_an_error_that_says_what_to_check() {
    let base = books(&ACCOUNTS).await;
    let (redis, rds) = (Redis::start().await, Rds::in_front_of(&base).await);
    let (cache, database) = (redis.url(), rds.url(&base));
    for (other, said) in [
        (("AWS_SECRET_ACCESS_KEY", "another"), "rds-db:connect"),
        (("AWS_REGION", ""), "the region of RDS is unknown: set AWS_REGION"),
    ] {
        let settings = [&settings(&cache, &database)[..], &[("DATABASE_IAM", "true"), other], &PATIENT].concat();
        let function = Function::start(env!("CARGO_BIN_EXE_ledger"), &settings).await;
        let error = function.error(ten_credits(1)).await;
        assert!(error.contains(said), "{error}");
    }
    let tokens = rds.tokens();
    assert!(tokens.iter().all(|token| token.fault == Some("wrong signature")), "{tokens:?}");
    assert!(!tokens.is_empty() && booked(&base).await == 0);
}
