//! Traces: a span for each invocation and each of its messages, sent to an OpenTelemetry collector
//! before the invocation answers, as Lambda may freeze the process then.
//!
//! With the feature `otel`, and where `OTEL_EXPORTER_OTLP_ENDPOINT` or
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` says where the collector is. Without the feature nothing here
//! does anything, or costs anything.

#[cfg(not(feature = "otel"))]
mod none;
#[cfg(feature = "otel")]
mod otlp;
#[cfg(feature = "otel")]
mod pending;

#[cfg(not(feature = "otel"))]
use none as spans;
#[cfg(feature = "otel")]
use otlp as spans;

pub(crate) use spans::{flush, judged, of_invocation, of_message};

/// Set up the log by `log`, which is `lambda_runtime::tracing::init_default_subscriber` as a rule; and
/// where traces are to be sent, these and a log like that one. To be called once, first in `main`.
pub fn init(log: impl FnOnce()) {
    spans::init(log);
}
