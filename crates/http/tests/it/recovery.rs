//! Failures of the handler, and what a retry is told.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use harness::with;
use idempotent_sqs::MemoryStore;
use idempotent_sqs::idempotency::Recovery;
use idempotent_sqs_http::{IdempotencyLayerBuilder, IdempotentRequest, RequestBody};
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tokio::time::{advance, sleep};
use tower::{Layer, ServiceExt};

use crate::api::*;

/// What a first run does.
#[derive(Clone, Copy, Debug)]
enum First {
    Answer(u16),
    Panic,
    Hang,
    BreakOff,
}

/// Does this in the first run, and then answers with the attempt and whether it is a recovery.
async fn fail_first(first: First, seen: Seen) -> Response<Body> {
    let attempt = seen.attempt.unwrap();
    if attempt.attempt > 1 {
        return response(StatusCode::CREATED, format!("{} {}", attempt.attempt, attempt.is_recovery));
    }
    match first {
        First::Answer(status) => response(StatusCode::from_u16(status).unwrap(), "broken"),
        First::Panic => panic!("planned"),
        First::Hang => std::future::pending().await,
        First::BreakOff => {
            let chunks = [Ok(Bytes::from("half")), Err(std::io::Error::other("reset"))];
            Response::new(Body::from_stream(futures_util::stream::iter(chunks)))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_failure_that_may_have_taken_effect_is_told() {
    let failures = [
        (First::Answer(500), 500, None),
        (First::Answer(502), 502, None),
        (First::Answer(504), 504, None),
        (First::Panic, 500, Some("failed")),
        (First::Hang, 504, Some("deadline")),
        (First::BreakOff, 500, Some("failed")),
    ];
    for (first, status, problem) in failures {
        let router = router(builder().build(), move |seen| fail_first(first, seen));
        let failed = send(&router, post("a")).await;
        assert_eq!((failed.status, failed.is_replayed()), (status, false), "{first:?}");
        match problem {
            Some(problem) => assert_eq!(failed.problem(), problem),
            None => assert_eq!(&*failed.body, b"broken"),
        }
        let again = send(&router, post("a")).await;
        assert_eq!((again.status, &*again.body), (201, b"2 true".as_slice()), "{first:?}");
        assert!(send(&router, post("a")).await.is_replayed());
    }
}

#[tokio::test(start_paused = true)]
async fn another_request_after_a_failure_that_may_have_taken_effect_is_a_mismatch() {
    let router = router(builder().build(), |seen| fail_first(First::Answer(500), seen));
    send(&router, post("a")).await;
    let mut other = post("a");
    *other.body_mut() = Body::from("{}");
    assert_eq!(send(&router, other).await.problem(), "mismatch");
}

#[tokio::test]
async fn an_error_of_the_inner_service_is_returned_and_the_retry_is_told() {
    let layer = builder().build();
    let service = layer.layer(tower::service_fn(|request: Request<RequestBody<Body>>| async move {
        let attempt: &IdempotentRequest = request.extensions().get().unwrap();
        if attempt.attempt == 1 {
            Err("broken")
        } else {
            Ok(Response::new(Body::from(attempt.is_recovery.to_string())))
        }
    }));
    assert_eq!(service.clone().oneshot(post("a")).await.unwrap_err(), "broken");
    let again = service.oneshot(post("a")).await.unwrap();
    assert_eq!(axum::body::to_bytes(Body::new(again.into_body()), 10).await.unwrap(), "true");
}

#[tokio::test(start_paused = true)]
async fn used_up_attempts_are_not_run_for_the_failed_retention_and_then_recover() {
    let policy = with!(IdempotencyLayerBuilder::<MemoryStore>::default_policy(), max_attempts = 3);
    let runs = Runs::default();
    let counted = runs.clone();
    let router = router(builder().policy(policy).build(), move |seen: Seen| {
        let attempt = seen.attempt.unwrap();
        let run = counted.add();
        assert_eq!((usize::from(attempt.attempt), attempt.is_recovery), ((run - 1) % 3 + 1, run > 1));
        async { response(StatusCode::BAD_GATEWAY, "broken") }
    });
    for round in 1..=2 {
        for _ in 0..3 {
            assert_eq!(send(&router, post("a")).await.status, 502);
        }
        for _ in 0..3 {
            let answer = send(&router, post("a")).await;
            assert_eq!((answer.status, &*answer.problem(), runs.count()), (500, "failed-before", 3 * round));
        }
        advance(Duration::from_secs(3599)).await;
        assert_eq!(send(&router, post("a")).await.problem(), "failed-before");
        advance(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_recovery_does_not_run() {
    let policy = with!(IdempotencyLayerBuilder::<MemoryStore>::default_policy(), recovery = Recovery::Park);
    let recoveries = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&recoveries);
    let layer =
        builder().policy(policy).report(move |report| reported.lock().unwrap().push(report.is_recovery)).build();
    let router = router(layer, |seen| fail_first(First::Answer(500), seen));
    send(&router, post("a")).await;
    for _ in 0..2 {
        assert_eq!(send(&router, post("a")).await.problem(), "failed-before");
        advance(Duration::from_secs(3601)).await;
    }
    assert_eq!(*recoveries.lock().unwrap(), [false; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_in_flight_gets_409_with_the_remaining_lease() {
    let router = router(builder().timeout(Duration::from_secs(20)).build(), |seen| fail_first(First::Hang, seen));
    let first = tokio::spawn({
        let router = router.clone();
        async move { send(&router, post("a")).await }
    });
    // The lease is a second longer than the time, and seconds are rounded up.
    for (after, retry_after) in [(0, "21"), (7500, "14"), (10_500, "3")] {
        sleep(Duration::from_millis(after)).await;
        tokio::task::yield_now().await;
        let answer = send(&router, post("a")).await;
        assert_eq!(
            (answer.status, &*answer.problem(), answer.header("retry-after")),
            (409, "in-flight", Some(retry_after))
        );
        assert_eq!(answer.header("idempotency-key"), Some("a"));
    }
    assert_eq!(first.await.unwrap().problem(), "deadline");
}

#[tokio::test(start_paused = true)]
async fn a_retry_can_wait_for_the_first_request() {
    let router = router(builder().wait(Duration::from_secs(5)).build(), async |_| {
        sleep(Duration::from_secs(3)).await;
        response(StatusCode::CREATED, "done")
    });
    let (first, again) = tokio::join!(send(&router, post("a")), send(&router, post("a")));
    assert_eq!((first.status, &*first.body), (201, b"done".as_slice()));
    assert_eq!((again.status, &*again.body), (201, b"done".as_slice()));
    assert!(first.is_replayed() != again.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_409() {
    let router = router(builder().wait(Duration::from_secs(5)).build(), |seen| fail_first(First::Hang, seen));
    let (first, again) = tokio::join!(send(&router, post("a")), async {
        let started = tokio::time::Instant::now();
        let again = send(&router, post("a")).await;
        assert!((5..6).contains(&started.elapsed().as_secs()));
        again
    });
    assert_eq!((first.status, again.status), (504, 409));
}

#[tokio::test(start_paused = true)]
async fn a_last_attempt_that_panics_or_hangs_is_answered_as_any_other() {
    for (hangs, status, problem) in [(false, 500, "failed"), (true, 504, "deadline")] {
        let policy = with!(IdempotencyLayerBuilder::<MemoryStore>::default_policy(), max_attempts = 1);
        let router = router(builder().policy(policy).build(), move |_| async move {
            if hangs {
                pending::<()>().await;
            }
            panic!("planned")
        });
        let answer = send(&router, post("a")).await;
        assert_eq!((answer.status, &*answer.problem()), (status, problem));
        assert_eq!(send(&router, post("a")).await.problem(), "failed-before");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_that_cannot_be_recorded_is_not_called_a_deadline() {
    let store = Arc::new(FaultyStore::new(MemoryStore::default()));
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let router = router(builder_on(store).build(), async |_| panic!("planned"));
    assert_eq!(send(&router, post("a")).await.problem(), "failed");
}
