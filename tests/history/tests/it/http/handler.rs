//! The handler of all services, which follows the plan of its request and counts its effects.

use std::mem;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use harness::torture::tally::lock;
use history::{Effect, monotonic_us};
use http::{Extensions, HeaderMap, Request, Response};
use http_body_util::BodyExt;
use idempotent_sqs::idempotency::Fence;
use idempotent_sqs::{Claim, Deadline, Key, Work, WorkError};
use idempotent_sqs_http::{IdempotentRequest, encode_response};
use tokio::time::{Instant, sleep};
use tower::Service;

use super::body::Body;
use super::kind::Kind;
use super::response::{Form, UNPROTECTED, response, streamed};
use super::service::{GRACE, TIMEOUT};
use super::tally::Tally;

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
    /// How long an unavailable work is, if it says so.
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
    /// A work fails permanently. A handler answers with 402.
    Permanent,
    /// A work returns no response. A handler answers with 402.
    Garbage,
}

/// A request as its client sent it, an extension of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Original {
    pub(crate) key: String,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// One run of the handler.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// The service that ran it.
    pub(crate) kind: Kind,
    /// Stored form of the key of the record.
    pub(crate) key: String,
    pub(crate) fence: u64,
    /// Number of the attempt.
    pub(crate) attempt: u8,
    pub(crate) is_recovery: bool,
    /// How it ended. `None` if it was cancelled.
    pub(crate) ended: Option<Ending>,
    /// Whether its deadline was near when it ended.
    pub(crate) is_late: bool,
    pub(crate) is_over: bool,
    /// What was wrong with its request and its times.
    pub(crate) faults: Vec<&'static str>,
}

impl Run {
    /// Whether it may have been cancelled at its deadline. With little time left, half of it passes unnoticed before the
    /// whole has passed, after which a slow body is no stream.
    pub(crate) fn may_be_cut(&self) -> bool {
        match self.ended {
            None => true,
            Some(Ending::Answer(_)) => self.plan.form == Form::Slow && self.is_late,
            Some(_) => false,
        }
    }
}

/// What the layer tells a handler or a work.
struct Attempt {
    key: Key,
    fence: Fence,
    number: u8,
    is_recovery: bool,
    ends: Instant,
}

impl Attempt {
    fn of(claim: &Claim, is_recovery: bool) -> Self {
        let (key, fence, number) = (claim.key().clone(), claim.fence(), claim.attempt());
        Self { key, fence, number, is_recovery, ends: claim.ends() }
    }
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
            Ending::Unavailable if !self.kind.is_endpoint() => Ending::Answer(503),
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
            return Ok(Response::builder().header(UNPROTECTED, "true").body(Body::default()).unwrap());
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
                let response = streamed(&plan, ending);
                Ok(response.map(|body| body.on_read(move || tally.read(&plan, kind, ending))))
            }
        }
    }

    async fn work(&self, attempt: Attempt, request: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        let original: &Original = request.extensions().get().unwrap();
        match self.follow(request.extensions(), attempt, original.body == request.body()).await {
            (plan, Ending::Answer(status)) => Ok(encode_response(&response(&plan, status))),
            (_, Ending::BreakOff | Ending::Error) => Err(WorkError::uncertain(PLANNED)),
            (plan, Ending::Unavailable) => Err(match plan.unavailable_for() {
                Some(after) => WorkError::unavailable_after(PLANNED, after),
                None => WorkError::unavailable(PLANNED),
            }),
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

/// A run that records how it ends.
struct Running {
    tally: Arc<Tally>,
    at: usize,
    /// When it must have ended.
    ends: Instant,
    spawns: bool,
}

impl Running {
    fn begin(runner: &Runner, plan: Plan, attempt: &Attempt, invocation: Option<Deadline>, is_original: bool) -> Self {
        let (Runner { tally, kind, .. }, ends) = (runner.clone(), attempt.ends);
        let is_too_late = invocation.is_some_and(|invocation| ends > invocation.end);
        let is_too_long = ends > Instant::now() + TIMEOUT * 3 / 4;
        let faults = [
            (is_too_late, "it may run after its invocation"),
            (is_too_long, "it may run longer than its timeout"),
            (!is_original, "its request was changed"),
        ];
        let run = Run {
            plan,
            kind,
            key: attempt.key.stored().into_owned(),
            fence: attempt.fence.0,
            attempt: attempt.number,
            is_recovery: attempt.is_recovery,
            ended: None,
            is_late: false,
            is_over: false,
            faults: faults.iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, fault)| *fault).collect(),
        };
        let mut runs = lock(&tally.runs);
        let at = runs.len();
        runs.push(run);
        drop(runs);
        Self { tally, at, ends, spawns: kind.spawns }
    }

    fn take_effect(&self) {
        let (now, at_us) = (Instant::now(), monotonic_us());
        let mut runs = lock(&self.tally.runs);
        let run = &mut runs[self.at];
        // The deadline was checked just before. A busy machine needs time in between.
        if now > self.ends + GRACE {
            run.faults.push("an effect after the deadline");
        }
        let (key, fence, is_recovery) = (run.key.clone(), run.fence, run.is_recovery);
        lock(&self.tally.effects).push(Effect { key, fence, is_recovery, at_us });
    }

    fn end(&self, ending: Ending) {
        let run = &mut lock(&self.tally.runs)[self.at];
        (run.ended, run.is_late) = (Some(ending), Instant::now() + 2 * GRACE > self.ends);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut runs = lock(&self.tally.runs);
        let run = &mut runs[self.at];
        run.is_over = true;
        // Without a task of its own, a run is cancelled with its request.
        if self.spawns && run.ended.is_none() && Instant::now() < self.ends {
            run.faults.push("cancelled before its deadline");
        }
    }
}
