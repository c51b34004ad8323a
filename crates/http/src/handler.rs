//! The inner service as a work: its response is the result.

use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode, response};
use http_body::Body;
use http_body_util::BodyExt;
use idempotent_sqs::idempotency::MAX_RESULT_BYTES;
use idempotent_sqs::{Claim, Work, WorkError};
use tower_service::Service;

use crate::answer::Answer;
use crate::body::{RequestBody, ResponseBody};
use crate::request::IdempotentRequest;
use crate::settings::{ServerErrors, Settings};
use crate::stored;

/// The inner service and one request, until the handler starts or the request is withdrawn.
#[derive(Debug)]
pub(crate) struct Pending<Inner, B>(Mutex<Option<(Inner, Request<RequestBody<B>>)>>);

impl<Inner, B> Pending<Inner, B> {
    pub(crate) fn new(inner: Inner, request: Request<RequestBody<B>>) -> Self {
        Self(Mutex::new(Some((inner, request))))
    }

    /// Only the first caller gets the request.
    pub(crate) fn take(&self) -> Option<(Inner, Request<RequestBody<B>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The inner service, one request, and its answer.
pub(crate) struct Handler<'a, Inner, B, RB, E> {
    pub(crate) settings: &'a Settings,
    pub(crate) client_key: &'a str,
    pub(crate) pending: &'a Pending<Inner, B>,
    pub(crate) answer: Mutex<Option<Answer<RB, E>>>,
}

impl<Inner, B, RB, E> Work<()> for Handler<'_, Inner, B, RB, E>
where
    Inner: Service<Request<RequestBody<B>>, Response = Response<RB>, Error = E> + Send,
    Inner::Future: Send,
    B: Send,
    RB: Body<Data = Bytes> + Send,
    RB::Error: Send,
    E: Send,
{
    async fn run(&self, claim: &Claim, (): &()) -> Result<Vec<u8>, WorkError> {
        let request = self.pending.take();
        let (mut inner, mut request) = request.ok_or_else(|| WorkError::unavailable("the request was withdrawn"))?;
        request.extensions_mut().insert(IdempotentRequest::new(claim, self.client_key.to_owned()));
        let (answer, result) = match inner.call(request).await {
            Ok(response) => self.classify(response).await,
            // The error may contain the payload.
            Err(error) => (Some(Err(error)), Err(WorkError::uncertain("the inner service returned an error"))),
        };
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        result
    }
}

impl<Inner, B, RB, E> Handler<'_, Inner, B, RB, E>
where
    RB: Body<Data = Bytes>,
{
    /// The response for this client, if there is one, and the result for the record.
    async fn classify(&self, response: Response<RB>) -> (Option<Answer<RB, E>>, Result<Vec<u8>, WorkError>) {
        let status = response.status();
        let unread = |response: Response<RB>| Some(Ok(response.map(ResponseBody::unread)));
        if [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status) {
            return (unread(response), Err(WorkError::unavailable(format!("the handler answered {status}"))));
        }
        if status.is_server_error() && self.settings.server_errors == ServerErrors::Uncertain {
            return (unread(response), Err(WorkError::uncertain(format!("the handler answered {status}"))));
        }
        let (parts, body) = response.into_parts();
        let mut result = self.head(&parts, true);
        if is_stream(&parts) || result.len() > self.max_stored() {
            result = self.head_alone(&parts);
            return (unread(Response::from_parts(parts, body)), Ok(result));
        }
        match read(body, self.max_stored() - result.len()).await {
            Ok(ReadBody::Whole(bytes, trailers)) => {
                result.extend_from_slice(&bytes);
                (Some(Ok(Response::from_parts(parts, ResponseBody::read(bytes, trailers)))), Ok(result))
            }
            Ok(ReadBody::TooLarge(body)) => {
                result = self.head_alone(&parts);
                (Some(Ok(Response::from_parts(parts, body))), Ok(result))
            }
            Err(_) => (None, Err(WorkError::uncertain("the body of the response failed"))),
        }
    }

    /// Largest result that the core keeps.
    fn max_stored(&self) -> usize {
        let policy = &self.settings.policy;
        if policy.results.is_some() { MAX_RESULT_BYTES.max(policy.result_max_bytes) } else { policy.result_max_bytes }
    }

    fn head(&self, parts: &response::Parts, with_body: bool) -> Vec<u8> {
        stored::head(parts.status, &parts.headers, &self.settings.dropped_headers, with_body)
    }

    /// The result without a body, and without headers if these are too large. The request is completed in any case, so
    /// that it does not run again.
    fn head_alone(&self, parts: &response::Parts) -> Vec<u8> {
        let head = self.head(parts, false);
        if head.len() <= self.max_stored() { head } else { stored::head(parts.status, &HeaderMap::new(), &[], false) }
    }
}

/// Whether the body may never end: an upgraded connection, or server-sent events.
fn is_stream(parts: &response::Parts) -> bool {
    let content_type = parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    let is_events = content_type.is_some_and(|value| value.starts_with(b"text/event-stream"));
    is_events || parts.status == StatusCode::SWITCHING_PROTOCOLS
}

enum ReadBody<RB> {
    Whole(Bytes, Option<HeaderMap>),
    TooLarge(ResponseBody<RB>),
}

/// Reads a body of at most `max_bytes`. A larger one is returned with what was read of it.
async fn read<RB: Body<Data = Bytes>>(body: RB, max_bytes: usize) -> Result<ReadBody<RB>, RB::Error> {
    let (mut body, mut bytes) = (Box::pin(body), BytesMut::new());
    if body.size_hint().lower() > max_bytes as u64 {
        return Ok(ReadBody::TooLarge(ResponseBody::partly_read(Bytes::new(), body)));
    }
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
        if bytes.len() > max_bytes {
            return Ok(ReadBody::TooLarge(ResponseBody::partly_read(bytes.freeze(), body)));
        }
    }
    Ok(ReadBody::Whole(bytes.freeze(), trailers))
}
