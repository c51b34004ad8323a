//! Services with the layer, whose handler follows the plan of its request and counts its effects.

use std::error::Error;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use harness::torture::tally::lock;
use harness::with;
use history::{Effect, RecordedStore, monotonic_us};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, LINK, SET_COOKIE};
use http::{Extensions, HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use idempotent_sqs::idempotency::Fence;
use idempotent_sqs::{Claim, Deadline, Key, RedisSettings, RedisStore, Work, WorkError};
use idempotent_sqs_http::{
    IdempotencyLayer, IdempotencyLayerBuilder, IdempotentRequest, Principal, RequestBody, encode_response,
};
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

/// A body that breaks off if it is longer than its limit.
pub(crate) type Body = Limited<Full<Bytes>>;

type BoxError = Box<dyn Error + Send + Sync>;

type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// The number of the request whose run made a response.
pub(crate) const RECEIPT: &str = "receipt";

/// Time for one run, of which a quarter is reserved for the record.
const TIMEOUT: Duration = Duration::from_millis(400);

/// How much longer than the deadline a lease lasts.
const GRACE: Duration = Duration::from_millis(100);

/// Longer than each run may take.
pub(crate) const TOO_LONG: Duration = Duration::from_millis(600);

/// Largest response that is kept with its body.
pub(crate) const KEPT_BYTES: usize = 1000;

/// What a handler does for a request, an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of the request.
    pub(crate) request: usize,
    pub(crate) before: Duration,
    pub(crate) has_effect: bool,
    pub(crate) after: Duration,
    pub(crate) ending: Ending,
    /// Size of the response's body.
    pub(crate) bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Answer(u16),
    /// The body of the response fails.
    BreakOff,
    /// The service returns an error.
    Error,
    Panic,
}

/// One run of the handler.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// Stored form of the key of the record.
    pub(crate) key: String,
    pub(crate) fence: u64,
    /// Whether a work of an endpoint ran.
    pub(crate) is_endpoint: bool,
    /// How it ended. `None` if it was cancelled.
    pub(crate) ended: Option<Ending>,
    pub(crate) is_over: bool,
    /// What was wrong with its times.
    pub(crate) faults: Vec<&'static str>,
}

/// What the handlers of all services count.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: Mutex<Vec<Run>>,
    pub(crate) effects: Mutex<Vec<Effect>>,
}

/// One process with the layer.
pub(crate) struct Service {
    pub(crate) layer: IdempotencyLayer<RecordedStore<RedisStore>>,
    service: BoxCloneSyncService<Request<Body>, Response<AnyBody>, &'static str>,
}

/// How a service differs from others.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// Whether a work answers the requests, instead of a handler.
    pub(crate) is_endpoint: bool,
    /// Whether its handlers run in tasks of their own.
    pub(crate) spawns: bool,
    /// How long a request waits for a running one.
    pub(crate) wait: Duration,
    /// How long a request waits for the store.
    pub(crate) store_timeout: Duration,
}

impl Service {
    /// A service on the Redis at `url`, whose calls are recorded in this directory.
    pub(crate) fn new(kind: Kind, (url, namespace): (&str, &str), directory: &Path, tally: &Arc<Tally>) -> Self {
        let settings = with!(RedisSettings::new(url.parse().unwrap(), namespace), timeout = Duration::from_millis(100));
        let store = RecordedStore::new(RedisStore::new(&settings).unwrap(), directory).unwrap();
        let policy = with!(
            IdempotencyLayerBuilder::<RedisStore>::default_policy(),
            lease_grace = GRACE,
            max_attempts = 4,
            failed_retention = Duration::from_millis(100),
            result_max_bytes = KEPT_BYTES,
        );
        let principal = |parts: &http::request::Parts| parts.headers.get(AUTHORIZATION).map(Principal::new);
        let layer = IdempotencyLayer::builder(store, principal)
            .policy(policy)
            .timeout(TIMEOUT)
            .deadline(|parts| parts.extensions.get::<Deadline>().copied())
            .wait(kind.wait)
            .store_timeout(kind.store_timeout)
            .spawn(kind.spawns)
            .build();
        let runner = Runner { tally: Arc::clone(tally), kind };
        let service = if kind.is_endpoint {
            let endpoint = ServiceExt::<Request<Body>>::map_err(layer.endpoint(runner), |never| match never {});
            BoxCloneSyncService::new(ServiceExt::<Request<Body>>::map_response(endpoint, |response: Response<_>| {
                response.map(whole)
            }))
        } else {
            let handler = layer.layer(service_fn(move |request| runner.clone().handle(request)));
            BoxCloneSyncService::new(handler.map_response(|response| response.map(whole)))
        };
        Self { layer, service }
    }

    /// The answer to a request: its head and the whole body.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<(StatusCode, HeaderMap, Bytes), &'static str> {
        let (parts, body) = self.service.clone().oneshot(request).await?.into_parts();
        let body = body.collect().await.map_err(|_| "the body broke off")?;
        Ok((parts.status, parts.headers, body.to_bytes()))
    }
}

/// The body of any service.
fn whole<B>(body: B) -> AnyBody
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// The body of the response to a request.
pub(crate) fn receipt(plan: &Plan) -> Bytes {
    format!("{:<length$}", plan.request, length = plan.bytes).into()
}

/// The headers of the response to a request and of each replay of it.
pub(crate) fn kept_headers(plan: &Plan) -> HeaderMap {
    let link = |relation| format!("</{}>; rel={relation}", plan.request).parse().unwrap();
    // The map appends the second link.
    HeaderMap::from_iter([
        (HeaderName::from_static(RECEIPT), plan.request.into()),
        (LINK, link("next")),
        (LINK, link("self")),
    ])
}

/// Follows the plan of each request.
#[derive(Clone)]
struct Runner {
    tally: Arc<Tally>,
    kind: Kind,
}

impl Runner {
    /// Waits and takes effect by the plan, and returns it.
    async fn follow(&self, extensions: &Extensions, claim: (&Key, Fence, Instant), is_recovery: bool) -> Plan {
        let plan: Plan = *extensions.get().unwrap();
        let running = Running::begin(self, plan, claim, extensions.get().copied());
        sleep(plan.before).await;
        if plan.has_effect {
            running.take_effect(is_recovery);
        }
        sleep(plan.after).await;
        running.end(plan.ending);
        plan
    }

    async fn handle(self, request: Request<RequestBody<Body>>) -> Result<Response<Body>, &'static str> {
        let attempt: &IdempotentRequest = request.extensions().get().expect("no request runs unprotected");
        let claim = (&attempt.key, attempt.fence, attempt.ends);
        let plan = self.follow(request.extensions(), claim, attempt.is_recovery).await;
        let (status, limit) = match plan.ending {
            Ending::Answer(status) => (status, usize::MAX),
            Ending::BreakOff => (201, 0),
            Ending::Error => return Err("planned"),
            Ending::Panic => resume_unwind(Box::new("planned")),
        };
        Ok(response(&plan, status).map(|body| Limited::new(Full::new(body), limit)))
    }
}

impl Work<Request<Bytes>> for Runner {
    async fn run(&self, claim: &Claim, request: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        let is_recovery = claim.is_recovery();
        let plan = self.follow(request.extensions(), (claim.key(), claim.fence(), claim.ends()), is_recovery).await;
        match plan.ending {
            Ending::Answer(status) => Ok(encode_response(&response(&plan, status))),
            Ending::BreakOff | Ending::Error => Err(WorkError::uncertain("planned")),
            Ending::Panic => resume_unwind(Box::new("planned")),
        }
    }
}

fn response(plan: &Plan, status: u16) -> Response<Bytes> {
    let body = receipt(plan);
    let response = Response::builder().status(status).header(SET_COOKIE, "session").header(CONTENT_LENGTH, body.len());
    let mut response = response.body(body).unwrap();
    response.headers_mut().extend(kept_headers(plan));
    response
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
    fn begin(
        runner: &Runner,
        plan: Plan,
        (key, fence, ends): (&Key, Fence, Instant),
        invocation: Option<Deadline>,
    ) -> Self {
        let Runner { tally, kind } = runner.clone();
        let (key, fence, is_endpoint) = (key.stored().into_owned(), fence.0, kind.is_endpoint);
        let is_too_late = invocation.is_some_and(|invocation| ends > invocation.end);
        let faults = if is_too_late { vec!["it may run after its invocation"] } else { Vec::new() };
        let mut runs = lock(&tally.runs);
        let at = runs.len();
        runs.push(Run { plan, key, fence, is_endpoint, ended: None, is_over: false, faults });
        drop(runs);
        Self { tally, at, ends, spawns: kind.spawns }
    }

    fn take_effect(&self, is_recovery: bool) {
        let (now, at_us) = (Instant::now(), monotonic_us());
        let mut runs = lock(&self.tally.runs);
        let run = &mut runs[self.at];
        // The deadline was checked just before. A busy machine needs time in between.
        if now > self.ends + GRACE {
            run.faults.push("an effect after the deadline");
        }
        let (key, fence) = (run.key.clone(), run.fence);
        lock(&self.tally.effects).push(Effect { key, fence, is_recovery, at_us });
    }

    fn end(&self, ending: Ending) {
        lock(&self.tally.runs)[self.at].ended = Some(ending);
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
