//! Stores that are out of reach, and lost replies.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use axum::{Extension, Router};
use harness::with;
use idempotent_sqs::MemoryStore;
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Results, Settled, Store, StoreError, StoredResult,
};
use idempotent_sqs_http::{IdempotencyLayerBuilder, IdempotentRequest, KeyRule, RequestOutcome, StoreOutage};
use idempotent_sqs_testing::{Fault, FaultyStore, MemoryObjectStore, StoreCall};
use tokio::time::{Instant, advance, sleep, timeout};

use crate::api::*;

fn faulty() -> Arc<FaultyStore<MemoryStore>> {
    Arc::new(FaultyStore::new(MemoryStore::default()))
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_out_of_reach_nothing_runs() {
    for fault in [Fault::Refused, Fault::ReplyLost, Fault::Unreachable] {
        let store = faulty();
        let (router, runs) = counting(builder_on(Arc::clone(&store)).build());
        store.always(StoreCall::Acquire, Some(fault));
        let answer = send(&router, post("a")).await;
        assert_eq!((answer.status, &*answer.problem(), runs.count()), (503, "store-unavailable", 0), "{fault:?}");
        assert_eq!(answer.header("retry-after"), Some("1"));
        store.always(StoreCall::Acquire, None);
        // The lost acquire was released.
        let answer = send(&router, post("a")).await;
        assert_eq!((answer.status, runs.count()), (201, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn by_policy_a_request_runs_without_the_store() {
    let store = faulty();
    let layer = builder_on(Arc::clone(&store)).store_outage(StoreOutage::RunUnprotected).build();
    let router = router(layer, async |seen: Seen| {
        let body = format!("{} {:?}", seen.attempt.is_some(), seen.headers.get("idempotency-key"));
        let mut response = response(StatusCode::CREATED, body);
        for mark in ["idempotent-replayed", "idempotent-body-omitted"] {
            response.headers_mut().insert(mark, HeaderValue::from_static("true"));
        }
        response
    });
    store.always(StoreCall::Acquire, Some(Fault::Refused));
    for _ in 0..2 {
        let answer = send(&router, post("a")).await;
        assert_eq!((answer.status, &*answer.body), (201, b"false Some(\"a\")".as_slice()));
        let marks = [answer.header("idempotent-replayed"), answer.header("idempotent-body-omitted")];
        assert_eq!(marks, [None; 2], "it is not a replay");
    }
}

#[tokio::test]
async fn a_store_that_executes_calls_twice_changes_nothing() {
    let store = faulty();
    let (router, runs) = counting(builder_on(Arc::clone(&store)).build());
    store.always(StoreCall::Acquire, Some(Fault::Twice));
    store.always(StoreCall::Settle, Some(Fault::Twice));
    assert_eq!(send(&router, post("a")).await.status, 201);
    assert!(send(&router, post("a")).await.is_replayed());
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_the_record_of_a_response_is_repeated() {
    let store = faulty();
    let (router, runs) = counting(builder_on(Arc::clone(&store)).build());
    store.next(StoreCall::Settle, Fault::ReplyLost);
    assert_eq!(send(&router, post("a")).await.status, 201);
    assert!(send(&router, post("a")).await.is_replayed());
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_cannot_be_recorded_reaches_its_client_and_the_retry_is_told() {
    let store = faulty();
    let router = router(builder_on(Arc::clone(&store)).build(), async |seen: Seen| {
        response(StatusCode::CREATED, seen.attempt.unwrap().is_recovery.to_string())
    });
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let first = send(&router, post("a")).await;
    assert_eq!((first.status, &*first.body), (201, b"false".as_slice()));
    store.always(StoreCall::Settle, None);
    advance(Duration::from_secs(32)).await;
    assert_eq!(&*send(&router, post("a")).await.body, b"true");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_out_of_reach_after_its_timeout_and_nothing_runs_later() {
    for fault in [Fault::Unreachable, Fault::Slow(Duration::from_secs(5)), Fault::Late(Duration::from_secs(5))] {
        let store = faulty();
        let reports = Runs::default();
        let reported = reports.clone();
        let layer = builder_on(Arc::clone(&store)).store_timeout(Duration::from_secs(3)).report(move |report| {
            reported.add();
            assert_eq!(report.outcome == RequestOutcome::StoreUnavailable, report.status.unwrap() == 503);
        });
        let layer = layer.build();
        let (router, runs) = counting(layer.clone());
        store.next(StoreCall::Acquire, fault);
        let started = Instant::now();
        assert_eq!(send(&router, post("a")).await.problem(), "store-unavailable");
        assert_eq!((started.elapsed().as_secs(), runs.count()), (3, 0), "{fault:?}");
        layer.drained().await;
        assert_eq!((runs.count(), reports.count()), (0, 1), "{fault:?}");
        let answer = send(&router, post("a")).await;
        assert_eq!((answer.status, runs.count()), (201, 1), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_reply_comes_too_late_is_reported_once() {
    let (store, outcomes) = (faulty(), Arc::new(Mutex::new(Vec::new())));
    let reported = Arc::clone(&outcomes);
    let layer = builder_on(Arc::clone(&store)).report(move |report| reported.lock().unwrap().push(report.outcome));
    let (router, _) = counting(layer.build());
    send(&router, post("a")).await;
    store.next(StoreCall::Acquire, Fault::Slow(Duration::from_secs(4)));
    assert_eq!(send(&router, post("a")).await.status, 503);
    advance(Duration::from_secs(10)).await;
    assert!(send(&router, post("a")).await.is_replayed());
    let expected = [RequestOutcome::Completed, RequestOutcome::StoreUnavailable, RequestOutcome::Replayed];
    assert_eq!(*outcomes.lock().unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_reported_is_not_withdrawn() {
    let (outcomes, store_timeout) = (Arc::new(Mutex::new(Vec::new())), Duration::from_millis(300));
    let reported = Arc::clone(&outcomes);
    let layer = builder_on(faulty()).store_timeout(store_timeout).report(move |report| {
        reported.lock().unwrap().push(report.outcome);
        if report.outcome == RequestOutcome::Replayed {
            // The time for the store ends meanwhile.
            thread::sleep(store_timeout * 2);
        }
    });
    let (router, _) = counting(layer.build());
    send(&router, post("a")).await;
    assert!(send(&router, post("a")).await.is_replayed());
    assert_eq!(*outcomes.lock().unwrap(), [RequestOutcome::Completed, RequestOutcome::Replayed]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_before_an_object_is_read_is_out_of_reach() {
    let store = faulty();
    let results = Results::new(Arc::new(MemoryObjectStore::default()), "results", "http/");
    let policy = with!(IdempotencyLayerBuilder::<MemoryStore>::default_policy(), results = Some(results));
    let layer = builder_on(Arc::clone(&store)).policy(policy).store_outage(StoreOutage::RunUnprotected).build();
    let runs = Runs::default();
    let counted = runs.clone();
    let router = router(layer, move |_| {
        counted.add();
        async { response(StatusCode::OK, vec![7; 200_000]) }
    });
    send(&router, post("a")).await;
    store.next(StoreCall::Acquire, Fault::Slow(Duration::ZERO));
    store.next(StoreCall::Acquire, Fault::Unreachable);
    let started = Instant::now();
    assert_eq!(send(&router, post("a")).await.problem(), "store-unavailable");
    assert_eq!((started.elapsed().as_secs(), runs.count()), (7, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_record_expires_before_its_response_is_read_is_not_told_that_it_had_no_effect() {
    let store = faulty();
    let results = Results::new(Arc::new(MemoryObjectStore::default()), "results", "http/");
    let policy = IdempotencyLayerBuilder::<MemoryStore>::default_policy();
    let policy = with!(policy, results = Some(results), retention = Duration::from_secs(40));
    let runs = Runs::default();
    let counted = runs.clone();
    let router = router(builder_on(Arc::clone(&store)).policy(policy).build(), move |_| {
        counted.add();
        async { response(StatusCode::OK, vec![7; 200_000]) }
    });
    send(&router, post("a")).await;
    advance(Duration::from_secs(39)).await;
    // The record expires between the reply and the second acquire, which reads the response.
    store.next(StoreCall::Acquire, Fault::Slow(Duration::from_millis(1500)));
    assert_eq!((send(&router, post("a")).await.problem(), runs.count()), ("response-not-kept".to_owned(), 1));
}

#[tokio::test(start_paused = true)]
async fn by_policy_a_request_runs_once_without_a_store_that_hangs() {
    let store = faulty();
    let layer = builder_on(Arc::clone(&store)).store_outage(StoreOutage::RunUnprotected).build();
    let (router, runs) = counting(layer.clone());
    store.next(StoreCall::Acquire, Fault::Unreachable);
    assert_eq!(send(&router, post("a")).await.status, 201);
    layer.drained().await;
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_does_not_cancel_a_run_without_a_store_that_hangs() {
    let store = faulty();
    store.next(StoreCall::Acquire, Fault::Unreachable);
    let layer = builder_on(store).store_outage(StoreOutage::RunUnprotected).build();
    let ended = Runs::default();
    let counted = ended.clone();
    let router = router(layer.clone(), move |_| {
        let ended = counted.clone();
        async move {
            sleep(Duration::from_secs(10)).await;
            ended.add();
            response(StatusCode::CREATED, "done")
        }
    });
    assert!(timeout(Duration::from_secs(8), send(&router, post("a"))).await.is_err());
    layer.drained().await;
    assert_eq!(ended.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unprotected_run_that_panics_or_hangs_is_answered_and_reported() {
    for (hangs, status) in [(false, 500), (true, 504)] {
        let store = faulty();
        store.always(StoreCall::Acquire, Some(Fault::Refused));
        let reports = Runs::default();
        let reported = reports.clone();
        let layer = builder_on(store).store_outage(StoreOutage::RunUnprotected);
        let layer = layer.report(move |_| assert!(reported.add() > 0)).build();
        let router = router(layer.clone(), move |_| async move {
            if hangs {
                pending::<()>().await;
            }
            panic!("planned")
        });
        assert_eq!((send(&router, post("a")).await.status, reports.count()), (status, 1));
        layer.drained().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_another_one_does_not_run_beside_it_without_the_store() {
    for fault in [Fault::Refused, Fault::Unreachable] {
        let store = faulty();
        let layer = builder_on(Arc::clone(&store)).wait(Duration::from_secs(5));
        let layer = layer.store_outage(StoreOutage::RunUnprotected).build();
        let runs = Runs::default();
        let counted = runs.clone();
        let router = router(layer, move |_| {
            counted.add();
            async {
                sleep(Duration::from_secs(10)).await;
                response(StatusCode::CREATED, "done")
            }
        });
        let second = async {
            sleep(Duration::from_secs(1)).await;
            send(&router, post("a")).await
        };
        let outage = async {
            sleep(Duration::from_secs(2)).await;
            store.always(StoreCall::Acquire, Some(fault));
        };
        let (first, second, ()) = tokio::join!(send(&router, post("a")), second, outage);
        assert_eq!((first.status, second.status, runs.count()), (201, 503, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn a_wait_of_any_length_can_be_set() {
    for layer in [builder().wait(Duration::MAX), builder().store_timeout(Duration::MAX).wait(Duration::MAX)] {
        let (router, _) = counting(layer.build());
        assert_eq!(send(&router, post("a")).await.status, 201);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_slower_than_the_store_timeout_runs_to_its_end() {
    let router = router(builder().store_timeout(Duration::from_millis(1)).build(), async |_| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        response(StatusCode::CREATED, "done")
    });
    assert_eq!(&*send(&router, post("a")).await.body, b"done");
}

/// A store whose value under every key is not a record.
struct Foreign;

impl Store for Foreign {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        Err(StoreError::NotARecord(request.key.to_string()))
    }

    async fn complete(&self, _: &Claim, _: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        panic!("nothing was acquired")
    }

    async fn fail(&self, _: &Claim, _: Failure) -> Result<Settled, StoreError> {
        panic!("nothing was acquired")
    }

    async fn release(&self, _: &AcquireRequest, _: Option<&Claim>) -> Result<Settled, StoreError> {
        panic!("nothing was acquired")
    }
}

#[tokio::test]
async fn a_value_that_is_not_a_record_is_no_outage_and_nothing_runs() {
    for policy in [StoreOutage::Reject, StoreOutage::RunUnprotected] {
        let (router, runs) = counting(builder_on(Foreign).store_outage(policy).build());
        assert_eq!((send(&router, post("a")).await.status, runs.count()), (503, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_503_whose_release_cannot_be_recorded_is_not_reported_as_released() {
    let (store, outcomes) = (faulty(), Arc::new(Mutex::new(Vec::new())));
    let reported = Arc::clone(&outcomes);
    let layer = builder_on(Arc::clone(&store)).report(move |report| reported.lock().unwrap().push(report.outcome));
    let router = router(layer.build(), async |_| response(StatusCode::SERVICE_UNAVAILABLE, ""));
    store.always(StoreCall::Settle, Some(Fault::Refused));
    assert_eq!(send(&router, post("a")).await.status, 503);
    store.always(StoreCall::Settle, None);
    assert_eq!(send(&router, post("a")).await.problem(), "in-flight");
    advance(Duration::from_secs(31)).await;
    assert_eq!(send(&router, post("a")).await.status, 503);
    let expected = [RequestOutcome::NotRecorded, RequestOutcome::InFlight, RequestOutcome::Released];
    assert_eq!(*outcomes.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_attempt_is_optional_runs_without_the_store_and_without_a_key() {
    async fn pay(request: Option<Extension<IdempotentRequest>>) -> (StatusCode, String) {
        (StatusCode::CREATED, request.is_some().to_string())
    }
    let store = faulty();
    let layer = builder_on(Arc::clone(&store)).store_outage(StoreOutage::RunUnprotected);
    let layer = layer.key_rule(|_| KeyRule::Optional).build();
    let router = Router::new().route("/payments", axum::routing::post(pay)).layer(layer);
    let mut without_key = post("a");
    without_key.headers_mut().remove("idempotency-key");
    assert_eq!(&*send(&router, without_key).await.body, b"false");
    assert_eq!(&*send(&router, post("a")).await.body, b"true");
    store.always(StoreCall::Acquire, Some(Fault::Refused));
    let answer = send(&router, post("b")).await;
    assert_eq!((answer.status, &*answer.body), (201, b"false".as_slice()));
}
