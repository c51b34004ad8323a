//! Requests that are rejected before anything runs.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use http_body_util::{Limited, StreamBody};
use proptest::prelude::*;

use crate::api::*;

fn post_body(body: Body) -> Request<Body> {
    Request::post("/").header("idempotency-key", "pay_1").body(body).unwrap()
}

/// A body without a known length.
fn chunks(chunks: impl Iterator<Item = Result<&'static [u8], std::io::Error>> + Send + 'static) -> Body {
    Body::from_stream(futures_util::stream::iter(chunks.map(|chunk| chunk.map(Bytes::from_static))))
}

#[tokio::test]
async fn a_malformed_key_is_rejected() {
    let (router, runs) = counting(builder().build());
    for key in ["", "\"", "a b", "a,b", "\"a\" \"b\"", "\"a\";x=1", &"x".repeat(256)] {
        let answer = send(&router, post(key)).await;
        assert_eq!((answer.status, &*answer.problem()), (400, "key-malformed"), "{key}");
        assert_eq!(answer.header("idempotency-key"), None);
    }
    let mut two = post("a");
    two.headers_mut().append("idempotency-key", "b".parse().unwrap());
    assert_eq!(send(&router, two).await.problem(), "key-malformed");
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_body_above_the_limit_is_rejected_and_one_at_the_limit_runs() {
    let (router, runs) = counting(builder().max_body_bytes(8).build());
    let too_large =
        [post_body(Body::from("123456789")), post_body(chunks([b"12345".as_slice(), b"6789"].into_iter().map(Ok)))];
    for request in too_large {
        let answer = send(&router, request).await;
        assert_eq!((answer.status, &*answer.problem(), runs.count()), (413, "body-too-large", 0));
    }
    assert_eq!(send(&router, post_body(Body::from("12345678"))).await.status, 201);
    // A length that is known to be too large is rejected before the body arrives.
    assert_eq!(harness::soon(send(&router, post_body(Body::new(Large)))).await.problem(), "body-too-large");
}

/// As by the `RequestBodyLimitLayer` of tower-http.
#[tokio::test]
async fn a_body_above_a_limit_outside_of_the_layer_is_too_large() {
    let (router, runs) = counting(builder().build());
    let body = chunks([b"12345".as_slice(), b"6789"].into_iter().map(Ok));
    let answer = send(&router, post_body(Body::new(Limited::new(body, 8)))).await;
    assert_eq!((answer.status, &*answer.problem(), runs.count()), (413, "body-too-large", 0));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_rejected() {
    let (router, runs) = counting(builder().build());
    let broken = [Ok(b"12".as_slice()), Err(std::io::Error::other("reset"))];
    let answer = send(&router, post_body(chunks(broken.into_iter()))).await;
    assert_eq!((answer.status, &*answer.problem(), runs.count()), (400, "body-unreadable", 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_rejected_and_holds_no_lease() {
    let (router, runs) = counting(builder().timeout(Duration::from_secs(5)).build());
    let pending = futures_util::stream::pending::<Result<Bytes, Infallible>>();
    let started = tokio::time::Instant::now();
    let waiting = tokio::spawn({
        let router = router.clone();
        async move { send(&router, post_body(Body::from_stream(pending))).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(send(&router, post_body(Body::empty())).await.status, 201);
    let answer = waiting.await.unwrap();
    assert_eq!((answer.status, &*answer.problem(), runs.count()), (408, "body-timeout", 1));
    assert_eq!(started.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn the_handler_gets_every_byte_of_the_body() {
    let router = router(builder().build(), async |seen: Seen| response(axum::http::StatusCode::OK, seen.body));
    let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(send(&router, post_body(Body::from(body.clone()))).await.body.len(), body.len());
    let trailers =
        StreamBody::new(futures_util::stream::iter([Ok::<_, Infallible>(http_body::Frame::data(Bytes::from("x")))]));
    let request = Request::post("/").header("idempotency-key", "2").body(Body::new(trailers)).unwrap();
    assert_eq!(&*send(&router, request).await.body, b"x");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the key and the body, a retry runs nothing and gets the same bytes.
    #[test]
    fn any_key_and_body_take_effect_at_most_once(
        key in prop::collection::vec(0x20..=0xff_u8, 0..270),
        body in prop::collection::vec(any::<u8>(), 0..200),
        json in any::<bool>(),
    ) {
        let Ok(key) = axum::http::HeaderValue::from_bytes(&key) else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (router, runs) = counting(builder().build());
            let content_type = if json { "application/json" } else { "application/octet-stream" };
            let request = || Request::post("/").header("idempotency-key", &key).header("content-type", content_type)
                .body(Body::from(body.clone())).unwrap();
            let [first, again] = [send(&router, request()).await, send(&router, request()).await];
            assert_eq!((first.status, &first.body), (again.status, &again.body));
            match first.status {
                201 => assert!(runs.count() == 1 && again.is_replayed()),
                status => assert_eq!((status, runs.count()), (400, 0)),
            }
        });
    }
}
