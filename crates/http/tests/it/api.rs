//! An API whose handler a test writes, and requests to it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use idempotent_sqs::{MemoryStore, Store};
use idempotent_sqs_http::{IdempotencyLayer, IdempotencyLayerBuilder, IdempotentRequest, Principal};
use tower::ServiceExt;

/// A request as the handler gets it.
pub(crate) struct Seen {
    pub(crate) attempt: Option<IdempotentRequest>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Number of runs of a handler.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<AtomicUsize>);

impl Runs {
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A builder on a store in memory. The principal is the header `Authorization`.
pub(crate) fn builder() -> IdempotencyLayerBuilder<MemoryStore> {
    builder_on(MemoryStore::default())
}

pub(crate) fn builder_on<S: Store>(store: S) -> IdempotencyLayerBuilder<S> {
    IdempotencyLayer::builder(store, |parts| {
        Some(parts.headers.get(AUTHORIZATION).map_or(Principal::new(""), Principal::new))
    })
}

/// A router with this handler for every path and method.
pub(crate) fn router<S, F, Fut>(layer: IdempotencyLayer<S>, handler: F) -> Router
where
    S: Store + 'static,
    F: Fn(Seen) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Body>> + Send + 'static,
{
    let handler = move |request: axum::extract::Request| {
        let handler = handler.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            handler(Seen { attempt: parts.extensions.get().cloned(), headers: parts.headers, body }).await
        }
    };
    Router::new().fallback(handler).layer(layer)
}

/// A router that counts its runs and answers 201 with the number of the run.
pub(crate) fn counting<S: Store + 'static>(layer: IdempotencyLayer<S>) -> (Router, Runs) {
    let runs = Runs::default();
    let counted = runs.clone();
    let router = router(layer, move |_| {
        let run = counted.add();
        async move { response(StatusCode::CREATED, format!("run {run}")) }
    });
    (router, runs)
}

pub(crate) fn response(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

/// `POST /payments` with this key and a JSON body.
pub(crate) fn post(key: &str) -> Request<Body> {
    let request = Request::post("/payments").header("idempotency-key", key).header(CONTENT_TYPE, "application/json");
    request.body(r#"{"amount":1250}"#.into()).unwrap()
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The last part of the problem's type, after a check of its members.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status);
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
        problem["type"].as_str().unwrap().rsplit_once('#').unwrap().1.to_owned()
    }
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Answer {
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// A body of 2 MiB, which is above each limit, whose bytes do not come.
pub(crate) struct Large;

impl http_body::Body for Large {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(2 << 20)
    }
}
