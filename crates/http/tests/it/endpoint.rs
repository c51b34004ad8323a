//! A work that answers requests.

use std::time::Duration;

use axum::Router;
use axum::http::{Request, Response};
use bytes::Bytes;
use idempotent_sqs::{Claim, Work, WorkError};
use idempotent_sqs_http::encode_response;

use crate::api::*;

/// Does in its first run what the body of the request says, and then answers with the attempt.
struct Told(Runs);

impl Work<Request<Bytes>> for Told {
    async fn run(&self, claim: &Claim, request: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        let body = format!("run {} attempt {} {}", self.0.add(), claim.attempt(), claim.is_recovery());
        let response = Response::builder().status(201).header("location", "/1").header("set-cookie", "a=b").body(body);
        match &**request.body() {
            _ if self.0.count() > 1 => Ok(encode_response(&response.unwrap())),
            b"retryable" => Err(WorkError::retryable_after("later", Duration::from_secs(7))),
            b"busy" => Err(WorkError::busy("in use")),
            b"uncertain" => Err(WorkError::uncertain("no answer")),
            b"permanent" => Err(WorkError::permanent("refused")),
            b"panic" => panic!("planned"),
            b"hang" => std::future::pending().await,
            b"garbage" => Ok(b"not a response".to_vec()),
            _ => Ok(encode_response(&response.unwrap())),
        }
    }
}

fn told() -> (Router, Runs) {
    let runs = Runs::default();
    let endpoint = builder().build().endpoint(Told(runs.clone()));
    (Router::new().fallback_service(endpoint), runs)
}

fn request(body: &'static str) -> Request<axum::body::Body> {
    Request::post("/").header("idempotency-key", "a").body(body.into()).unwrap()
}

#[tokio::test]
async fn the_first_and_each_later_request_get_the_response_of_the_work() {
    let (router, runs) = told();
    for replayed in [false, true, true] {
        let answer = send(&router, request("pay")).await;
        assert_eq!((answer.status, &*answer.body), (201, b"run 1 attempt 1 false".as_slice()));
        assert_eq!((answer.header("location"), answer.header("set-cookie")), (Some("/1"), None));
        assert_eq!((answer.is_replayed(), answer.header("idempotency-key")), (replayed, Some("a")));
    }
    assert_eq!(send(&router, request("other")).await.problem(), "mismatch");
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_error_of_the_work_has_its_answer_and_its_retry() {
    let cases = [
        ("retryable", 503, "unavailable", Some("7"), "run 2 attempt 2 false"),
        ("busy", 503, "unavailable", Some("1"), "run 2 attempt 1 false"),
        ("uncertain", 500, "failed", None, "run 2 attempt 2 true"),
        ("panic", 500, "failed", None, "run 2 attempt 2 true"),
        ("hang", 504, "deadline", None, "run 2 attempt 2 true"),
    ];
    for (body, status, problem, retry_after, again) in cases {
        let (router, _) = told();
        let failed = send(&router, request(body)).await;
        assert_eq!((failed.status, &*failed.problem(), failed.header("retry-after")), (status, problem, retry_after));
        assert_eq!(send(&router, request(body)).await.body, again, "{body}");
    }
}

#[tokio::test]
async fn a_permanent_error_is_not_tried_again() {
    let (router, runs) = told();
    for _ in 0..2 {
        let failed = send(&router, request("permanent")).await;
        assert_eq!((failed.status, &*failed.problem(), runs.count()), (500, "failed-before", 1));
    }
}

#[tokio::test]
async fn a_result_that_is_not_a_response_is_not_replayed() {
    let (router, runs) = told();
    send(&router, request("garbage")).await;
    assert_eq!((&*send(&router, request("garbage")).await.problem(), runs.count()), ("response-not-kept", 1));
}

#[tokio::test]
async fn a_request_without_a_valid_key_is_rejected() {
    let (router, runs) = told();
    let no_key = Request::get("/").body(axum::body::Body::empty()).unwrap();
    assert_eq!(send(&router, no_key).await.problem(), "key-missing");
    assert_eq!(send(&router, post("\"")).await.problem(), "key-malformed");
    assert_eq!(runs.count(), 0);
}
