//! Headers of a response that a retry must not get.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The header that marks a replayed response.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The header of a replayed response whose body was not kept.
pub(crate) const BODY_OMITTED: HeaderName = HeaderName::from_static("idempotent-body-omitted");

/// Dropped in any case.
const DROPPED: &[&str] = &[
    // Of one connection: RFC 9110, section 7.6.1.
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    // Of one response. The length is that of the replayed body.
    "content-length",
    "date",
    "server-timing",
    // Of one client session, and of authentication.
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
    // Ids of one request or trace.
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
    // Set by this layer.
    "idempotency-key",
    "idempotent-body-omitted",
    "idempotent-replayed",
];

/// Trace ids of B3 and Datadog.
const DROPPED_PREFIXES: &[&str] = &["x-b3-", "x-datadog-"];

/// Headers that describe the bytes of a body.
const OF_BODY: &[&str] = &["content-digest", "content-encoding", "content-md5", "digest", "repr-digest"];

/// Whether a response without its body must not have this header.
pub(crate) fn describes_body(name: &HeaderName) -> bool {
    OF_BODY.contains(&name.as_str())
}

/// Removes the marks of a replay. A handler may pass on those of another service.
pub(crate) fn unmark(headers: &mut HeaderMap) {
    headers.remove(REPLAYED);
    headers.remove(BODY_OMITTED);
}

/// The headers that are kept for retries.
pub(crate) fn kept<'a>(
    headers: &'a HeaderMap,
    dropped: &'a [HeaderName],
) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
    // `Connection` names further headers of the connection.
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<_> = connection.flat_map(|names| names.split(',')).map(|name| name.trim().to_owned()).collect();
    headers.iter().filter(move |(name, _)| {
        !DROPPED.contains(&name.as_str())
            && !DROPPED_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
            && !dropped.contains(name)
            && !named.iter().any(|named| named.eq_ignore_ascii_case(name.as_str()))
    })
}
