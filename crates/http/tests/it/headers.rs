//! Headers of a response that no retry gets.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, Response};

use crate::api::*;

/// Headers of one connection, session, response or trace.
const OF_ONE_RESPONSE: [&str; 50] = [
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "date",
    "server-timing",
    "authentication-control",
    "authentication-info",
    "authorization",
    "dpop-nonce",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "replay-nonce",
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
    "x-csrf-token",
    "apigw-requestid",
    "b3",
    "baggage",
    "cf-ray",
    "correlation-id",
    "grpc-trace-bin",
    "newrelic",
    "request-id",
    "sentry-trace",
    "trace-id",
    "traceparent",
    "traceresponse",
    "tracestate",
    "uber-trace-id",
    "x-amz-cf-id",
    "x-amz-id-2",
    "x-amz-request-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-goog-request-id",
    "x-ms-client-request-id",
    "x-ms-request-id",
    "x-ot-span-context",
    "x-request-id",
    "x-span-id",
    "x-trace-id",
    "x-b3-traceid",
    "x-datadog-trace-id",
];

/// Headers that describe the bytes of a body.
const OF_BODY: [&str; 5] = ["content-digest", "content-encoding", "content-md5", "digest", "repr-digest"];

/// The names of these headers that a retry gets, of a response of this type.
async fn replayed(names: &'static [&str], content_type: &'static str) -> Vec<HeaderName> {
    let router = router(builder().build(), move |_| {
        let response = Response::builder().header(CONTENT_TYPE, content_type).body(Body::from("paid"));
        let mut response = response.unwrap();
        response.headers_mut().extend(names.iter().map(|name| (HeaderName::from_static(name), "7".parse().unwrap())));
        async { response }
    });
    let [first, again] = [send(&router, post("a")).await, send(&router, post("a")).await];
    assert!(names.iter().all(|name| first.headers.contains_key(*name)) && again.is_replayed());
    again.headers.keys().filter(|name| names.contains(&name.as_str())).cloned().collect()
}

#[tokio::test]
async fn no_header_of_one_response_is_replayed() {
    assert!(replayed(&OF_ONE_RESPONSE, "text/plain").await.is_empty());
}

#[tokio::test]
async fn headers_that_describe_a_body_are_replayed_only_with_it() {
    assert_eq!(replayed(&OF_BODY, "text/plain").await.len(), OF_BODY.len());
    assert!(replayed(&OF_BODY, "text/event-stream").await.is_empty());
}
