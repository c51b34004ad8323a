//! A work that answers requests itself, so that its response can commit with its effect.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Empty;
use idempotent_sqs::idempotency::{AcquireRequest, OwnRecord, RecordedAttempt};
use idempotent_sqs::{Claim, Deadline, Store, Work, WorkError};
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use crate::answer::{Answer, Summary, reject, whole};
use crate::body::ResponseBody;
use crate::key::ClientKey;
use crate::layer::Shared;
use crate::pending::PendingRequest;
use crate::problem::Problem;
use crate::request::IdempotentRequest;
use crate::run::{Attempt, READ_KEPT};
use crate::service::serve;
use crate::settings::Settings;
use crate::stored;

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
    type Response = Response<ResponseBody<Empty<Bytes>>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// ## Cancel safety
    /// If the future is dropped before the request's body has arrived, nothing runs. After that the work runs to its
    /// end, unless [`spawn(false)`](crate::IdempotencyLayerBuilder::spawn) is set.
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { work, shared } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            if parts.extensions.get::<IdempotentRequest>().is_some() {
                tracing::error!("an endpoint cannot run inside a layer: both need the key; remove the layer");
                return reject(Problem::Failed).0;
            }
            let key = ClientKey::of(&parts.headers);
            let settings = Arc::clone(&shared.settings);
            let run = |_, request, _| WorkRun {
                settings,
                work,
                request: PendingRequest::new(request),
                answer: Mutex::new(None),
            };
            serve(shared, key, parts, body, run).await
        })
    }
}

/// The work, one request, and its answer.
struct WorkRun<W> {
    settings: Arc<Settings>,
    work: Arc<W>,
    request: PendingRequest<Request<Bytes>>,
    answer: Mutex<Option<Answer<Empty<Bytes>, Infallible>>>,
}

impl<W: Work<Request<Bytes>>> WorkRun<W> {
    /// Keeps the response in this result for the client. Returns its status.
    fn keep_answer(&self, result: &[u8]) -> Option<StatusCode> {
        let response = stored::restore(result)?;
        let status = response.status();
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ok(whole(response)));
        Some(status)
    }
}

fn withdrawn() -> WorkError {
    WorkError::unavailable("the request was withdrawn")
}

impl<W: Work<Request<Bytes>>> Work<()> for WorkRun<W> {
    async fn run(&self, claim: &Claim, (): &()) -> Result<Vec<u8>, WorkError> {
        let (request, _running) = self.request.start().ok_or_else(withdrawn)?;
        let result = if claim.is_recovery() {
            self.work.recover(claim, &request).await?
        } else {
            self.work.run(claim, &request).await?
        };
        self.keep_answer(&result).map_or(Ok(()), |status| self.settings.check(status))?;
        Ok(result)
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<()>> {
        self.work.own_record().map(|_| self as &dyn OwnRecord<()>)
    }
}

/// The record of an inbox commits with the response, whatever its status.
impl<W: Work<Request<Bytes>>> OwnRecord<()> for WorkRun<W> {
    fn attempt<'a>(&'a self, claim: &'a Claim, (): &'a ()) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(async move {
            let record = self.work.own_record().ok_or_else(|| WorkError::uncertain("the work has no record now"))?;
            let (request, _running) = self.request.start().ok_or_else(withdrawn)?;
            let attempt = record.attempt(claim, &request).await?;
            if let RecordedAttempt::Done(result) = &attempt {
                self.keep_answer(result);
            }
            Ok(attempt)
        })
    }

    fn recorded<'a>(
        &'a self,
        request: &'a AcquireRequest,
        until: Instant,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        let Some(record) = self.work.own_record() else { return Box::pin(ready(Ok(None))) };
        // The store has answered that nothing runs for this request: reading the record is not waiting for the store.
        drop(self.request.start());
        let until = until.min(Instant::now() + READ_KEPT);
        Box::pin(async move {
            let read = timeout_at(until, record.recorded(request, until)).await;
            read.unwrap_or_else(|elapsed| Err(WorkError::unavailable(elapsed)))
        })
    }
}

impl<W: Work<Request<Bytes>> + 'static> Attempt for WorkRun<W> {
    type Request = Request<Bytes>;
    type Body = Empty<Bytes>;
    type Error = Infallible;

    fn request(&self) -> &PendingRequest<Request<Bytes>> {
        &self.request
    }

    fn take_answer(&self) -> Option<Answer<Empty<Bytes>, Infallible>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A work needs a claim, so it does not run.
    async fn run_unprotected(_: Request<Bytes>, _: Deadline) -> (Answer<Empty<Bytes>, Infallible>, Summary) {
        reject(Problem::StoreUnavailable)
    }
}
