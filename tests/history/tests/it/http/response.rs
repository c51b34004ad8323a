//! The responses of handlers and works, and what a retry gets of them.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LINK};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::body::{Body, Step};
use super::handler::{Ending, Plan, Run};
use super::kind::Kind;
use super::service::KEPT_BYTES;

/// The number of the request whose run made a response.
pub(crate) const RECEIPT: HeaderName = HeaderName::from_static("receipt");

/// In responses of handlers that ran without the layer.
pub(crate) const UNPROTECTED: HeaderName = HeaderName::from_static("unprotected");

/// Dropped by some services.
pub(crate) const NODE: HeaderName = HeaderName::from_static("x-node");

const LARGE: HeaderName = HeaderName::from_static("x-large");

/// Headers of one connection, session, response or trace, which no retry gets.
const OF_ONE_RESPONSE: [(&str, &str); 10] = [
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
];

/// Marks of another service's replay, which a handler passes on.
const MARKS: [(&str, &str); 2] = [("idempotent-replayed", "true"), ("idempotent-body-omitted", "true")];

/// Headers that describe the bytes of a body.
const OF_BODY: [(&str, &str); 2] = [("content-encoding", "identity"), ("content-digest", "sha-256=:AAAA:")];

/// Longer than half of the time of a run, after which a body is a stream, and shorter than the whole.
const PAUSE: Duration = Duration::from_millis(200);

/// What a response is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Small,
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
fn body(plan: &Plan) -> Bytes {
    let length = if plan.form == Form::LargeBody { 2 * KEPT_BYTES } else { 20 };
    format!("{:<length$}", plan.request).into()
}

/// The response of a work.
pub(crate) fn response(plan: &Plan, status: u16) -> Response<Bytes> {
    let mut response = Response::builder().status(status).body(body(plan)).unwrap();
    *response.headers_mut() = first_headers(plan);
    response.headers_mut().extend(headers(&MARKS));
    response
}

/// The response of a handler, with the body and trailers that `ending` says.
pub(crate) fn streamed(plan: &Plan, ending: Ending) -> Response<Body> {
    let Ending::Answer(status) = ending else {
        let steps = [Step::Data(body(plan)), Step::Fail];
        return response(plan, 201).map(|_| Body::of(steps));
    };
    let pause = (plan.form == Form::Slow).then_some(Step::Pause(PAUSE));
    response(plan, status).map(|body| {
        let first = body.slice(..body.len() / 2);
        let rest = body.slice(first.len()..);
        Body::of([Step::Data(first)].into_iter().chain(pause).chain([Step::Data(rest), Step::Trailers(trailers())]))
    })
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("checksum"), HeaderValue::from_static("7"))])
}

/// The headers of the first response.
fn first_headers(plan: &Plan) -> HeaderMap {
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
        (CONTENT_LENGTH, body(plan).len().into()),
        (NODE, HeaderValue::from_static("7")),
    ]);
    if plan.form == Form::LargeHead {
        first.insert(LARGE, "x".repeat(2 * KEPT_BYTES).parse().unwrap());
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

impl Run {
    /// Whether its response is kept without the body.
    fn is_body_omitted(&self) -> bool {
        !self.kind.is_endpoint() && (self.plan.form != Form::Small || self.ended == Some(Ending::Answer(101)))
    }

    /// Whether the service, `reader`, does not have its response, only that there was one.
    pub(crate) fn is_response_lost(&self, reader: Kind) -> bool {
        let is_too_large = matches!(self.plan.form, Form::LargeBody | Form::LargeHead);
        self.kind.is_endpoint() && is_too_large || self.kind.is_next_release && !reader.is_next_release
    }

    /// What the client of its request gets. An endpoint answers as it answers a retry.
    pub(crate) fn first_response(&self, status: u16) -> Expected {
        let (headers, body, trailers) = (first_headers(&self.plan), body(&self.plan), Some(trailers()));
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
            for name in OF_BODY.map(|(name, _)| name).into_iter().chain([LARGE.as_str()]) {
                replay.headers.remove(name);
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
