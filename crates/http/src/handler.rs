//! The inner service as a work: its response is the result.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode, response};
use http_body::Body;
use http_body_util::BodyExt;
use idempotent_sqs::{Claim, Deadline, Work, WorkError};
use tokio::task::consume_budget;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use crate::answer::{Answer, Summary, reject};
use crate::body::{RequestBody, ResponseBody};
use crate::headers;
use crate::pending::PendingRequest;
use crate::problem::Problem;
use crate::report::RequestOutcome;
use crate::request::IdempotentRequest;
use crate::run::Attempt;
use crate::settings::Settings;
use crate::stored;

/// A body that has not ended after this time is a stream.
const STREAM_AFTER: Duration = Duration::from_secs(5);

/// The inner service, one request, and its answer.
pub(crate) struct Handler<Inner, B, RB, E> {
    settings: Arc<Settings>,
    client_key: String,
    request: PendingRequest<(Inner, Request<RequestBody<B>>)>,
    answer: Mutex<Option<Answer<RB, E>>>,
}

impl<Inner, B, RB, E> Handler<Inner, B, RB, E> {
    pub(crate) fn new(
        settings: Arc<Settings>,
        client_key: String,
        inner: Inner,
        request: Request<RequestBody<B>>,
    ) -> Self {
        Self { settings, client_key, request: PendingRequest::new((inner, request)), answer: Mutex::new(None) }
    }
}

impl<Inner, B, RB, E> Work<()> for Handler<Inner, B, RB, E>
where
    Inner: Service<Request<RequestBody<B>>, Response = Response<RB>, Error = E> + Send,
    Inner::Future: Send,
    B: Send,
    RB: Body<Data = Bytes> + Send,
    RB::Error: Send,
    E: Send,
{
    async fn run(&self, claim: &Claim, (): &()) -> Result<Vec<u8>, WorkError> {
        let request = self.request.start();
        let ((mut inner, mut request), _running) =
            request.ok_or_else(|| WorkError::unavailable("the request was withdrawn"))?;
        request.extensions_mut().insert(IdempotentRequest::new(claim, self.client_key.clone()));
        let (answer, result) = match inner.call(request).await {
            Ok(response) => self.classify(response, claim.ends()).await,
            // The error may contain the payload.
            Err(error) => (Some(Err(error)), Err(WorkError::uncertain("the inner service returned an error"))),
        };
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        result
    }
}

impl<Inner, B, RB, E> Attempt for Handler<Inner, B, RB, E>
where
    Inner: Service<Request<RequestBody<B>>, Response = Response<RB>, Error = E> + Send + 'static,
    Inner::Future: Send,
    B: Send + 'static,
    RB: Body<Data = Bytes> + Send + 'static,
    RB::Error: Send,
    E: Send + 'static,
{
    type Request = (Inner, Request<RequestBody<B>>);
    type Body = RB;
    type Error = E;

    fn request(&self) -> &PendingRequest<Self::Request> {
        &self.request
    }

    fn take_answer(&self) -> Option<Answer<RB, E>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn run_unprotected((mut inner, request): Self::Request, deadline: Deadline) -> (Answer<RB, E>, Summary) {
        let run = async { timeout_at(deadline.work, inner.call(request)).await };
        let answer = match AssertUnwindSafe(run).catch_unwind().await {
            Ok(Ok(answer)) => answer.map(|mut response| {
                headers::unmark(response.headers_mut());
                response.map(ResponseBody::unread)
            }),
            Ok(Err(_elapsed)) => reject(Problem::Deadline).0,
            Err(_panic) => reject(Problem::Failed).0,
        };
        (answer, RequestOutcome::Unprotected.into())
    }
}

impl<Inner, B, RB, E> Handler<Inner, B, RB, E>
where
    RB: Body<Data = Bytes>,
{
    /// The response for this client, if there is one, and the result for the record.
    async fn classify(
        &self,
        mut response: Response<RB>,
        ends: Instant,
    ) -> (Option<Answer<RB, E>>, Result<Vec<u8>, WorkError>) {
        headers::unmark(response.headers_mut());
        let unread = |response: Response<RB>| Some(Ok(response.map(ResponseBody::unread)));
        if let Err(error) = self.settings.check(response.status()) {
            return (unread(response), Err(error));
        }
        let (parts, body) = response.into_parts();
        let mut result = stored::head(parts.status, &parts.headers, &self.settings.dropped_headers);
        if is_stream(&parts) || result.len() > self.max_stored() {
            result = self.head_alone(&parts);
            return (unread(Response::from_parts(parts, body)), Ok(result));
        }
        let until = Instant::now() + STREAM_AFTER.min(ends.saturating_duration_since(Instant::now()) / 2);
        match read(body, self.max_stored() - result.len(), until).await {
            Ok(ReadBody::Whole(bytes, trailers)) => {
                result.extend_from_slice(&bytes);
                (Some(Ok(Response::from_parts(parts, ResponseBody::read(bytes, trailers)))), Ok(result))
            }
            Ok(ReadBody::Rest(body)) => {
                result = self.head_alone(&parts);
                (Some(Ok(Response::from_parts(parts, body))), Ok(result))
            }
            Err(_) => (None, Err(WorkError::uncertain("the body of the response failed"))),
        }
    }

    /// Largest result that the core keeps.
    fn max_stored(&self) -> usize {
        self.settings.policy.max_kept_result()
    }

    /// The result without a body. The request is completed in any case, so that it does not run again.
    fn head_alone(&self, parts: &response::Parts) -> Vec<u8> {
        stored::head_without_body(parts.status, &parts.headers, &self.settings.dropped_headers, self.max_stored())
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
    /// What was read, in front of the rest of a body that is too large or a stream.
    Rest(ResponseBody<RB>),
}

/// Reads a body of at most `max_bytes`, up to this time.
async fn read<RB: Body<Data = Bytes>>(body: RB, max_bytes: usize, until: Instant) -> Result<ReadBody<RB>, RB::Error> {
    let (mut body, mut bytes) = (Box::pin(body), BytesMut::new());
    while body.size_hint().lower() <= (max_bytes - bytes.len()) as u64 {
        // A frame that is not ready yet is not lost.
        let Ok(frame) = timeout_at(until, body.frame()).await else { break };
        let Some(frame) = frame else { return Ok(ReadBody::Whole(bytes.freeze(), None)) };
        match frame?.into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            // They are the end of the body.
            Err(frame) => return Ok(ReadBody::Whole(bytes.freeze(), frame.into_trailers().ok())),
        }
        // A body whose frames are always ready would not let the timer and other tasks run.
        consume_budget().await;
        if bytes.len() > max_bytes || Instant::now() >= until {
            break;
        }
    }
    Ok(ReadBody::Rest(ResponseBody::partly_read(bytes.freeze(), body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_a_stream_whatever_the_case_and_the_parameters_of_their_type() {
        let types = ["text/event-stream", "Text/Event-Stream", "text/event-stream; charset=utf-8", "text/plain"];
        let is_stream = types.map(|content_type| {
            let response = Response::builder().header(CONTENT_TYPE, content_type).body(()).unwrap();
            is_stream(&response.into_parts().0)
        });
        assert_eq!(is_stream, [true, true, true, false]);
    }
}
