//! The builder of the layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, Method, StatusCode};
use idempotent_sqs::{Deadline, Idempotency, Policy, Store, WorkError};
use tokio::sync::watch;

use crate::layer::{IdempotencyLayer, Shared};
use crate::principal::Principal;
use crate::report::RequestReport;

/// Whether a request needs a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// A request without a key is rejected with 400.
    Required,
    /// A request without a key runs without protection, and has no [`IdempotentRequest`](crate::IdempotentRequest): a
    /// handler in axum must take `Option<Extension<IdempotentRequest>>`, or the answer is 500.
    Optional,
    /// The request runs without protection, and its key is not read.
    Ignored,
}

/// What a 5xx other than 503 means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerErrors {
    /// The request may have taken effect: a retry runs as a recovery.
    Uncertain,
    /// The response is final: a retry gets it.
    Keep,
}

/// What to do while the store is out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutage {
    /// Answer 503. Nothing runs.
    Reject,
    /// Run the handler without protection, up to its timeout: the request may take effect more than once, and a
    /// recovery is not marked as one. The request has no [`IdempotentRequest`](crate::IdempotentRequest): a handler in
    /// axum must take `Option<Extension<IdempotentRequest>>`, or the answer is 500. An
    /// [endpoint](IdempotencyLayer::endpoint) answers 503 nevertheless.
    RunUnprotected,
}

/// A function of the head of a request.
type Hook<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;

/// The values that the builder sets.
pub(crate) struct Settings {
    pub(crate) principal: Hook<Option<Principal>>,
    pub(crate) key_rule: Hook<KeyRule>,
    pub(crate) report: Box<dyn Fn(&RequestReport) + Send + Sync>,
    pub(crate) policy: Policy,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Hook<Option<Deadline>>,
    pub(crate) wait: Duration,
    pub(crate) store_timeout: Duration,
    pub(crate) max_body_bytes: usize,
    pub(crate) mismatch_status: StatusCode,
    pub(crate) server_errors: ServerErrors,
    pub(crate) store_outage: StoreOutage,
    pub(crate) dropped_headers: Vec<HeaderName>,
    pub(crate) spawn: bool,
}

impl Settings {
    /// Checks whether a response with this status is final: a retry gets it. The error says what a retry does instead.
    pub(crate) fn check(&self, status: StatusCode) -> Result<(), WorkError> {
        let answered = || format!("the handler answered {status}");
        if [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status) {
            return Err(WorkError::unavailable(answered()));
        }
        let is_uncertain = match status.as_u16() {
            101 | 200..500 => false,
            500..600 => self.server_errors == ServerErrors::Uncertain,
            _unknown => true,
        };
        if is_uncertain { Err(WorkError::uncertain(answered())) } else { Ok(()) }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("policy", &self.policy).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Builds an [`IdempotencyLayer`]. Made by [`IdempotencyLayer::builder`].
#[derive(Debug)]
#[must_use]
pub struct IdempotencyLayerBuilder<S> {
    store: S,
    settings: Settings,
}

impl<S: Store> IdempotencyLayerBuilder<S> {
    pub(crate) fn new(store: S, principal: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static) -> Self {
        let key_rule = |parts: &Parts| {
            if [Method::POST, Method::PATCH].contains(&parts.method) { KeyRule::Required } else { KeyRule::Ignored }
        };
        let settings = Settings {
            principal: Box::new(principal),
            key_rule: Box::new(key_rule),
            report: Box::new(|_| {}),
            policy: Self::default_policy(),
            timeout: Duration::from_secs(30),
            deadline: Box::new(|_| None),
            wait: Duration::ZERO,
            store_timeout: Duration::from_secs(2),
            max_body_bytes: 1 << 20,
            mismatch_status: StatusCode::UNPROCESSABLE_ENTITY,
            server_errors: ServerErrors::Uncertain,
            store_outage: StoreOutage::Reject,
            dropped_headers: Vec::new(),
            spawn: true,
        };
        Self { store, settings }
    }

    /// The default of [`policy`](Self::policy): a retention of 24 hours, responses of up to 64 KiB in the record, 10
    /// attempts, and a failed retention of one hour.
    #[must_use]
    pub fn default_policy() -> Policy {
        let mut policy = Policy::default();
        policy.retention = Duration::from_hours(24);
        policy.result_max_bytes = 64 << 10;
        policy.max_attempts = 10;
        policy.failed_retention = Duration::from_hours(1);
        policy
    }

    /// Sets how records are kept and attempts are counted. Start with [`default_policy`](Self::default_policy). A run
    /// ends [`Policy::lease_grace`] before its lease, and at the latest after the [`timeout`](Self::timeout). So if
    /// `longest_lease` is shorter than the timeout and the grace together, a run has less time than the timeout.
    ///
    /// A response above `result_max_bytes`, with its headers, goes to `results` if that is set, up to
    /// [`MAX_RESULT_BYTES`](idempotent_sqs::idempotency::MAX_RESULT_BYTES). Else only its status and headers are kept.
    pub fn policy(self, policy: Policy) -> Self {
        self.set(|settings| settings.policy = policy)
    }

    /// Sets which requests need a key. Default: POST and PATCH need one, others ignore it. Requests of an
    /// [endpoint](IdempotencyLayer::endpoint) always need one.
    pub fn key_rule(self, rule: impl Fn(&Parts) -> KeyRule + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.key_rule = Box::new(rule))
    }

    /// Sets the time for one run, from the acquire to the recorded response. Up to a second of it is reserved for the
    /// record. The lease lasts as long, and [`Policy::lease_grace`] longer: after a crash, retries get 409 until then.
    /// The body of the request must also arrive within this time. With less than 67 ms nothing runs. Default: 30
    /// seconds.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|settings| settings.timeout = timeout)
    }

    /// Sets a function that returns when everything for a request must have ended, such as the end of its Lambda
    /// invocation. The time for a run is then the shorter of [`timeout`](Self::timeout) and what remains until the
    /// deadline: the handler is cancelled at [`Deadline::work`], its record is settled before [`Deadline::settle`], and
    /// the answer is returned before [`Deadline::end`]. Requests that run without a key have no deadline. Default:
    /// `None` for each request.
    ///
    /// ```
    /// # use idempotent_sqs::{Deadline, MemoryStore};
    /// # use idempotent_sqs_http::{IdempotencyLayer, Principal};
    /// // An outer layer puts the deadline into the extensions of the request.
    /// let layer = IdempotencyLayer::builder(MemoryStore::default(), |_| Some(Principal::GLOBAL))
    ///     .deadline(|request| request.extensions.get::<Deadline>().copied())
    ///     .build();
    /// ```
    pub fn deadline(self, deadline: impl Fn(&Parts) -> Option<Deadline> + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.deadline = Box::new(deadline))
    }

    /// Sets how long a request waits for a running one with the same key before it gets 409. Default: it does not wait.
    /// If only the inbox of an [endpoint](IdempotencyLayer::endpoint) knows the running one, it gets 409 after at most
    /// the timeout of the database.
    pub fn wait(self, wait: Duration) -> Self {
        self.set(|settings| settings.wait = wait)
    }

    /// Sets how long a request may wait for the store before its handler runs. After this time the store counts as out
    /// of reach. The time is in addition to [`wait`](Self::wait). Make it longer than the store's own timeouts, so that
    /// the store first repeats a call whose reply was lost.
    ///
    /// It does not limit the recording of a response, which ends within the [`timeout`](Self::timeout). Nor does it
    /// limit reading a response that is kept as an object or in the work's own record, which takes 5 seconds at most.
    /// Without [`spawn`](Self::spawn) it has no effect, and a request may wait until its timeout or its
    /// [`deadline`](Self::deadline). Default: 2 seconds.
    pub fn store_timeout(self, timeout: Duration) -> Self {
        self.set(|settings| settings.store_timeout = timeout)
    }

    /// Sets the largest body of a request with a key, bytes. The layer reads it into memory. Default: 1 MiB.
    pub fn max_body_bytes(self, max_bytes: usize) -> Self {
        self.set(|settings| settings.max_body_bytes = max_bytes)
    }

    /// Sets the status for a key that was used for another request. Default: 422.
    pub fn mismatch_status(self, status: StatusCode) -> Self {
        self.set(|settings| settings.mismatch_status = status)
    }

    /// Sets what a 5xx other than 503 means. Default: [`ServerErrors::Uncertain`].
    pub fn server_errors(self, server_errors: ServerErrors) -> Self {
        self.set(|settings| settings.server_errors = server_errors)
    }

    /// Sets what to do while the store is out of reach. Default: [`StoreOutage::Reject`].
    pub fn store_outage(self, store_outage: StoreOutage) -> Self {
        self.set(|settings| settings.store_outage = store_outage)
    }

    /// Drops a header from replayed responses, in addition to the ones that are always dropped.
    pub fn drop_header(self, name: HeaderName) -> Self {
        self.set(|settings| settings.dropped_headers.push(name))
    }

    /// Sets whether handlers run in tasks of their own, so that a client that disconnects does not cancel them. On
    /// Lambda set `false`: nothing runs there after the response, and no client disconnects. Default: `true`.
    ///
    /// With `false`, a request whose future is dropped ends there. If its key had been acquired, it is in conflict
    /// until the lease ends, and the next retry is a recovery.
    pub fn spawn(self, spawn: bool) -> Self {
        self.set(|settings| settings.spawn = spawn)
    }

    /// Sets a function that is called once for each answered request that has or needs a key, for metrics. It must not
    /// block. A panic of it is logged, and does not change the answer.
    pub fn report(self, report: impl Fn(&RequestReport) + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.report = Box::new(report))
    }

    /// Builds the layer.
    pub fn build(self) -> IdempotencyLayer<S> {
        let idempotency = Idempotency::new(self.store, self.settings.policy.clone());
        let running = watch::Sender::new(());
        IdempotencyLayer { shared: Arc::new(Shared { idempotency, settings: Arc::new(self.settings), running }) }
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }
}
