//! The path of a request.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use idempotent_sqs::{Delivery, Store};
use tokio::time::{Instant, timeout};
use tower_service::Service;
use tracing::Instrument;

use crate::answer::{Answer, Summary, reject};
use crate::body::{RequestBody, ResponseBody};
use crate::fingerprint;
use crate::key::{ClientKey, IDEMPOTENCY_KEY};
use crate::layer::Shared;
use crate::problem::Problem;
use crate::report::RequestReport;
use crate::request::IdempotentRequest;
use crate::run::{KeyedRequest, run};
use crate::settings::KeyRule;

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
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    // The layer may be applied twice, to a router and to one of its routes.
    let is_served = parts.extensions.get::<IdempotentRequest>().is_some();
    let rule = if is_served { KeyRule::Ignored } else { (shared.settings.key_rule)(&parts) };
    let key = if rule == KeyRule::Ignored { Ok(None) } else { ClientKey::of(&parts.headers) };
    if key == Ok(None) && rule != KeyRule::Required {
        let request = Request::from_parts(parts, RequestBody::unread(body));
        return inner.call(request).await.map(|response| response.map(ResponseBody::unread));
    }
    let method = parts.method.clone();
    let header = key.as_ref().ok().and_then(|key| Some(key.as_ref()?.header.clone()));
    let client_key = key.as_ref().ok().and_then(|key| Some(key.as_ref()?.text.clone()));
    let span = tracing::info_span!("idempotent_request", %method, path = parts.uri.path(), key = client_key);
    let settings = &shared.settings;
    let (answer, summary) = async {
        let key = match key {
            Ok(Some(key)) => key,
            Ok(None) => return reject(Problem::KeyMissing),
            Err(_) => return reject(Problem::KeyMalformed),
        };
        let Some(principal) = (settings.principal)(&parts) else { return reject(Problem::PrincipalMissing) };
        let body = match read(body, settings.max_body_bytes, settings.timeout).await {
            Ok(body) => body,
            Err(problem) => return reject(problem),
        };
        let fingerprint = fingerprint::of(&parts, &body);
        let delivery = Delivery::new(principal.record_key(&key.text)).fingerprint(fingerprint);
        let task = run(Arc::clone(&shared), inner, KeyedRequest { key, delivery, parts, body });
        if !settings.spawn {
            return task.await;
        }
        let running = shared.running.subscribe();
        let task = async move {
            let ended = task.await;
            drop(running);
            ended
        };
        // If the client disconnects, this future is dropped, and the task goes on.
        match tokio::spawn(task.in_current_span()).await {
            Ok(ended) => ended,
            // The runtime is shutting down, or a hook of the user panicked.
            Err(_) => reject(Problem::Failed),
        }
    }
    .instrument(span.clone())
    .await;
    let answer = answer.map(|mut response| {
        if let Some(key) = header {
            response.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        response
    });
    let status = answer.as_ref().ok().map(Response::status);
    let Summary { outcome, attempts, is_recovery } = summary;
    let report =
        RequestReport { outcome, status, method, client_key, attempts, is_recovery, duration: started.elapsed() };
    span.in_scope(|| {
        let (status, ms) = (status.map(|status| status.as_u16()), report.duration.as_millis());
        tracing::info!(outcome = outcome.as_str(), status, attempts, is_recovery, ms, "request answered");
        (settings.report)(&report);
    });
    answer
}

/// Reads the body of a request, of at most `max_bytes`. Nothing is acquired yet, so a slow client holds no lease.
async fn read<B>(body: B, max_bytes: usize, within: Duration) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(Problem::BodyTooLarge);
    }
    match timeout(within, Limited::new(body, max_bytes).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::BodyTooLarge),
        Ok(Err(_)) => Err(Problem::BodyUnreadable),
        Err(_) => Err(Problem::BodyTimeout),
    }
}
