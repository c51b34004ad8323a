//! Calls by HTTP: requests to an endpoint of the work.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use idempotent_sqs::{Deadline, Policy};
use idempotent_sqs_http::{IdempotencyLayer, Principal};
use serde_json::Value;
use tower::ServiceExt;

use super::SharedStore;
use super::work::RowWork;

/// What a request was answered.
#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    /// The last part of the type of a problem.
    pub problem: Option<String>,
    pub retry_after_s: Option<u64>,
    pub is_replayed: bool,
    pub body: Bytes,
}

/// Sends a request of an invocation with this deadline. Nothing of it runs after the answer.
pub(super) async fn send(
    (store, policy): (SharedStore, Policy),
    (deadline, wait): (Deadline, Duration),
    key: &str,
    work: Arc<RowWork>,
) -> HttpAnswer {
    let layer = IdempotencyLayer::builder(store, |_| Some(Principal::GLOBAL))
        .policy(policy)
        .deadline(move |_| Some(deadline))
        .spawn(false)
        .wait(wait)
        .build();
    let body = Full::new(Bytes::from(work.payload.to_string()));
    let request = Request::post("/rows").header("idempotency-key", key).body(body).expect("it is a valid request");
    let response = layer.endpoint(work).oneshot(request).await.unwrap_or_else(|never| match never {});
    HttpAnswer::of(response).await
}

impl HttpAnswer {
    /// What is in this response.
    pub async fn of<B>(response: Response<B>) -> Self
    where
        B: BodyExt<Data = Bytes>,
        B::Error: Debug,
    {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("the body is in memory").to_bytes();
        let problem = serde_json::from_slice::<Value>(&body).ok();
        let kind = problem.as_ref().and_then(|problem| problem["type"].as_str()?.rsplit_once('#'));
        let retry_after = parts.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        Self {
            status: parts.status.as_u16(),
            problem: kind.map(|(_, kind)| kind.to_owned()),
            retry_after_s: retry_after.and_then(|seconds| seconds.parse().ok()),
            is_replayed: parts.headers.contains_key("idempotent-replayed"),
            body,
        }
    }
}
