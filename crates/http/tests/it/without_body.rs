//! Responses that are kept without their body: too large, or streams.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{iter, pending, unfold};
use harness::with;
use http_body::Frame;
use http_body_util::BodyExt;
use idempotent_sqs::MemoryStore;
use idempotent_sqs_http::IdempotencyLayerBuilder;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;

use crate::api::*;

fn policy() -> idempotent_sqs::Policy {
    IdempotencyLayerBuilder::<MemoryStore>::default_policy()
}

#[tokio::test]
async fn an_oversize_response_reaches_its_client_whole_and_does_not_run_again() {
    for chunk in [70_000, 1000] {
        let body = move || {
            let chunks = (0..70_000 / chunk).map(move |_| Ok::<_, std::io::Error>(Bytes::from(vec![7; chunk])));
            if chunk == 70_000 { Body::from(vec![7; chunk]) } else { Body::from_stream(iter(chunks)) }
        };
        let runs = Runs::default();
        let counted = runs.clone();
        let router = router(builder().build(), move |_| {
            counted.add();
            let response = Response::builder().status(201).header("location", "/r/1").header("content-encoding", "x");
            async move { response.body(body()).unwrap() }
        });
        let [first, again] = [send(&router, post("a")).await, send(&router, post("a")).await];
        assert_eq!((first.status, first.body.len(), first.header("idempotent-body-omitted")), (201, 70_000, None));
        assert_eq!((again.status, again.body.len(), again.header("idempotent-body-omitted")), (201, 0, Some("true")));
        assert_eq!((again.header("location"), again.header("content-encoding")), (Some("/r/1"), None));
        assert_eq!((again.is_replayed(), runs.count()), (true, 1));
    }
}

#[tokio::test]
async fn a_response_is_kept_up_to_the_size_limit() {
    let kept_at = async |result_max_bytes, is_chunked| {
        let router =
            router(builder().policy(with!(policy(), result_max_bytes = result_max_bytes)).build(), move |_| {
                let chunks = ["0123456789"; 3].map(Ok::<_, Infallible>);
                let body = if is_chunked { Body::from_stream(iter(chunks)) } else { Body::empty() };
                async { Response::builder().header("a", "b").body(body).unwrap() }
            });
        send(&router, post("a")).await;
        send(&router, post("a")).await.header("idempotent-body-omitted").is_none()
    };
    // Version, marks, status and number of headers have 6 bytes, and so have the lengths of a name and its value.
    for (is_chunked, size) in [(false, 14), (true, 44)] {
        assert_eq!((kept_at(size, is_chunked).await, kept_at(size - 1, is_chunked).await), (true, false), "{size}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_reaches_its_client_after_half_of_a_short_time() {
    let router = router(builder().timeout(Duration::from_secs(4)).build(), async |_| {
        Response::new(Body::from_stream(pending::<Result<Bytes, Infallible>>()))
    });
    let started = Instant::now();
    let first = router.clone().oneshot(post("a")).await.unwrap();
    assert_eq!((first.status(), started.elapsed()), (StatusCode::OK, Duration::from_millis(1500)));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_known_to_be_oversize_starts_at_once() {
    let router = router(builder().build(), async |_| Response::new(Body::new(Large)));
    let started = Instant::now();
    let first = router.clone().oneshot(post("a")).await.unwrap();
    assert_eq!((first.status(), started.elapsed()), (StatusCode::OK, Duration::ZERO));
    assert_eq!(send(&router, post("a")).await.header("idempotent-body-omitted"), Some("true"));
}

#[tokio::test]
async fn headers_that_are_too_large_do_not_make_a_request_run_again() {
    let policy = with!(policy(), result_max_bytes = 64);
    let runs = Runs::default();
    let counted = runs.clone();
    let router = router(builder().policy(policy).build(), move |_| {
        counted.add();
        async { Response::builder().status(202).header("location", "x".repeat(100)).body(Body::from("ok")).unwrap() }
    });
    let [first, again] = [send(&router, post("a")).await, send(&router, post("a")).await];
    assert_eq!((first.status, &*first.body), (202, b"ok".as_slice()));
    assert_eq!(
        (again.status, again.header("location"), again.header("idempotent-body-omitted")),
        (202, None, Some("true"))
    );
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_any_type_reaches_its_client_and_does_not_run_again() {
    let runs = Runs::default();
    let counted = runs.clone();
    let router = router(builder().build(), move |_| {
        counted.add();
        let lines = unfold(0, |line| async move {
            sleep(Duration::from_secs(2)).await;
            Some((Ok::<_, Infallible>(format!("{line}\n")), line + 1))
        });
        async { Response::new(Body::from_stream(lines.take(30))) }
    });
    let started = Instant::now();
    let first = router.clone().oneshot(post("a")).await.unwrap();
    assert_eq!((first.status(), started.elapsed().as_secs()), (StatusCode::OK, 5));
    let lines = first.into_body().collect().await.unwrap().to_bytes();
    assert!(lines.starts_with(b"0\n1\n2\n") && lines.ends_with(b"28\n29\n"), "{}", lines.escape_ascii());
    assert_eq!(started.elapsed().as_secs(), 60);
    let again = send(&router, post("a")).await;
    assert_eq!((again.status, again.header("idempotent-body-omitted"), runs.count()), (200, Some("true"), 1));
}

#[tokio::test]
async fn server_sent_events_stream_to_their_client_and_do_not_run_again() {
    let runs = Runs::default();
    let counted = runs.clone();
    let (events, received) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
    let received = Arc::new(std::sync::Mutex::new(Some(received)));
    let router = router(builder().build(), move |_| {
        counted.add();
        let received = received.lock().unwrap().take().unwrap();
        let stream = futures_util::stream::unfold(received, async |mut received| {
            Some((Ok::<_, std::io::Error>(received.recv().await?), received))
        });
        let response = Response::builder().header("content-type", "Text/Event-Stream; charset=utf-8");
        let response = response.body(Body::from_stream(stream)).unwrap();
        async { response }
    });
    // The stream has not ended, and its events arrive.
    let mut first = router.clone().oneshot(post("a")).await.unwrap().into_body();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        events.send(Bytes::from(event)).unwrap();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), event);
        let again = send(&router, post("a")).await;
        assert_eq!((again.status, again.body.len(), again.header("idempotent-body-omitted")), (200, 0, Some("true")));
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn an_upgrade_is_not_replayed_as_one() {
    let router = router(builder().build(), async |_| response(StatusCode::SWITCHING_PROTOCOLS, ""));
    assert_eq!(send(&router, post("a")).await.status, 101);
    let again = send(&router, post("a")).await;
    assert_eq!((again.status, again.header("idempotent-body-omitted")), (200, Some("true")));
}

/// A body whose frames are always ready and empty.
struct EmptyFrames;

impl http_body::Body for EmptyFrames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::new()))))
    }
}

#[tokio::test]
async fn a_response_of_empty_frames_is_a_stream() {
    let router =
        router(builder().timeout(Duration::from_secs(1)).build(), async |_| Response::new(Body::new(EmptyFrames)));
    let first = timeout(Duration::from_secs(20), router.clone().oneshot(post("a"))).await;
    assert_eq!(first.unwrap().unwrap().status(), 200);
    let again = send(&router, post("a")).await;
    assert_eq!((again.status, again.header("idempotent-body-omitted")), (200, Some("true")));
}
