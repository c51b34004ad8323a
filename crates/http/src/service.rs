//! The service of a layer, and the path of a request with a key.

use std::error::Error;
use std::future::Future;
use std::iter;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Collected, LengthLimitError, Limited};
use idempotent_sqs::{Delivery, Store};
use tokio::time::{Instant, timeout_at};
use tower_service::Service;
use tracing::{Instrument, Span};

use crate::answer::{Answer, reject};
use crate::body::{RequestBody, ResponseBody};
use crate::fingerprint;
use crate::handler::Handler;
use crate::key::{ClientKey, IDEMPOTENCY_KEY, MalformedKey};
use crate::layer::Shared;
use crate::problem::Problem;
use crate::report::Reporter;
use crate::request::IdempotentRequest;
use crate::run::{Attempt, protect, status};
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
    B::Error: Into<Box<dyn Error + Send + Sync>>,
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
        let mut inner = mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // The layer may be applied twice, to a router and to one of its routes.
            let is_served = parts.extensions.get::<IdempotentRequest>().is_some();
            let rule = if is_served { KeyRule::Ignored } else { (shared.settings.key_rule)(&parts) };
            let key = if rule == KeyRule::Ignored { Ok(None) } else { ClientKey::of(&parts.headers) };
            if key == Ok(None) && rule != KeyRule::Required {
                let request = Request::from_parts(parts, RequestBody::unread(body));
                return inner.call(request).await.map(|response| response.map(ResponseBody::unread));
            }
            let settings = Arc::clone(&shared.settings);
            let handler = |client_key, request: Request<Bytes>, trailers| {
                Handler::new(settings, client_key, inner, request.map(|body| RequestBody::read(body, trailers)))
            };
            serve(shared, key, parts, body, handler).await
        })
    }
}

/// Answers a request that needs a key. `attempt` makes what runs from the key, the request and its trailers.
pub(crate) async fn serve<S, B, A>(
    shared: Arc<Shared<S>>,
    key: Result<Option<ClientKey>, MalformedKey>,
    parts: Parts,
    body: B,
    attempt: impl FnOnce(String, Request<Bytes>, Option<HeaderMap>) -> A,
) -> Answer<A::Body, A::Error>
where
    S: Store + 'static,
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    A: Attempt,
{
    let (client_key, header) = key.clone().ok().flatten().map(|key| (key.text, key.header)).unzip();
    let reporter = Reporter::new(&parts, client_key.clone());
    let span = reporter.span();
    let limit = TimeLimit::of(&shared.settings, &parts);
    let answer = match accept(&shared, key, parts, body, limit).instrument(span.clone()).await {
        Ok((delivery, request, trailers)) => {
            let attempt = attempt(client_key.unwrap_or_default(), request, trailers);
            protect(shared, attempt, delivery, limit, reporter).instrument(span).await
        }
        Err(problem) => {
            let (answer, summary) = reject(problem);
            reporter.report(&shared.settings, status(&answer), &summary);
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

/// Checks key and principal, and reads the body. Nothing is acquired yet, so a slow client holds no lease.
async fn accept<S, B>(
    shared: &Shared<S>,
    key: Result<Option<ClientKey>, MalformedKey>,
    parts: Parts,
    body: B,
    limit: TimeLimit,
) -> Result<(Delivery, Request<Bytes>, Option<HeaderMap>), Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let settings = &shared.settings;
    let key = key.map_err(|_| Problem::KeyMalformed)?.ok_or(Problem::KeyMissing)?;
    let principal = (settings.principal)(&parts).ok_or(Problem::PrincipalMissing)?;
    let body = read(body, settings.max_body_bytes, limit.waits_until(settings.timeout, Duration::ZERO)).await?;
    let (trailers, body) = (body.trailers().cloned(), body.to_bytes());
    let fingerprint = fingerprint::of(&parts, &body);
    let record_key = principal.record_key(&key.text);
    // With it, `records` finds the record.
    Span::current().record("idempotency.record_key", record_key.as_str());
    let delivery = Delivery::new(record_key).fingerprint(fingerprint);
    Ok((delivery, Request::from_parts(parts, body), trailers))
}

/// Reads the body of a request, of at most `max_bytes`.
async fn read<B>(body: B, max_bytes: usize, until: Instant) -> Result<Collected<Bytes>, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(Problem::BodyTooLarge);
    }
    match timeout_at(until, Limited::new(body, max_bytes).collect()).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if is_too_large(&*error) => Err(Problem::BodyTooLarge),
        Ok(Err(_)) => Err(Problem::BodyUnreadable),
        Err(_elapsed) => Err(Problem::BodyTimeout),
    }
}

/// Largest number of errors that an error may be wrapped in. The causes of an error that is its own cause have no end.
const MAX_WRAPPERS: usize = 64;

/// Whether a body is above the limit of the layer, or above one outside of it, whose error may be wrapped.
fn is_too_large(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |error| (**error).source())
        .take(MAX_WRAPPERS)
        .any(<dyn Error>::is::<LengthLimitError>)
}
