//! The handler of all services, which follows the plan of its request and counts its effects.

use std::mem;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use harness::torture::tally::lock;
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use idempotent_sqs::{Claim, Work, WorkError};
use idempotent_sqs_http::{IdempotentRequest, encode_response};
use tokio::time::{Instant, sleep};
use tower::Service;

use crate::body::Body;
use crate::kind::Kind;
use crate::request::IDEMPOTENCY_KEY;
use crate::response::{Form, response, streamed, unprotected};
use crate::runs::{Attempt, Running, UnprotectedRun};
use crate::tally::Tally;

/// The error of a run whose plan is to fail.
pub(crate) const PLANNED: &str = "planned";

/// What a handler does for a request, an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of the request.
    pub(crate) request: usize,
    pub(crate) before: Duration,
    pub(crate) has_effect: bool,
    pub(crate) after: Duration,
    pub(crate) ending: Ending,
    pub(crate) form: Form,
}

impl Plan {
    /// How long a work that may be tried again is unavailable, if it says so.
    pub(crate) fn unavailable_for(&self) -> Option<Duration> {
        self.request.is_multiple_of(2).then_some(Duration::from_millis(1500))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Answer(u16),
    /// The body of the response fails.
    BreakOff,
    /// The service returns an error.
    Error,
    Panic,
    /// A work cannot be done now. A handler answers with 503.
    Unavailable,
    /// The same, because something that it needs is in use.
    Busy,
    /// A work fails without an effect. A handler answers with 503.
    Retryable,
    /// A work fails permanently. A handler answers with 402.
    Permanent,
    /// A work returns no response. A handler answers with 402.
    Garbage,
}

impl Ending {
    /// Whether a work says that it had no effect, and may be tried again.
    pub(crate) fn has_no_effect(self) -> bool {
        matches!(self, Self::Unavailable | Self::Busy | Self::Retryable)
    }
}

/// A request as its client sent it, an extension of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Original {
    pub(crate) key: String,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// Follows the plan of each request. As a service, it must be ready when it is called.
pub(crate) struct Runner {
    pub(crate) tally: Arc<Tally>,
    pub(crate) kind: Kind,
    pub(crate) is_ready: bool,
}

/// A clone is not ready.
impl Clone for Runner {
    fn clone(&self) -> Self {
        Self { tally: Arc::clone(&self.tally), kind: self.kind, is_ready: false }
    }
}

impl<B> Service<Request<B>> for Runner
where
    B: http_body::Body<Data = Bytes, Error = &'static str> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, &'static str>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let was_ready = mem::take(&mut self.is_ready);
        let runner = self.clone();
        Box::pin(async move { if was_ready { runner.handle(request).await } else { Err("it was not ready") } })
    }
}

impl Runner {
    /// Waits and takes effect by the plan. Returns it and how it ends.
    async fn follow(&self, extensions: &Extensions, attempt: Attempt, is_original: bool) -> (Plan, Ending) {
        let plan: Plan = *extensions.get().unwrap();
        let running = Running::begin(self, plan, &attempt, extensions.get().copied(), is_original);
        sleep(plan.before).await;
        if plan.has_effect {
            running.take_effect();
        }
        sleep(plan.after).await;
        let ending = match plan.ending {
            ending if ending.has_no_effect() && !self.kind.is_endpoint() => Ending::Answer(503),
            Ending::Permanent | Ending::Garbage if !self.kind.is_endpoint() => Ending::Answer(402),
            ending => ending,
        };
        running.end(ending);
        (plan, ending)
    }

    async fn handle<B>(self, request: Request<B>) -> Result<Response<Body>, &'static str>
    where
        B: http_body::Body<Data = Bytes, Error = &'static str>,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?;
        let Some(attempt) = parts.extensions.get::<IdempotentRequest>().cloned() else {
            return self.run_unprotected(&parts).await;
        };
        let trailers = body.trailers().cloned().unwrap_or_default();
        let received = Original { key: attempt.client_key, body: body.to_bytes(), trailers };
        let is_original = parts.extensions.get() == Some(&received);
        let IdempotentRequest { key, fence, attempt: number, is_recovery, ends, .. } = attempt;
        let attempt = Attempt { key, fence, number, is_recovery, ends };
        match self.follow(&parts.extensions, attempt, is_original).await {
            (_, Ending::Error) => Err(PLANNED),
            (_, Ending::Panic) => resume_unwind(Box::new(PLANNED)),
            (plan, ending) => {
                let (kind, tally) = (self.kind, self.tally);
                let response = streamed(&plan, kind, ending);
                Ok(response.map(|body| body.on_read(move || tally.read(&plan, kind, ending))))
            }
        }
    }

    /// Takes no effect: it may be repeated.
    async fn run_unprotected(&self, parts: &Parts) -> Result<Response<Body>, &'static str> {
        let plan: Plan = *parts.extensions.get().unwrap();
        let (request, from) = (plan.request, Instant::now());
        let at = {
            let mut runs = lock(&self.tally.unprotected);
            runs.push(UnprotectedRun { request, from, ended: None });
            runs.len() - 1
        };
        sleep(plan.before + plan.after).await;
        // Without a key, no layer catches a panic.
        let ending = match plan.ending {
            Ending::Panic if !parts.headers.contains_key(IDEMPOTENCY_KEY) || parts.method == Method::GET => {
                Ending::Error
            }
            ending => ending,
        };
        lock(&self.tally.unprotected)[at].ended = Some(ending);
        match ending {
            Ending::Error => Err(PLANNED),
            Ending::Panic => resume_unwind(Box::new(PLANNED)),
            _ => Ok(unprotected()),
        }
    }

    async fn work(&self, attempt: Attempt, request: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        let original: &Original = request.extensions().get().unwrap();
        match self.follow(request.extensions(), attempt, original.body == request.body()).await {
            (plan, Ending::Answer(status)) => Ok(encode_response(&response(&plan, self.kind, status))),
            (_, Ending::BreakOff | Ending::Error) => Err(WorkError::uncertain(PLANNED)),
            (plan, ending @ (Ending::Unavailable | Ending::Busy | Ending::Retryable)) => {
                Err(match (ending, plan.unavailable_for()) {
                    (Ending::Busy, Some(after)) => WorkError::busy_after(PLANNED, after),
                    (Ending::Busy, None) => WorkError::busy(PLANNED),
                    (Ending::Retryable, Some(after)) => WorkError::retryable_after(PLANNED, after),
                    (Ending::Retryable, None) => WorkError::retryable(PLANNED),
                    (_, Some(after)) => WorkError::unavailable_after(PLANNED, after),
                    (_, None) => WorkError::unavailable(PLANNED),
                })
            }
            (_, Ending::Garbage) => Ok(PLANNED.as_bytes().to_vec()),
            (_, Ending::Permanent) => Err(WorkError::permanent(PLANNED)),
            (_, Ending::Panic) => resume_unwind(Box::new(PLANNED)),
        }
    }
}

impl Work<Request<Bytes>> for Runner {
    async fn run(&self, claim: &Claim, request: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        self.work(Attempt::of(claim, false), request).await
    }

    async fn recover(&self, claim: &Claim, request: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        self.work(Attempt::of(claim, true), request).await
    }
}
