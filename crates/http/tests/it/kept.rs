//! Responses that are kept, and those that are not.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::iter;
use harness::with;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use idempotent_sqs::MemoryStore;
use idempotent_sqs::idempotency::{Location, ObjectError, ObjectStore, Results};
use idempotent_sqs_http::{IdempotencyLayerBuilder, RequestBody, RequestOutcome, ServerErrors, StoreOutage};
use idempotent_sqs_testing::MemoryObjectStore;
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};

use crate::api::*;

fn policy() -> idempotent_sqs::Policy {
    IdempotencyLayerBuilder::<MemoryStore>::default_policy()
}

#[tokio::test]
async fn every_status_up_to_499_except_429_is_kept() {
    for status in (200..500).filter(|status| *status != 429) {
        let (runs, status) = (Runs::default(), StatusCode::from_u16(status).unwrap());
        let counted = runs.clone();
        let router = router(builder().build(), move |_| {
            counted.add();
            async move { response(status, "") }
        });
        let [first, again] = [send(&router, post("a")).await, send(&router, post("a")).await];
        assert_eq!(
            (first.status, again.status, again.is_replayed(), runs.count()),
            (status.as_u16(), status.as_u16(), true, 1)
        );
    }
}

#[tokio::test]
async fn a_429_and_a_503_are_passed_on_and_released() {
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
        let runs = Runs::default();
        let counted = runs.clone();
        let router = router(builder().build(), move |seen: Seen| {
            let attempt = seen.attempt.unwrap();
            assert_eq!((attempt.attempt, attempt.is_recovery), (1, false), "a released run is not an attempt");
            let run = counted.add();
            async move {
                if run > 20 {
                    return response(StatusCode::CREATED, "done");
                }
                Response::builder().status(status).header("retry-after", "7").body(Body::from("later")).unwrap()
            }
        });
        for _ in 0..20 {
            let answer = send(&router, post("a")).await;
            assert_eq!((answer.status, &*answer.body), (status.as_u16(), b"later".as_slice()));
            assert_eq!((answer.header("retry-after"), answer.is_replayed()), (Some("7"), false));
        }
        assert_eq!(send(&router, post("a")).await.status, 201);
        assert!(send(&router, post("a")).await.is_replayed());
    }
}

#[tokio::test]
async fn other_server_errors_are_kept_if_the_policy_says_so() {
    let runs = Runs::default();
    let counted = runs.clone();
    let router = router(builder().server_errors(ServerErrors::Keep).build(), move |_| {
        counted.add();
        async { response(StatusCode::INTERNAL_SERVER_ERROR, "broken") }
    });
    send(&router, post("a")).await;
    let again = send(&router, post("a")).await;
    assert_eq!((again.status, &*again.body, again.is_replayed(), runs.count()), (500, b"broken".as_slice(), true, 1));
}

#[tokio::test]
async fn a_binary_body_and_its_headers_survive() {
    let body: Vec<u8> = (0..=255).cycle().take(50_000).collect();
    let sent = body.clone();
    let router = router(builder().build(), move |_| {
        let response = Response::builder().header("content-type", "image/png").header("location", "/payments/1");
        let response = response.header("etag", "\"v1\"").header("set-cookie", "session=1").header("x-request-id", "7");
        let response = response.body(Body::from(sent.clone())).unwrap();
        async { response }
    });
    let [first, again] = [send(&router, post("a")).await, send(&router, post("a")).await];
    assert_eq!((&first.body, &again.body), (&Bytes::from(body.clone()), &Bytes::from(body)));
    assert_eq!((first.header("set-cookie"), first.header("x-request-id")), (Some("session=1"), Some("7")));
    assert_eq!((again.header("set-cookie"), again.header("x-request-id")), (None, None));
    for (name, value) in [("content-type", "image/png"), ("location", "/payments/1"), ("etag", "\"v1\"")] {
        assert_eq!((first.header(name), again.header(name)), (Some(value), Some(value)));
    }
}

#[tokio::test]
async fn a_large_response_is_kept_as_an_object() {
    let results = Results::new(Arc::new(MemoryObjectStore::default()), "results", "http/");
    let policy = with!(policy(), results = Some(results));
    let router = router(builder().policy(policy).build(), async |_| response(StatusCode::OK, vec![7; 200_000]));
    send(&router, post("a")).await;
    let again = send(&router, post("a")).await;
    assert_eq!((again.status, again.body.len(), again.is_replayed()), (200, 200_000, true));
}

/// Objects in memory. Reading one takes 4 s, longer than the store's timeout.
#[derive(Debug, Default)]
struct SlowObjects(MemoryObjectStore);

impl ObjectStore for SlowObjects {
    fn get<'a>(&'a self, location: &'a Location, max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(async move {
            sleep(Duration::from_secs(4)).await;
            self.0.get(location, max_bytes).await
        })
    }

    fn put<'a>(&'a self, location: &'a Location, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.0.put(location, bytes)
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_read_slowly_is_replayed_and_no_outage_of_the_store() {
    for outage in [StoreOutage::Reject, StoreOutage::RunUnprotected] {
        let results = Results::new(Arc::new(SlowObjects::default()), "results", "http/");
        let layer = builder().policy(with!(policy(), results = Some(results))).store_outage(outage).build();
        let runs = Runs::default();
        let counted = runs.clone();
        let router = router(layer, move |_| {
            counted.add();
            async { response(StatusCode::CREATED, vec![7; 200_000]) }
        });
        send(&router, post("a")).await;
        let again = send(&router, post("a")).await;
        assert_eq!((again.status, again.body.len(), again.is_replayed(), runs.count()), (201, 200_000, true, 1));
    }
}

#[tokio::test]
async fn trailers_reach_the_first_client_and_end_the_body() {
    let router = router(builder().build(), async |_| {
        let trailers = [("x-checksum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect();
        let frames = [http_body::Frame::data(Bytes::from("body")), http_body::Frame::trailers(trailers)];
        let frames = futures_util::stream::iter(frames.map(Ok::<_, std::convert::Infallible>));
        Response::new(Body::new(StreamBody::new(frames.chain(futures_util::stream::pending()))))
    });
    let first = router.clone().oneshot(post("a")).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(first.trailers().unwrap().get("x-checksum").unwrap(), "7");
    assert_eq!(&*send(&router, post("a")).await.body, b"body");
}

#[tokio::test]
async fn each_request_with_a_key_is_reported_once() {
    let reports = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    let layer = builder().report(move |report| {
        let status = report.status.unwrap().as_u16();
        seen.lock().unwrap().push((report.outcome, status, report.client_key.clone(), report.attempts, report.fence));
    });
    let (router, _) = counting(layer.build());
    for request in [post("a"), post("a"), post("\""), axum::http::Request::get("/").body(Body::empty()).unwrap()] {
        send(&router, request).await;
    }
    let (key, reports) = (|| Some("a".to_owned()), reports.lock().unwrap());
    // A replay has the fence of the attempt that made the response.
    let fence = reports[0].4;
    assert!(fence.is_some());
    assert_eq!(
        *reports,
        [
            (RequestOutcome::Completed, 201, key(), Some(1), fence),
            (RequestOutcome::Replayed, 201, key(), Some(1), fence),
            (RequestOutcome::Rejected, 400, None, None, None),
        ]
    );
}

#[tokio::test]
async fn a_release_an_uncertain_run_and_a_recovery_are_reported_as_such() {
    let reports = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    let layer = builder().report(move |report| seen.lock().unwrap().push((report.outcome, report.is_recovery)));
    let runs = Runs::default();
    let router = router(layer.build(), move |_| {
        let status = [503, 500, 201][runs.add() - 1];
        async move { response(StatusCode::from_u16(status).unwrap(), "") }
    });
    for _ in 0..3 {
        send(&router, post("a")).await;
    }
    let expected =
        [(RequestOutcome::Released, false), (RequestOutcome::Uncertain, false), (RequestOutcome::Completed, true)];
    assert_eq!(*reports.lock().unwrap(), expected);
}

#[test]
fn the_default_policy_is_that_of_the_documentation() {
    let policy = policy();
    let hour = std::time::Duration::from_hours(1);
    assert_eq!((policy.retention, policy.failed_retention), (24 * hour, hour));
    assert_eq!((policy.max_attempts, policy.result_max_bytes), (10, 65_536));
}

#[tokio::test]
async fn a_report_that_panics_does_not_change_the_answer() {
    let (router, _) = counting(builder().report(|_| panic!("planned")).build());
    assert_eq!(send(&router, post("a")).await.status, 201);
    assert_eq!(send(&router, post("\"")).await.status, 400);
}

#[tokio::test]
async fn marks_of_another_service_are_not_passed_on() {
    let router = router(builder().build(), async |_| {
        let marked =
            Response::builder().header("idempotent-replayed", "true").header("idempotent-body-omitted", "true");
        marked.body(Body::from("first")).unwrap()
    });
    let first = send(&router, post("a")).await;
    assert_eq!((first.is_replayed(), first.header("idempotent-body-omitted")), (false, None));
}

#[tokio::test]
async fn a_status_that_is_not_final_is_uncertain() {
    for status in [100, 103, 600, 999] {
        let router = router(builder().build(), move |seen: Seen| async move {
            let status = if seen.attempt.unwrap().is_recovery { 201 } else { status };
            response(StatusCode::from_u16(status).unwrap(), "")
        });
        let statuses = [send(&router, post("a")).await.status, send(&router, post("a")).await.status];
        assert_eq!(statuses, [status, 201]);
    }
}

#[tokio::test]
async fn trailers_of_a_request_reach_the_handler() {
    let service = builder().build().layer(service_fn(|request: Request<RequestBody<Body>>| async move {
        let body = request.into_body().collect().await.unwrap();
        let checksum = body.trailers().unwrap()["x-checksum"].clone();
        Ok::<_, Infallible>(Response::new(Body::from(checksum.to_str().unwrap().to_owned())))
    }));
    let trailers = HeaderMap::from_iter([("x-checksum".parse().unwrap(), "7".parse().unwrap())]);
    let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from("{}"))), Ok(Frame::trailers(trailers))];
    let request = post("a").map(|_| Body::new(StreamBody::new(iter(frames))));
    let answer = service.oneshot(request).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "7");
}
