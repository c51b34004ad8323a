//! Clients that disconnect, and shutdown.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::FutureExt as _;
use harness::{soon, until};
use idempotent_sqs::{Claim, WorkError, work_fn};
use idempotent_sqs_http::{RequestBody, encode_response};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt};

use crate::api::*;

/// A handler that announces its start and waits for a permit.
struct Gate {
    started: Notify,
    open: Semaphore,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self { started: Notify::new(), open: Semaphore::new(0) })
    }

    async fn pass(&self) {
        self.started.notify_one();
        self.open.acquire().await.unwrap().forget();
    }
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_cancel_the_handler() {
    let (gate, runs) = (Gate::new(), Runs::default());
    let (passed, counted) = (Arc::clone(&gate), runs.clone());
    let layer = builder().build();
    let router = router(layer.clone(), move |_| {
        let (passed, counted) = (Arc::clone(&passed), counted.clone());
        async move {
            passed.pass().await;
            counted.add();
            response(StatusCode::CREATED, "done")
        }
    });
    let mut request = Box::pin(router.clone().oneshot(post("a")));
    tokio::select! {
        _ = &mut request => panic!("the gate is closed"),
        () = gate.started.notified() => drop(request),
    }
    assert_eq!(send(&router, post("a")).await.status, 409);
    assert!(timeout(Duration::from_millis(20), layer.drained()).await.is_err(), "the handler runs");
    gate.open.add_permits(1);
    soon(layer.drained()).await;
    let again = send(&router, post("a")).await;
    assert_eq!((again.status, &*again.body, again.is_replayed(), runs.count()), (201, b"done".as_slice(), true, 1));
}

#[tokio::test]
async fn without_spawn_the_handler_ends_with_its_request_and_the_lease_holds() {
    let gate = Gate::new();
    let passed = Arc::clone(&gate);
    let layer = builder().spawn(false).build();
    let router = router(layer.clone(), move |_| {
        let passed = Arc::clone(&passed);
        async move {
            passed.pass().await;
            response(StatusCode::CREATED, "done")
        }
    });
    let mut request = Box::pin(router.clone().oneshot(post("a")));
    tokio::select! {
        _ = &mut request => panic!("the gate is closed"),
        () = gate.started.notified() => drop(request),
    }
    soon(layer.drained()).await;
    assert_eq!(send(&router, post("a")).await.status, 409);
    gate.open.add_permits(1);
    assert_eq!(send(&router, post("b")).await.status, 201);
}

/// On one thread, the task of a request cannot begin before this test awaits something.
#[tokio::test]
async fn a_shutdown_waits_for_a_request_whose_task_has_not_begun() {
    let runs = Runs::default();
    let counted = runs.clone();
    let layer = builder().build();
    let router = router(layer.clone(), move |_| {
        counted.add();
        async { response(StatusCode::CREATED, "done") }
    });
    let mut request = Box::pin(router.oneshot(post("a")));
    assert!(request.as_mut().now_or_never().is_none());
    assert_eq!(runs.count(), 0);
    drop(request);
    soon(layer.drained()).await;
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_layer_without_requests_is_drained() {
    soon(builder().build().drained()).await;
}

#[tokio::test]
async fn of_200_concurrent_requests_one_runs() {
    let (gate, runs) = (Gate::new(), Runs::default());
    let (passed, counted) = (Arc::clone(&gate), runs.clone());
    let router = router(builder().build(), move |_| {
        counted.add();
        let passed = Arc::clone(&passed);
        async move {
            passed.pass().await;
            response(StatusCode::CREATED, "done")
        }
    });
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let router = router.clone();
        requests.spawn(async move { send(&router, post("a")).await });
    }
    until(|| async { runs.count() == 1 }).await;
    gate.open.add_permits(1);
    let answers = soon(requests.join_all()).await;
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(201) + count(409), runs.count()), (200, 1));
    assert_eq!(answers.iter().filter(|answer| answer.status == 201 && !answer.is_replayed()).count(), 1);
    assert!(answers.iter().filter(|answer| answer.status == 201).all(|answer| &*answer.body == b"done"));
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_cancel_the_work_of_an_endpoint() {
    let gate = Gate::new();
    let passed = Arc::clone(&gate);
    let layer = builder().build();
    let endpoint = layer.endpoint(work_fn(move |_: &Claim, _: &Request<Bytes>| {
        let passed = Arc::clone(&passed);
        async move {
            passed.pass().await;
            Ok::<_, WorkError>(encode_response(&Response::new("done")))
        }
    }));
    let router = axum::Router::new().fallback_service(endpoint);
    let mut request = Box::pin(router.clone().oneshot(post("a")));
    tokio::select! {
        _ = &mut request => panic!("the gate is closed"),
        () = gate.started.notified() => drop(request),
    }
    gate.open.add_permits(1);
    soon(layer.drained()).await;
    assert!(send(&router, post("a")).await.is_replayed());
}

/// A service that must be ready when it is called. A clone is not ready.
#[derive(Debug, Default)]
struct NeedsReady(bool);

impl Clone for NeedsReady {
    fn clone(&self) -> Self {
        Self(false)
    }
}

impl Service<Request<RequestBody<Body>>> for NeedsReady {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0 = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody<Body>>) -> Self::Future {
        assert!(self.0, "it is called when it is ready");
        ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test]
async fn the_inner_service_is_called_when_it_is_ready() {
    let service = builder().build().layer(NeedsReady::default());
    for request in [post("a"), Request::get("/").body(Body::empty()).unwrap()] {
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), StatusCode::OK);
    }
}
