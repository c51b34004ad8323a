//! The path of a request.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use idempotent_sqs::{Delivery, Store};
use tokio::time::{Instant, timeout, timeout_at};
use tower_service::Service;
use tracing::Instrument;

use crate::answer::{Answer, reject};
use crate::body::{RequestBody, ResponseBody};
use crate::fingerprint;
use crate::handler::Pending;
use crate::key::{ClientKey, IDEMPOTENCY_KEY, MalformedKey};
use crate::layer::Shared;
use crate::problem::Problem;
use crate::report::Reporter;
use crate::request::IdempotentRequest;
use crate::run::{run, without_store};
use crate::settings::KeyRule;
use crate::time_limit::TimeLimit;

/// The service of an [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Debug)]
pub struct IdempotencyService<Inner, S> {
    pub(crate) inner: Inner,
    pub(crate) shared: Arc<Shared<S>>,
}

impl<Inner: Clone, S> Clone for IdempotencyService<Inner, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<Inner, S, B, RB> Service<Request<B>> for IdempotencyService<Inner, S>
where
    Inner: Service<Request<RequestBody<B>>, Response = Response<RB>> + Clone + Send + 'static,
    Inner::Future: Send,
    Inner::Error: Send + 'static,
    S: Store + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    RB: Body<Data = Bytes> + Send + 'static,
    RB::Error: Send,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = Inner::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    /// ## Cancel safety
    /// If the future is dropped before the request's body has arrived, nothing runs. After that the handler runs to its
    /// end, unless [`spawn(false)`](crate::IdempotencyLayerBuilder::spawn) is set.
    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone is not ready, but `self.inner` is.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        Box::pin(serve(Arc::clone(&self.shared), inner, request))
    }
}

async fn serve<Inner, S, B, RB>(
    shared: Arc<Shared<S>>,
    mut inner: Inner,
    request: Request<B>,
) -> Answer<RB, Inner::Error>
where
    Inner: Service<Request<RequestBody<B>>, Response = Response<RB>> + Send + 'static,
    Inner::Future: Send,
    Inner::Error: Send + 'static,
    S: Store + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    RB: Body<Data = Bytes> + Send + 'static,
    RB::Error: Send,
{
    let (parts, body) = request.into_parts();
    // The layer may be applied twice, to a router and to one of its routes.
    let is_served = parts.extensions.get::<IdempotentRequest>().is_some();
    let rule = if is_served { KeyRule::Ignored } else { (shared.settings.key_rule)(&parts) };
    let key = if rule == KeyRule::Ignored { Ok(None) } else { ClientKey::of(&parts.headers) };
    if key == Ok(None) && rule != KeyRule::Required {
        let request = Request::from_parts(parts, RequestBody::unread(body));
        return inner.call(request).await.map(|response| response.map(ResponseBody::unread));
    }
    let header = key.as_ref().ok().and_then(|key| Some(key.as_ref()?.header.clone()));
    let client_key = key.as_ref().ok().and_then(|key| Some(key.as_ref()?.text.clone()));
    let reporter = Reporter::new(&parts, client_key);
    let span = reporter.span();
    let limit = TimeLimit::of(&shared.settings, &parts);
    let answer = match accept(&shared, key, parts, body, limit).instrument(span.clone()).await {
        Ok((delivery, request)) => {
            let pending = Pending::new(inner, request.map(RequestBody::read));
            protect(shared, pending, delivery, limit, reporter).instrument(span).await
        }
        Err(problem) => {
            let (answer, summary) = reject(problem);
            span.in_scope(|| reporter.report(&shared.settings, status(&answer), &summary));
            answer
        }
    };
    answer.map(|mut response| {
        if let Some(key) = header {
            response.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        response
    })
}

fn status<RB, E>(answer: &Answer<RB, E>) -> Option<StatusCode> {
    answer.as_ref().ok().map(Response::status)
}

/// Checks key and principal, and reads the body. Nothing is acquired yet, so a slow client holds no lease.
pub(crate) async fn accept<S, B>(
    shared: &Shared<S>,
    key: Result<Option<ClientKey>, MalformedKey>,
    parts: Parts,
    body: B,
    limit: TimeLimit,
) -> Result<(Delivery, Request<Bytes>), Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let settings = &shared.settings;
    let key = key.map_err(|_| Problem::KeyMalformed)?.ok_or(Problem::KeyMissing)?;
    let principal = (settings.principal)(&parts).ok_or(Problem::PrincipalMissing)?;
    let body = read(body, settings.max_body_bytes, limit.waits_until(settings.timeout)).await?;
    let fingerprint = fingerprint::of(&parts, &body);
    let delivery = Delivery::new(principal.record_key(&key.text)).fingerprint(fingerprint);
    Ok((delivery, Request::from_parts(parts, body)))
}

/// Runs the request in a task of its own, unless the settings say otherwise.
async fn protect<Inner, S, B, RB>(
    shared: Arc<Shared<S>>,
    pending: Pending<Inner, B>,
    delivery: Delivery,
    limit: TimeLimit,
    reporter: Reporter,
) -> Answer<RB, Inner::Error>
where
    Inner: Service<Request<RequestBody<B>>, Response = Response<RB>> + Send + 'static,
    Inner::Future: Send,
    Inner::Error: Send + 'static,
    S: Store + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    RB: Body<Data = Bytes> + Send + 'static,
    RB::Error: Send,
{
    let (pending, reporter) = (Arc::new(pending), Arc::new(reporter));
    let (spawns, replies_within) = (shared.settings.spawn, shared.settings.store_timeout + shared.settings.wait);
    let task = {
        let (shared, pending, reporter) = (Arc::clone(&shared), Arc::clone(&pending), Arc::clone(&reporter));
        async move {
            let ended = run(&shared, &pending, reporter.client_key(), &delivery, limit).await?;
            reporter.report(&shared.settings, status(&ended.0), &ended.1);
            Some(ended.0)
        }
    };
    let answer = if spawns {
        // If the client disconnects, this future is dropped, and the task goes on.
        let mut task = shared.spawn(task);
        match timeout(replies_within, &mut task).await {
            Ok(ended) => ended.ok().flatten(),
            Err(_) => match pending.take() {
                // The store hangs. The task releases the record, and finds no request to run.
                Some(request) => {
                    let own = Arc::clone(&shared);
                    let task = async move {
                        let (answer, summary) =
                            without_store(request, own.settings.store_outage, limit.deadline()).await;
                        reporter.report(&own.settings, status(&answer), &summary);
                        answer
                    };
                    shared.spawn(task).await.ok()
                }
                None => task.await.ok().flatten(),
            },
        }
    } else {
        task.await
    };
    // The runtime is shutting down, or a hook of the user panicked.
    answer.unwrap_or_else(|| reject(Problem::Failed).0)
}

/// Reads the body of a request, of at most `max_bytes`.
async fn read<B>(body: B, max_bytes: usize, until: Instant) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(Problem::BodyTooLarge);
    }
    match timeout_at(until, Limited::new(body, max_bytes).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::BodyTooLarge),
        Ok(Err(_)) => Err(Problem::BodyUnreadable),
        Err(_) => Err(Problem::BodyTimeout),
    }
}
