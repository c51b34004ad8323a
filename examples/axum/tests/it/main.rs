//! The payments API as a process, on a real Redis, with reqwest as the client.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]

mod server;

use std::time::{Duration, Instant};

use harness::front::Front;
use harness::redis::Redis;
use harness::{soon, until};
use reqwest::Client;
use server::Server;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

/// Waits until a request has acquired its record.
async fn in_flight(redis: &Redis) {
    let mut connection = redis.connection().await;
    loop {
        let records: u64 = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
        if records > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_payment_is_made_once_and_can_be_read() {
    let redis = Redis::start().await;
    let (server, client) = (Server::start(&redis.url(), 0).await, client());
    let first = server.pay(&client, "\"pay-1\"").await;
    assert_eq!((first.status, first.replayed), (201, false));
    let again = server.pay(&client, "pay-1").await;
    assert_eq!((again.status, again.replayed), (201, true));
    assert_eq!((&again.location, &again.body), (&first.location, &first.body));
    let shown = client.get(server.url(first.location.as_ref().unwrap())).send().await.unwrap();
    assert_eq!((shown.status().as_u16(), shown.text().await.unwrap()), (200, first.body));
    let payments = server.payments();
    assert_eq!(payments.len(), 1);
    assert_eq!((payments[0]["amount"].as_u64(), payments[0]["is_recovery"].as_bool()), (Some(1250), Some(false)));
}

#[tokio::test]
async fn requests_that_are_wrong_pay_nothing() {
    let redis = Redis::start().await;
    let (server, client) = (Server::start(&redis.url(), 0).await, client());
    let post = || client.post(server.url("/payments")).header("content-type", "application/json");
    let bodies = [
        r#"{"amount":0,"currency":"EUR"}"#,
        r#"{"amount":-1,"currency":"EUR"}"#,
        r#"{"amount":1.5,"currency":"EUR"}"#,
        r#"{"amount":1250}"#,
        r#"{"amount":1250,"currency":"euro"}"#,
        "{",
        "",
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        for replayed in [false, true] {
            let answer = post().header("idempotency-key", number).body(body).send().await.unwrap();
            assert_eq!(answer.status(), 400, "{body}");
            assert_eq!(answer.headers()["content-type"], "application/problem+json");
            assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
        }
    }
    let missing = post().body(r#"{"amount":1250,"currency":"EUR"}"#).send().await.unwrap();
    assert_eq!(missing.status(), 400);
    let two_principals =
        post().header("idempotency-key", "2p").header("authorization", "a").header("authorization", "b");
    assert_eq!(two_principals.body(r#"{"amount":1250,"currency":"EUR"}"#).send().await.unwrap().status(), 401);
    for unknown in [client.get(server.url("/payments/pay_0")), client.post(server.url("/refunds"))] {
        assert_eq!(unknown.send().await.unwrap().status(), 404);
    }
    assert!(server.payments().is_empty());
}

#[tokio::test]
async fn each_principal_has_its_own_keys() {
    let redis = Redis::start().await;
    let (server, client) = (Server::start(&redis.url(), 0).await, client());
    let mut bodies = Vec::new();
    for principal in [None, Some(""), Some("anonymous"), Some("Bearer alice"), Some("Bearer bob")] {
        let answer = server.pay_as(&client, "pay-1", principal).await;
        assert_eq!((answer.status, answer.replayed), (201, false), "{principal:?}");
        bodies.push(answer.body);
    }
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!((bodies.len(), server.payments().len()), (5, 5));
}

#[tokio::test]
async fn of_200_concurrent_requests_one_pays_and_the_others_get_409_or_its_response() {
    let redis = Redis::start().await;
    let (server, client) = (Server::start(&redis.url(), 200).await, client());
    let mut requests = JoinSet::new();
    for _ in 0..200 {
        let (server, client) = (server.address(), client.clone());
        requests.spawn(async move { server.pay(&client, "pay-1").await });
    }
    let answers = soon(requests.join_all()).await;
    let paid = server.pay(&client, "pay-1").await;
    for answer in answers {
        assert!(answer.status == 201 && answer.body == paid.body || answer.status == 409, "{answer:?}");
        assert_eq!(answer.status == 409, answer.retry_after.is_some());
    }
    assert_eq!(server.payments().len(), 1);
}

#[tokio::test]
async fn a_retry_after_the_server_was_killed_in_mid_work_is_a_recovery_and_pays_once() {
    let redis = Redis::start().await;
    let client = client();
    let mut server = Server::start(&redis.url(), 1000).await;
    let request = tokio::spawn({
        let (server, client) = (server.address(), client.clone());
        async move { server.try_pay(&client, "pay-1").await.is_err() }
    });
    in_flight(&redis).await;
    server.kill().await;
    assert!(request.await.unwrap(), "the connection was closed");
    server.restart(1000).await;
    let conflict = server.pay(&client, "pay-1").await;
    let lease: u64 = conflict.retry_after.unwrap().parse().unwrap();
    assert!(conflict.status == 409 && (1..=7).contains(&lease), "{lease}");
    tokio::time::sleep(Duration::from_secs(lease)).await;
    let recovered = server.pay(&client, "pay-1").await;
    assert_eq!((recovered.status, recovered.replayed), (201, false));
    let payments = server.payments();
    assert_eq!((payments.len(), payments[0]["is_recovery"].as_bool()), (1, Some(true)));
}

#[tokio::test]
async fn a_payment_that_was_made_before_the_server_was_killed_is_found_by_the_recovery() {
    let redis = Redis::start().await;
    let front = Front::to(redis.port()).await;
    let client = client();
    let mut server = Server::start(&format!("redis://127.0.0.1:{}", front.port), 300).await;
    let request = tokio::spawn({
        let (server, client) = (server.address(), client.clone());
        async move { server.try_pay(&client, "pay-1").await.is_err() }
    });
    in_flight(&redis).await;
    // The payment is made, and its record cannot be written.
    front.drop_requests(true);
    until(|| async { server.payments().len() == 1 }).await;
    server.kill().await;
    assert!(request.await.unwrap(), "the connection was closed");
    front.drop_requests(false);
    server.restart(300).await;
    until(|| async { server.pay(&client, "pay-1").await.status == 201 }).await;
    let (again, payments) = (server.pay(&client, "pay-1").await, server.payments());
    assert_eq!((again.replayed, payments.len()), (true, 1));
    assert!(again.body.contains(payments[0]["id"].as_str().unwrap()));
}

#[tokio::test]
async fn a_shutdown_waits_for_a_payment_whose_client_is_gone() {
    let redis = Redis::start().await;
    let client = client();
    let mut server = Server::start(&redis.url(), 1000).await;
    let request = tokio::spawn({
        let (server, client) = (server.address(), client.clone());
        async move { server.try_pay(&client, "pay-1").await.is_err() }
    });
    in_flight(&redis).await;
    request.abort();
    server.terminate().await;
    assert_eq!(server.payments().len(), 1);
    server.restart(0).await;
    assert!(server.pay(&client, "pay-1").await.replayed);
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_client_that_does_not_finish_its_request() {
    let redis = Redis::start().await;
    let mut server = Server::start(&redis.url(), 0).await;
    let mut half = TcpStream::connect(server.url("").strip_prefix("http://").unwrap()).await.unwrap();
    half.write_all(b"POST /payments HTTP/1.1\r\nHost: a\r\n").await.unwrap();
    // Another request shows that the server has accepted the connection.
    assert_eq!(server.pay(&client(), "pay-1").await.status, 201);
    server.terminate().await;
}

#[tokio::test]
async fn a_recovery_does_not_answer_with_another_payment_of_a_lost_record() {
    let redis = Redis::start().await;
    let (mut server, client) = (Server::start(&redis.url(), 300).await, client());
    server.pay(&client, "pay-1").await;
    let mut connection = redis.connection().await;
    let () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    let request = tokio::spawn({
        let (server, client) = (server.address(), client.clone());
        async move { server.try_pay_amount(&client, "pay-1", 99).await.is_err() }
    });
    in_flight(&redis).await;
    server.kill().await;
    assert!(request.await.unwrap(), "the connection was closed");
    server.restart(0).await;
    let retry = || async { server.address().try_pay_amount(&client, "pay-1", 99).await.unwrap().status };
    until(|| async { retry().await != 409 }).await;
    assert_eq!((retry().await, server.payments().len()), (422, 1));
}

#[tokio::test]
async fn while_redis_is_stopped_nothing_is_paid() {
    let mut redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let (server, client) = (Server::start(&redis.url(), 0).await, client());
    server.pay(&client, "before").await;
    // Frozen: connections stay open, and no reply comes.
    redis.signal("-STOP");
    let started = Instant::now();
    let frozen = server.pay(&client, "frozen").await;
    assert!(frozen.status == 503 && frozen.retry_after.is_some() && started.elapsed() < Duration::from_secs(4));
    redis.signal("-CONT");
    redis.kill();
    for key in ["before", "killed"] {
        let killed = server.pay(&client, key).await;
        assert!(killed.status == 503 && killed.retry_after.is_some(), "{killed:?}");
    }
    assert_eq!(server.payments().len(), 1);
    redis.restart().await;
    until(|| async { server.pay(&client, "before").await.replayed }).await;
    for key in ["frozen", "killed"] {
        until(|| async { server.pay(&client, key).await.status == 201 }).await;
    }
    assert_eq!(server.payments().len(), 3);
}
