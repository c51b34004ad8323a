//! The deadline of an invocation, as on Lambda: no task of its own, and everything ends before the process is frozen.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use idempotent_sqs::{Deadline, MemoryStore, Store};
use idempotent_sqs_http::{IdempotencyLayer, IdempotencyLayerBuilder, StoreOutage, encode_response};
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::api::*;

const SECOND: Duration = Duration::from_secs(1);

fn on_lambda<S: Store>(store: S) -> IdempotencyLayerBuilder<S> {
    builder_on(store).spawn(false).deadline(|request| request.extensions.get().copied())
}

/// A request of an invocation that ends after this time.
fn within(remaining: Duration, mut request: Request<Body>) -> Request<Body> {
    request.extensions_mut().insert(Deadline::within(remaining));
    request
}

/// A router whose first run takes an hour. Later ones answer whether they are a recovery.
fn slow_first<S: Store + 'static>(layer: IdempotencyLayer<S>) -> Router {
    router(layer, |seen: Seen| async move {
        let attempt = seen.attempt.unwrap();
        if attempt.attempt == 1 {
            sleep(3600 * SECOND).await;
        }
        response(StatusCode::CREATED, attempt.is_recovery.to_string())
    })
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_at_its_timeout_or_before_its_invocation_whichever_is_first() {
    for (timeout, invocation, ends) in [(30, Some(4), 3), (30, None, 29), (4, Some(30), 3)] {
        let router = slow_first(on_lambda(MemoryStore::default()).timeout(timeout * SECOND).build());
        let started = Instant::now();
        let request = invocation.map_or_else(|| post("a"), |remaining| within(remaining * SECOND, post("a")));
        assert_eq!(send(&router, request).await.problem(), "deadline");
        assert_eq!(started.elapsed().as_secs(), ends, "{timeout} {invocation:?}");
        // The record is settled: a retry runs at once, and is told.
        assert_eq!(&*send(&router, within(4 * SECOND, post("a"))).await.body, b"true");
        assert_eq!(started.elapsed().as_secs(), ends);
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_ends_before_its_invocation() {
    let layer = on_lambda(MemoryStore::default()).build();
    let endpoint = layer.endpoint(idempotent_sqs::work_fn(|_, _: &Request<bytes::Bytes>| async {
        sleep(3600 * SECOND).await;
        Ok(encode_response(&response(StatusCode::CREATED, "").map(|_| "")))
    }));
    let started = Instant::now();
    let answer = endpoint.oneshot(within(4 * SECOND, post("a"))).await.unwrap();
    assert_eq!((answer.status().as_u16(), started.elapsed().as_secs()), (504, 3));
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_no_longer_than_its_invocation_and_a_second() {
    let router = slow_first(on_lambda(MemoryStore::default()).build());
    let started = Instant::now();
    // The process dies.
    let dropped = tokio::time::timeout(SECOND, send(&router, within(4 * SECOND, post("a")))).await;
    assert!(dropped.is_err());
    let conflict = send(&router, within(4 * SECOND, post("a"))).await;
    assert_eq!((conflict.status, conflict.header("retry-after")), (409, Some("4")));
    sleep(4 * SECOND).await;
    assert_eq!(&*send(&router, within(4 * SECOND, post("a"))).await.body, b"true");
    assert_eq!(started.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_invocation_that_has_no_time_left_runs_nothing() {
    let (router, runs) = counting(on_lambda(MemoryStore::default()).build());
    let answer = send(&router, within(Duration::ZERO, post("a"))).await;
    assert_eq!((answer.status, &*answer.problem(), runs.count()), (503, "not-started", 0));
    assert_eq!((send(&router, post("a")).await.status, runs.count()), (201, 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_answered_before_the_invocation_ends_and_nothing_runs() {
    for policy in [StoreOutage::Reject, StoreOutage::RunUnprotected] {
        let store = Arc::new(FaultyStore::new(MemoryStore::default()));
        let (router, runs) = counting(on_lambda(Arc::clone(&store)).store_outage(policy).build());
        store.always(StoreCall::Acquire, Some(Fault::Unreachable));
        let started = Instant::now();
        let answer = send(&router, within(4 * SECOND, post("a"))).await;
        assert_eq!((answer.problem().as_str(), runs.count()), ("store-unavailable", 0));
        assert!(started.elapsed() < 4 * SECOND, "{:?}", started.elapsed());
        sleep(3600 * SECOND).await;
        assert_eq!(runs.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_the_store_ends_before_its_invocation() {
    let store = Arc::new(FaultyStore::new(MemoryStore::default()));
    store.always(StoreCall::Acquire, Some(Fault::Refused));
    let layer = on_lambda(store).store_outage(StoreOutage::RunUnprotected).build();
    let router = router(layer, |_| std::future::pending());
    let started = Instant::now();
    assert_eq!(send(&router, within(4 * SECOND, post("a"))).await.problem(), "deadline");
    assert_eq!(started.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_another_request_ends_before_the_invocation() {
    for replies_after in [Duration::ZERO, Duration::from_millis(1)] {
        let store = Arc::new(FaultyStore::new(MemoryStore::default()));
        store.always(StoreCall::Acquire, Some(Fault::Slow(replies_after)));
        let router = slow_first(on_lambda(store).wait(60 * SECOND).build());
        let started = Instant::now();
        let (_, waited) = tokio::join!(send(&router, within(60 * SECOND, post("a"))), async {
            sleep(Duration::from_millis(10)).await;
            let waited = send(&router, within(4 * SECOND, post("a"))).await;
            (waited.status, started.elapsed().as_secs_f64().round())
        });
        assert_eq!(waited, (409, 3.0), "{replies_after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_answered_before_the_invocation_ends() {
    let (router, runs) = counting(on_lambda(MemoryStore::default()).build());
    let mut request = within(4 * SECOND, post("a"));
    *request.body_mut() = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let started = Instant::now();
    assert_eq!(send(&router, request).await.problem(), "body-timeout");
    assert_eq!((started.elapsed().as_secs(), runs.count()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_after_a_wait_for_another_request_has_all_of_its_time() {
    let runs = Runs::default();
    let layer = builder().timeout(10 * SECOND).wait(9 * SECOND).build();
    let router = router(layer, move |_| {
        let (takes, status) = if runs.add() == 1 {
            (8 * SECOND, StatusCode::SERVICE_UNAVAILABLE)
        } else {
            (6 * SECOND, StatusCode::CREATED)
        };
        async move {
            sleep(takes).await;
            response(status, "")
        }
    });
    let (first, second) = tokio::join!(send(&router, post("a")), send(&router, post("a")));
    assert_eq!((first.status, second.status), (503, 201));
}

#[tokio::test(start_paused = true)]
async fn a_request_with_too_little_time_leaves_no_mark() {
    let (router, runs) = counting(on_lambda(MemoryStore::default()).build());
    for remaining in [Duration::ZERO, Duration::from_millis(50)] {
        assert_eq!(send(&router, within(remaining, post("a"))).await.problem(), "not-started");
    }
    assert_eq!(send(&router, within(4 * SECOND, post("a"))).await.status, 201);
    assert_eq!(runs.count(), 1);
}
