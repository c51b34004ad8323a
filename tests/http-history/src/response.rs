//! The responses of handlers and works, and what a retry gets of them.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LINK};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use crate::body::{Body, Step};
use crate::handler::{Ending, Plan};
use crate::kind::Kind;
use crate::runs::Run;

/// The number of the request whose run made a response.
pub(crate) const RECEIPT: HeaderName = HeaderName::from_static("receipt");

/// In responses of handlers that ran without the layer.
pub(crate) const UNPROTECTED: HeaderName = HeaderName::from_static("unprotected");

/// Dropped by some services.
pub(crate) const NODE: HeaderName = HeaderName::from_static("x-node");

const LARGE: HeaderName = HeaderName::from_static("x-large");

/// Headers of one connection, session, response or trace, which no retry gets.
const OF_ONE_RESPONSE: [(&str, &str); 52] = [
    ("connection", "close, X-Hop"),
    ("x-hop", "1"),
    ("keep-alive", "timeout=5"),
    ("date", "Tue, 15 Nov 1994 08:12:31 GMT"),
    ("set-cookie", "session"),
    ("www-authenticate", "Basic"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("x-request-id", "7"),
    ("x-b3-traceid", "463ac35c9f6413ad"),
    ("x-datadog-trace-id", "7"),
    ("proxy-connection", "7"),
    ("te", "7"),
    ("trailer", "7"),
    ("transfer-encoding", "7"),
    ("upgrade", "7"),
    ("server-timing", "7"),
    ("authentication-control", "7"),
    ("authentication-info", "7"),
    ("authorization", "7"),
    ("dpop-nonce", "7"),
    ("proxy-authenticate", "7"),
    ("proxy-authentication-info", "7"),
    ("proxy-authorization", "7"),
    ("replay-nonce", "7"),
    ("set-cookie2", "7"),
    ("x-csrf-token", "7"),
    ("apigw-requestid", "7"),
    ("b3", "7"),
    ("baggage", "7"),
    ("cf-ray", "7"),
    ("correlation-id", "7"),
    ("grpc-trace-bin", "7"),
    ("newrelic", "7"),
    ("request-id", "7"),
    ("sentry-trace", "7"),
    ("trace-id", "7"),
    ("traceresponse", "7"),
    ("tracestate", "7"),
    ("uber-trace-id", "7"),
    ("x-amz-cf-id", "7"),
    ("x-amz-id-2", "7"),
    ("x-amz-request-id", "7"),
    ("x-amzn-requestid", "7"),
    ("x-amzn-trace-id", "7"),
    ("x-cloud-trace-context", "7"),
    ("x-correlation-id", "7"),
    ("x-goog-request-id", "7"),
    ("x-ms-client-request-id", "7"),
    ("x-ms-request-id", "7"),
    ("x-ot-span-context", "7"),
    ("x-span-id", "7"),
    ("x-trace-id", "7"),
];

/// Marks of another service's replay, which a handler passes on.
const MARKS: [(&str, &str); 2] = [("idempotent-replayed", "true"), ("idempotent-body-omitted", "true")];

/// Headers that describe the bytes of a body.
const OF_BODY: [(&str, &str); 5] = [
    ("content-encoding", "identity"),
    ("content-digest", "sha-256=:AAAA:"),
    ("content-md5", "AAAA"),
    ("digest", "sha-256=AAAA"),
    ("repr-digest", "sha-256=:AAAA:"),
];

/// Longer than half of the time of a run, after which a body is a stream, and shorter than the whole.
const PAUSE: Duration = Duration::from_millis(200);

/// What a response is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Small,
    /// Its body fits into the limit with its head.
    Fitting,
    LargeBody,
    LargeHead,
    Events,
    /// Its body ends late.
    Slow,
}

/// Names and values as headers.
fn headers(pairs: &[(&'static str, &'static str)]) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
}

/// The body of the response to a request.
fn body(plan: &Plan, kind: Kind) -> Bytes {
    let length = match plan.form {
        // Larger than the limit, or only with its head.
        Form::LargeBody if plan.request.is_multiple_of(3) => kind.kept_bytes() - 10,
        Form::LargeBody => 2 * kind.kept_bytes(),
        Form::Fitting => kind.kept_bytes() * 6 / 10,
        Form::Small | Form::LargeHead | Form::Events | Form::Slow => 20,
    };
    let mut body = plan.request.to_string().into_bytes();
    body.resize(length, b' ');
    body.into()
}

/// The response of a handler that ran without the layer.
pub(crate) fn unprotected() -> Response<Body> {
    let mut response = Response::builder().header(UNPROTECTED, "true").body(Body::default()).unwrap();
    response.headers_mut().extend(headers(&MARKS));
    response
}

/// Whether these headers mark a replay.
pub(crate) fn are_marked(of_response: &HeaderMap) -> bool {
    MARKS.iter().any(|(name, _)| of_response.contains_key(*name))
}

/// The response of a work.
pub(crate) fn response(plan: &Plan, kind: Kind, status: u16) -> Response<Bytes> {
    let mut response = Response::builder().status(status).body(body(plan, kind)).unwrap();
    *response.headers_mut() = first_headers(plan, kind);
    response.headers_mut().extend(headers(&MARKS));
    response
}

/// The response of a handler, with the body and trailers that `ending` says.
pub(crate) fn streamed(plan: &Plan, kind: Kind, ending: Ending) -> Response<Body> {
    let Ending::Answer(status) = ending else {
        let steps = [Step::Data(body(plan, kind)), Step::Fail];
        return response(plan, kind, 201).map(|_| Body::of(steps));
    };
    let pause = match plan.form {
        Form::Slow => Some(Step::Pause(PAUSE)),
        _ => plan.is_chunked().then_some(Step::Pause(Duration::ZERO)),
    };
    response(plan, kind, status).map(|body| {
        let first = body.slice(..body.len() / 2);
        let rest = body.slice(first.len()..);
        Body::of([Step::Data(first)].into_iter().chain(pause).chain([Step::Data(rest), Step::Trailers(trailers())]))
    })
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("checksum"), HeaderValue::from_static("7"))])
}

/// The headers of the first response.
fn first_headers(plan: &Plan, kind: Kind) -> HeaderMap {
    let link = |relation| format!("</{}>; rel={relation}", plan.request).parse().unwrap();
    let content_type = match plan.form {
        Form::Events => "Text/Event-Stream; charset=utf-8",
        _ => "text/plain",
    };
    // The map appends the second link.
    let mut first = HeaderMap::from_iter([
        (RECEIPT, plan.request.into()),
        (LINK, link("next")),
        (LINK, link("self")),
        (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (CONTENT_LENGTH, body(plan, kind).len().into()),
        (NODE, HeaderValue::from_static("7")),
    ]);
    if plan.form == Form::LargeHead {
        first.insert(LARGE, "x".repeat(2 * kind.kept_bytes()).parse().unwrap());
    }
    first.extend(headers(&OF_ONE_RESPONSE).chain(headers(&OF_BODY)));
    first
}

/// What a client gets of the response of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) is_omitted: bool,
}

impl Plan {
    /// Whether a handler does not know the length of the body in advance.
    pub(crate) fn is_chunked(&self) -> bool {
        self.form == Form::Slow || self.form == Form::LargeBody && self.request.is_multiple_of(2)
    }

    /// Whether a response with this status is kept without the body.
    pub(crate) fn is_body_omitted(&self, kind: Kind, status: u16) -> bool {
        let is_kept = match self.form {
            Form::Small | Form::Fitting => true,
            Form::LargeBody | Form::LargeHead => kind.has_objects,
            Form::Events | Form::Slow => false,
        };
        !kind.is_endpoint() && (!is_kept || status == 101)
    }
}

impl Run {
    /// Whether its response is kept without the body.
    fn is_body_omitted(&self) -> bool {
        matches!(self.ended, Some(Ending::Answer(status)) if self.plan.is_body_omitted(self.kind, status))
    }

    /// Whether its response is kept as an object.
    pub(crate) fn is_object(&self) -> bool {
        let is_large = match self.plan.form {
            Form::LargeBody => !self.is_body_omitted(),
            Form::LargeHead => true,
            Form::Small | Form::Fitting | Form::Events | Form::Slow => false,
        };
        self.kind.has_objects && is_large
    }

    /// Whether the service, `reader`, does not have its response, only that there was one.
    pub(crate) fn is_response_lost(&self, reader: Kind) -> bool {
        let is_too_large = matches!(self.plan.form, Form::LargeBody | Form::LargeHead);
        self.ended == Some(Ending::Garbage)
            || self.kind.is_endpoint() && is_too_large
            || self.is_object()
            || self.kind.is_next_release && !reader.is_next_release
    }

    /// What the client of its request gets. An endpoint answers as it answers a retry.
    pub(crate) fn first_response(&self, status: u16) -> Expected {
        let (headers, body, trailers) =
            (first_headers(&self.plan, self.kind), body(&self.plan, self.kind), Some(trailers()));
        let first = Expected { status, headers, body, trailers, is_omitted: false };
        if self.kind.is_endpoint() { first.kept() } else { first }
    }

    /// What a retry gets from the service `reader`.
    pub(crate) fn replay(&self, status: u16, reader: Kind) -> Expected {
        let mut replay = self.first_response(status).kept();
        if self.kind.drops_node || reader.drops_node {
            replay.headers.remove(NODE);
        }
        if self.is_body_omitted() {
            (replay.body, replay.is_omitted) = (Bytes::new(), true);
            for (name, _) in OF_BODY {
                replay.headers.remove(name);
            }
            if !self.kind.has_objects {
                replay.headers.remove(LARGE);
            }
        }
        replay
    }
}

impl Expected {
    fn kept(mut self) -> Self {
        for name in OF_ONE_RESPONSE.map(|(name, _)| name).into_iter().chain([CONTENT_LENGTH.as_str()]) {
            self.headers.remove(name);
        }
        // A replay does not switch protocols.
        Self { status: if self.status == 101 { 200 } else { self.status }, trailers: None, ..self }
    }
}
