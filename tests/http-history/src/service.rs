//! Services with the layer.

use std::error::Error;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use harness::torture::tally::lock;
use harness::with;
use history::RecordedStore;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use idempotent_sqs::idempotency::{Recovery, Results};
use idempotent_sqs::{Deadline, RedisSettings, RedisStore};
use idempotent_sqs_http::{IdempotencyLayer, IdempotencyLayerBuilder, Principal, RequestBody};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};

use crate::body::Body;
use crate::handler::{PLANNED, Plan, Runner};
use crate::kind::{Kind, Serves};
use crate::logs;
use crate::reported::Reported;
use crate::response::NODE;
use crate::store::{Keeping, Watched};
use crate::tally::Tally;

type BoxError = Box<dyn Error + Send + Sync>;

type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// Time for one run, of which a quarter is reserved for the record.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(400);

/// How much longer than the deadline a lease usually lasts.
pub(crate) const GRACE: Duration = Duration::from_millis(100);

/// Longer than each run may take.
pub(crate) const TOO_LONG: Duration = Duration::from_millis(600);

/// Largest body of a request.
pub(crate) const MAX_BODY_BYTES: usize = 100;

/// Each report of this number makes the function that gets it panic.
const REPORTS_PER_PANIC: usize = 5;

/// One process with the layer.
pub(crate) struct Service {
    pub(crate) kind: Kind,
    tally: Arc<Tally>,
    pub(crate) layer: IdempotencyLayer<Watched<RecordedStore<RedisStore>>>,
    inner: BoxCloneSyncService<Request<Body>, Response<AnyBody>, &'static str>,
}

/// An answer that was read whole.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whether its head said the length of its body.
    pub(crate) is_sized: bool,
    /// When its head arrived.
    pub(crate) head_at: Instant,
}

impl Service {
    /// A service on the Redis of these settings, whose calls are recorded in this directory.
    pub(crate) fn new(kind: Kind, settings: &RedisSettings, directory: &Path, tally: &Arc<Tally>) -> Self {
        let store = RecordedStore::new(RedisStore::new(settings).unwrap(), directory).unwrap();
        let mut policy = with!(IdempotencyLayerBuilder::<RedisStore>::default_policy(), lease_grace = kind.lease_grace);
        if !kind.has_defaults {
            let Keeping { max_attempts, failed_retention, .. } = kind.keeping();
            policy = with!(
                policy,
                max_attempts = max_attempts,
                failed_retention = failed_retention,
                result_max_bytes = kind.kept_bytes(),
            );
        }
        let recovery = if kind.parks { Recovery::Park } else { Recovery::Rerun };
        let results = kind.has_objects.then(|| Results::new(Arc::clone(&tally.objects) as _, "results", "http/"));
        let policy = with!(policy, recovery = recovery, results = results);
        let principal = |parts: &http::request::Parts| parts.headers.get(AUTHORIZATION).map(Principal::new);
        let reporting = Arc::clone(tally);
        let store = Watched { store, kind, tally: Arc::clone(tally) };
        let builder = IdempotencyLayer::builder(store, principal)
            .policy(policy)
            .timeout(TIMEOUT)
            .deadline(|parts| parts.extensions.get::<Deadline>().copied())
            .wait(kind.wait)
            .store_timeout(kind.store_timeout)
            .store_outage(kind.store_outage)
            .server_errors(kind.server_errors)
            .mismatch_status(StatusCode::from_u16(kind.mismatch_status).unwrap())
            .max_body_bytes(MAX_BODY_BYTES)
            .report(move |report| {
                // A request without a number is missed by the verdict.
                let Some(request) = logs::request() else { return };
                let reported = Reported::of(request, report);
                let mut reports = lock(&reporting.reports);
                if let Some(metrics) = &reporting.metrics {
                    println!("{}", reported.as_json());
                    metrics.print(report);
                }
                reports.push(reported);
                let is_to_panic = reports.len().is_multiple_of(REPORTS_PER_PANIC);
                drop(reports);
                if is_to_panic {
                    resume_unwind(Box::new(PLANNED));
                }
            })
            .spawn(kind.spawns);
        let builder = if kind.drops_node { builder.drop_header(NODE) } else { builder };
        let layer = match kind.key_rule {
            Some(rule) => builder.key_rule(move |_| rule),
            None => builder,
        }
        .build();
        let runner = Runner { tally: Arc::clone(tally), kind, is_ready: false };
        let inner = match kind.serves {
            Serves::Handler => boxed(layer.layer(runner)),
            Serves::LayerTwice => boxed(layer.layer(layer.layer(runner))),
            Serves::Endpoint => {
                boxed(ServiceExt::<Request<Body>>::map_err(layer.endpoint(runner), |never| match never {}))
            }
            Serves::EndpointInLayer => {
                let endpoint = layer.endpoint(runner);
                let endpoint = ServiceExt::<Request<RequestBody<Body>>>::map_err(endpoint, |never| match never {});
                boxed(layer.layer(endpoint))
            }
        };
        Self { kind, tally: Arc::clone(tally), layer, inner }
    }

    /// The answer to a request. A server needs to know the size of its body in advance.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Reply, &'static str> {
        let request_number = request.extensions().get::<Plan>().unwrap().request;
        let (parts, body) = self.inner.clone().oneshot(request).await?.into_parts();
        let head_at = Instant::now();
        lock(&self.tally.heads).insert(request_number);
        let (size, is_empty) = (http_body::Body::size_hint(&body), http_body::Body::is_end_stream(&body));
        let body = body.collect().await.map_err(|_| "the body broke off")?;
        let (trailers, body) = (body.trailers().cloned(), body.to_bytes());
        let length = body.len() as u64;
        if length < size.lower() || size.upper().is_some_and(|upper| length > upper) || is_empty && length > 0 {
            return Err("the body has another size than it said");
        }
        if length == 0 && trailers.is_none() && !is_empty {
            return Err("an empty body that does not say so");
        }
        let (status, is_sized) = (parts.status.as_u16(), size.exact().is_some());
        Ok(Reply { status, headers: parts.headers, body, trailers, is_sized, head_at })
    }
}

/// A service with any body.
fn boxed<S, B>(service: S) -> BoxCloneSyncService<Request<Body>, Response<AnyBody>, &'static str>
where
    S: tower::Service<Request<Body>, Response = Response<B>, Error = &'static str, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    BoxCloneSyncService::new(
        service.map_response(|response| response.map(|body| body.map_err(Into::into).boxed_unsync())),
    )
}
