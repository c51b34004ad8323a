//! What is logged and counted for each request that has or needs a key.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use http::request::Parts;
use http::{Method, StatusCode};
use idempotent_sqs::idempotency::Fence;
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use crate::answer::Summary;
use crate::problem::Problem;
use crate::settings::Settings;

/// One request that the layer answered, for metrics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestReport {
    /// What happened.
    pub outcome: RequestOutcome,
    /// Status of the response. `None` if the inner service returned an error.
    pub status: Option<StatusCode>,
    /// Method of the request.
    pub method: Method,
    /// The key of the request, without the quotes and escapes of the header, if it is valid.
    pub client_key: Option<String>,
    /// The fence of the attempt, if the request had one, or of the earlier attempt that completed the request. An
    /// attempt whose handler did not run has one too.
    pub fence: Option<Fence>,
    /// Number of attempts, if known.
    pub attempts: Option<u8>,
    /// Whether the handler ran as a recovery.
    pub is_recovery: bool,
    /// From the request's head to the response's head, including the request's body.
    pub duration: Duration,
}

/// What happened to a request that has or needs a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// The handler ran, and its response is recorded.
    Completed,
    /// The handler ran, and how it ended could not be recorded, or another owner holds the record.
    NotRecorded,
    /// The handler answered with 429 or 503, or the work had no effect, and the key was released: a retry runs.
    Released,
    /// The handler failed, and the request may have taken effect.
    Uncertain,
    /// The response of an earlier request was replayed.
    Replayed,
    /// Another request with this key is running.
    InFlight,
    /// The key was used for another request.
    Mismatch,
    /// The request was completed, and its response was not kept.
    ResponseNotKept,
    /// The work had no effect, and no retry runs: it failed permanently, or in its last attempt.
    FailedPermanently,
    /// Earlier requests with this key failed for good. This one did not run.
    FailedBefore,
    /// There was no time left to start the handler.
    NotStarted,
    /// The store was out of reach, or the value of the key there is not a record. The handler did not run.
    StoreUnavailable,
    /// The store was out of reach, and the handler ran without it.
    Unprotected,
    /// The request was rejected: its key, which may be missing, its principal or its body.
    Rejected,
}

impl RequestOutcome {
    /// The outcome in logs: `IN_FLIGHT`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// The name of its metric: `InFlight`.
    #[must_use]
    pub fn metric(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Completed => ("COMPLETED", "Completed"),
            Self::NotRecorded => ("NOT_RECORDED", "NotRecorded"),
            Self::Released => ("RELEASED", "Released"),
            Self::Uncertain => ("UNCERTAIN", "Uncertain"),
            Self::Replayed => ("REPLAYED", "Replayed"),
            Self::InFlight => ("IN_FLIGHT", "InFlight"),
            Self::Mismatch => ("MISMATCH", "Mismatch"),
            Self::ResponseNotKept => ("RESPONSE_NOT_KEPT", "ResponseNotKept"),
            Self::FailedPermanently => ("FAILED_PERMANENTLY", "FailedPermanently"),
            Self::FailedBefore => ("FAILED_BEFORE", "FailedBefore"),
            Self::NotStarted => ("NOT_STARTED", "NotStarted"),
            Self::StoreUnavailable => ("STORE_UNAVAILABLE", "StoreUnavailable"),
            Self::Unprotected => ("UNPROTECTED", "Unprotected"),
            Self::Rejected => ("REJECTED", "Rejected"),
        }
    }
}

impl From<Problem> for RequestOutcome {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::KeyMissing
            | Problem::KeyMalformed
            | Problem::PrincipalMissing
            | Problem::BodyTooLarge
            | Problem::BodyTimeout
            | Problem::BodyUnreadable => Self::Rejected,
            Problem::InFlight { .. } => Self::InFlight,
            Problem::Mismatch { .. } => Self::Mismatch,
            Problem::ResponseNotKept => Self::ResponseNotKept,
            Problem::Failed | Problem::Deadline => Self::Uncertain,
            Problem::FailedBefore => Self::FailedBefore,
            Problem::FailedPermanently { .. } => Self::FailedPermanently,
            Problem::NotStarted { .. } => Self::NotStarted,
            Problem::Unavailable { is_released: true, .. } => Self::Released,
            Problem::Unavailable { is_released: false, .. } => Self::NotRecorded,
            Problem::StoreUnavailable => Self::StoreUnavailable,
        }
    }
}

/// Logs and reports one request.
#[derive(Debug)]
pub(crate) struct Reporter {
    started: Instant,
    method: Method,
    client_key: Option<String>,
    /// Neither it nor the log has the query or a body.
    span: Span,
}

impl Reporter {
    pub(crate) fn new(parts: &Parts, client_key: Option<String>) -> Self {
        let method = parts.method.clone();
        // The names of OpenTelemetry's conventions, and those of the spans of messages.
        let span = tracing::info_span!(
            "idempotent_request",
            otel.status_code = Empty,
            http.request.method = %method,
            url.path = parts.uri.path(),
            idempotency.key = client_key,
            idempotency.record_key = Empty,
            idempotency.outcome = Empty,
            idempotency.fence = Empty,
            idempotency.attempt = Empty,
        );
        Self { started: Instant::now(), method, client_key, span }
    }

    /// The span of the request.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(crate) fn report(&self, settings: &Settings, status: Option<StatusCode>, summary: &Summary) {
        let Summary { outcome, attempts, fence, is_recovery } = *summary;
        self.span.record("idempotency.outcome", outcome.as_str());
        self.span.record("idempotency.fence", fence.map(|fence| fence.0));
        self.span.record("idempotency.attempt", attempts);
        if status.is_none_or(|status| status.is_server_error()) {
            self.span.record("otel.status_code", "error");
        }
        let (method, client_key, duration) = (self.method.clone(), self.client_key.clone(), self.started.elapsed());
        let (code, ms) = (status.map(|status| status.as_u16()), duration.as_millis());
        tracing::info!(parent: &self.span, status = code, is_recovery, ms, "request answered");
        let report = RequestReport { outcome, status, method, client_key, fence, attempts, is_recovery, duration };
        if catch_unwind(AssertUnwindSafe(|| (settings.report)(&report))).is_err() {
            tracing::error!(parent: &self.span, "the function that gets reports panicked");
        }
    }
}
