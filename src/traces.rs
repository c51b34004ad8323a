//! Traces: a span for each invocation and each of its messages. They are sent to an OpenTelemetry collector before the
//! invocation responds, because Lambda may freeze the process afterwards.
//!
//! Traces need the feature `otel` and `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`. Without
//! the feature this module does nothing.
//!
//! - `otlp`: creates and sends spans
//! - `pending`: collects ended spans

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

pub(crate) use spans::{flush, of_invocation, of_message, record_outcome};

/// Sets up the log by calling `log`, usually `lambda_runtime::tracing::init_default_subscriber`. If traces are enabled,
/// sets up the traces and a log in the same format instead. Call it once, at the start of `main`.
///
/// # Panics
/// If traces are enabled and a global `tracing` subscriber is already set. Without traces, `log` may panic for the same
/// reason.
pub fn init(log: impl FnOnce()) {
    spans::init(log);
}
