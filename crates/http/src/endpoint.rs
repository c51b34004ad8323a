//! A work that answers requests itself, so that its response can commit with its effect.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use idempotent_sqs::idempotency::{Outcome, Report, WorkErrorKind, error_chain};
use idempotent_sqs::{Deadline, Delivery, Store, Work};
use tower_service::Service;
use tracing::Instrument;

use crate::answer::{Summary, problem, replayed};
use crate::key::{ClientKey, IDEMPOTENCY_KEY};
use crate::layer::Shared;
use crate::problem::Problem;
use crate::report::{Reporter, RequestOutcome};
use crate::service::accept;
use crate::stored;
use crate::time_limit::TimeLimit;

/// A service that answers each request with the result of a [`Work`]. Made by
/// [`IdempotencyLayer::endpoint`](crate::IdempotencyLayer::endpoint).
pub struct IdempotentEndpoint<W, S> {
    pub(crate) work: Arc<W>,
    pub(crate) shared: Arc<Shared<S>>,
}

impl<W, S> fmt::Debug for IdempotentEndpoint<W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotentEndpoint").finish_non_exhaustive()
    }
}

impl<W, S> Clone for IdempotentEndpoint<W, S> {
    fn clone(&self) -> Self {
        Self { work: Arc::clone(&self.work), shared: Arc::clone(&self.shared) }
    }
}

impl<W, S, B> Service<Request<B>> for IdempotentEndpoint<W, S>
where
    W: Work<Request<Bytes>> + 'static,
    S: Store + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// ## Cancel safety
    /// If the future is dropped before the request's body has arrived, nothing runs. After that the work runs to its
    /// end, unless [`spawn(false)`](crate::IdempotencyLayerBuilder::spawn) is set.
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let endpoint = self.clone();
        Box::pin(async move { Ok(endpoint.answer(request).await.map(Full::new)) })
    }
}

impl<W, S> IdempotentEndpoint<W, S>
where
    W: Work<Request<Bytes>> + 'static,
    S: Store + 'static,
{
    async fn answer<B>(self, request: Request<B>) -> Response<Bytes>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let key = ClientKey::of(&parts.headers);
        let (text, header): (Option<String>, Option<HeaderValue>) =
            key.clone().ok().flatten().map(|key| (key.text, key.header)).unzip();
        let reporter = Reporter::new(&parts, text);
        let (span, shared) = (reporter.span(), Arc::clone(&self.shared));
        let limit = TimeLimit::of(&shared.settings, &parts);
        let mut response = match accept(&shared, key, parts, body, limit).instrument(span.clone()).await {
            Ok((delivery, request)) => {
                let spawns = shared.settings.spawn;
                let task = self.run(delivery, request, limit, reporter).instrument(span);
                let ended = if spawns { shared.spawn(task).await.ok() } else { Some(task.await) };
                // The runtime is shutting down, or a hook of the user panicked.
                ended.unwrap_or_else(|| Problem::Failed.response())
            }
            Err(problem) => {
                let response = problem.response();
                let summary = RequestOutcome::from(problem).into();
                span.in_scope(|| reporter.report(&shared.settings, Some(response.status()), &summary));
                response
            }
        };
        if let Some(key) = header {
            response.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        response
    }

    async fn run(
        self,
        delivery: Delivery,
        request: Request<Bytes>,
        limit: TimeLimit,
        reporter: Reporter,
    ) -> Response<Bytes> {
        let settings = &self.shared.settings;
        let deadline = limit.deadline();
        let report = self.shared.idempotency.run(&delivery.deadline(deadline), &*self.work, &request).await;
        let (response, summary) = match report {
            Ok(report) => conclude(report, deadline, settings.mismatch_status),
            Err(error) => {
                tracing::warn!(reason = error_chain(&error), "the store did not reply");
                (Problem::StoreUnavailable.response(), RequestOutcome::StoreUnavailable.into())
            }
        };
        reporter.report(settings, Some(response.status()), &summary);
        response
    }
}

fn conclude(report: Report, deadline: Deadline, mismatch_status: StatusCode) -> (Response<Bytes>, Summary) {
    let Report { outcome, fence, attempts, recovery: is_recovery, .. } = report;
    let (response, outcome) = answered(&outcome).unwrap_or_else(|| {
        let problem = retry(&outcome).unwrap_or_else(|| problem(&outcome, deadline, mismatch_status));
        (problem.response(), problem.into())
    });
    (response, Summary { outcome, fence, attempts, is_recovery })
}

/// The response of this or an earlier run.
fn answered(outcome: &Outcome) -> Option<(Response<Bytes>, RequestOutcome)> {
    if let Outcome::Done { result } | Outcome::DoneByOwnRecord { result } = outcome {
        return Some((stored::restore(result)?, RequestOutcome::Completed));
    }
    Some((replayed(outcome)?, RequestOutcome::Replayed))
}

/// The work had no effect and may be tried again.
fn retry(outcome: &Outcome) -> Option<Problem> {
    let (Outcome::Failed { error, uncertain: false } | Outcome::Unavailable { error }) = outcome else { return None };
    match error.kind() {
        WorkErrorKind::Retryable { after } | WorkErrorKind::Unavailable { after } | WorkErrorKind::Busy { after } => {
            Some(Problem::Unavailable { after })
        }
        WorkErrorKind::Uncertain | WorkErrorKind::Permanent | _ => None,
    }
}
