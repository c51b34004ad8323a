//! Services with the layer, whose handler follows the plan of its request and counts its effects.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use harness::torture::tally::lock;
use harness::with;
use history::{Effect, RecordedStore, monotonic_us};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, SET_COOKIE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use idempotent_sqs::{Deadline, RedisSettings, RedisStore};
use idempotent_sqs_http::{IdempotencyLayer, IdempotencyLayerBuilder, IdempotentRequest, Principal, RequestBody};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

/// A body that breaks off if it is longer than its limit.
pub(crate) type Body = Limited<Full<Bytes>>;

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
    tally: Arc<Tally>,
    /// Whether its handlers run in tasks of their own.
    spawns: bool,
}

/// How a service differs from others.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
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
        Self { layer, tally: Arc::clone(tally), spawns: kind.spawns }
    }

    /// The answer to a request: its head and the whole body.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<(StatusCode, HeaderMap, Bytes), &'static str> {
        let (tally, spawns) = (Arc::clone(&self.tally), self.spawns);
        let service = self.layer.layer(service_fn(move |request| handle(Arc::clone(&tally), spawns, request)));
        let (parts, body) = service.oneshot(request).await?.into_parts();
        let body = body.collect().await.map_err(|_| "the body broke off")?;
        Ok((parts.status, parts.headers, body.to_bytes()))
    }
}

/// The body of the response to a request.
pub(crate) fn receipt(plan: &Plan) -> Bytes {
    format!("{:<length$}", plan.request, length = plan.bytes).into()
}

async fn handle(
    tally: Arc<Tally>,
    spawns: bool,
    request: Request<RequestBody<Body>>,
) -> Result<Response<Body>, &'static str> {
    let plan: Plan = *request.extensions().get().unwrap();
    let attempt: &IdempotentRequest = request.extensions().get().expect("no request runs unprotected");
    let invocation = request.extensions().get::<Deadline>().copied();
    let running = Running::begin(tally, plan, attempt, invocation, spawns);
    sleep(plan.before).await;
    if plan.has_effect {
        running.take_effect(attempt.is_recovery);
    }
    sleep(plan.after).await;
    running.end(plan.ending);
    let (body, mut limit) = (receipt(&plan), usize::MAX);
    let status = match plan.ending {
        Ending::Answer(status) => StatusCode::from_u16(status).unwrap(),
        Ending::BreakOff => {
            limit = 0;
            StatusCode::CREATED
        }
        Ending::Error => return Err("planned"),
        Ending::Panic => std::panic::resume_unwind(Box::new("planned")),
    };
    let response = Response::builder().status(status).header(RECEIPT, plan.request);
    let response = response.header(SET_COOKIE, "session").header(CONTENT_LENGTH, body.len());
    Ok(response.body(Limited::new(Full::new(body), limit)).unwrap())
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
        tally: Arc<Tally>,
        plan: Plan,
        attempt: &IdempotentRequest,
        invocation: Option<Deadline>,
        spawns: bool,
    ) -> Self {
        let (key, fence, ends) = (attempt.key.stored().into_owned(), attempt.fence.0, attempt.ends);
        let is_too_late = invocation.is_some_and(|invocation| ends > invocation.end);
        let faults = if is_too_late { vec!["it may run after its invocation"] } else { Vec::new() };
        let mut runs = lock(&tally.runs);
        let at = runs.len();
        runs.push(Run { plan, key, fence, ended: None, is_over: false, faults });
        drop(runs);
        Self { tally, at, ends, spawns }
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
