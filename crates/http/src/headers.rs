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
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
    "authentication-info",
    "authorization",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    // Ids of one trace.
    "b3",
    "correlation-id",
    "request-id",
    "traceparent",
    "traceresponse",
    "tracestate",
    "uber-trace-id",
    "x-amz-cf-id",
    "x-amz-request-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-request-id",
    "x-trace-id",
    // Set by this layer.
    "idempotency-key",
    "idempotent-body-omitted",
    "idempotent-replayed",
];

/// Headers that describe the bytes of a body.
const OF_BODY: &[&str] = &["content-digest", "content-encoding", "content-range"];

/// The headers that are kept for retries. Without the body, also without those that describe its bytes.
pub(crate) fn kept<'a>(
    headers: &'a HeaderMap,
    dropped: &'a [HeaderName],
    with_body: bool,
) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
    // `Connection` names further headers of the connection.
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<_> = connection.flat_map(|names| names.split(',')).map(|name| name.trim().to_owned()).collect();
    headers.iter().filter(move |(name, _)| {
        !DROPPED.contains(&name.as_str())
            && !name.as_str().starts_with("x-b3-")
            && !dropped.contains(name)
            && (with_body || !OF_BODY.contains(&name.as_str()))
            && !named.iter().any(|named| named.eq_ignore_ascii_case(name.as_str()))
    })
}
