//! The function's process under a Lambda Runtime API, with the event files and a real Redis.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]

mod faults;
mod fixture;
mod formats;
mod principals;

use serde_json::Value;

use crate::fixture::{Fixture, event};

#[tokio::test]
async fn a_duplicate_gets_the_same_bytes_and_nothing_is_paid_again() {
    let fixture = Fixture::new().await;
    let function = fixture.start(0).await;
    let first = function.invoke(event("http-api")).await;
    assert_eq!((first.status, first.is_replayed()), (201, false));
    assert_eq!(first.cookies.len(), 1);
    // With another spelling of key and JSON.
    let again = function.invoke(event("http-api-duplicate")).await;
    assert_eq!((again.status, again.is_replayed()), (201, true));
    assert_eq!((&again.body, again.header("content-type")), (&first.body, Some("application/json")));
    assert!(again.cookies.is_empty(), "a cookie belongs to one client");
    // A new process replays it too.
    assert_eq!(fixture.start(0).await.invoke(event("http-api")).await.body, first.body);
    let payments = fixture.payments();
    assert_eq!((payments.len(), &payments[0]["is_recovery"]), (1, &Value::Bool(false)));
}

#[tokio::test]
async fn a_request_without_a_key_pays_nothing() {
    let fixture = Fixture::new().await;
    let answer = fixture.start(0).await.invoke(event("http-api-no-key")).await;
    assert_eq!((answer.status, &*answer.problem()), (400, "key-missing"));
    // API Gateway joins repeated headers.
    let mut two = event("http-api");
    two["headers"]["idempotency-key"] = "\"a\",\"b\"".into();
    let answer = fixture.start(0).await.invoke(two).await;
    assert_eq!((answer.status, &*answer.problem()), (400, "key-malformed"));
    assert!(fixture.payments().is_empty());
}

#[tokio::test]
async fn of_two_processes_with_one_key_one_pays_and_the_other_gets_409() {
    let fixture = Fixture::new().await;
    let (one, other) = (fixture.start(3000).await, fixture.start(3000).await);
    let (one, other) = tokio::join!(one.invoke(event("http-api")), other.invoke(event("http-api-duplicate")));
    let (paid, conflict) = if one.status == 201 { (one, other) } else { (other, one) };
    assert_eq!((paid.status, paid.is_replayed()), (201, false));
    assert_eq!((conflict.status, &*conflict.problem()), (409, "in-flight"));
    // The lease lasts no longer than the invocation and a second.
    assert!((1..=21).contains(&conflict.retry_after()));
    assert_eq!(fixture.payments().len(), 1);
}
