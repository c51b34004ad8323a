//! Ended spans that are not sent yet.
//!
//! The span processors of the SDK send from a thread or on a timer, and neither runs while the process is frozen. This
//! one sends when an invocation ends, in the task of that invocation.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};

/// Largest number of spans in one request: the default of the SDK's own processor (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`).
const SPANS_PER_REQUEST: usize = 512;

/// Largest number of unsent spans: those of the largest batch, and as many of the work. Further spans are dropped, so
/// that an unreachable collector does not exhaust the memory.
const MAX_PENDING: usize = 20_000;

/// Ended spans, and their exporter.
pub(super) struct Pending {
    ended: Mutex<Vec<SpanData>>,
    /// One request at a time, as the exporter requires.
    exporter: tokio::sync::Mutex<SpanExporter>,
    /// Longest time to send them.
    pub(super) timeout: Duration,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl Pending {
    pub(super) fn new(exporter: SpanExporter, timeout: Duration) -> Self {
        Self { ended: Mutex::default(), exporter: tokio::sync::Mutex::new(exporter), timeout }
    }

    /// Sends all ended spans. They are not sent again if that fails.
    pub(super) async fn send(&self) -> OTelSdkResult {
        let exporter = self.exporter.lock().await;
        let mut spans = mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner)).into_iter();
        loop {
            let batch: Vec<_> = spans.by_ref().take(SPANS_PER_REQUEST).collect();
            if batch.is_empty() {
                return Ok(());
            }
            exporter.export(batch).await?;
        }
    }
}

/// A span processor that adds ended spans to [`Pending`].
#[derive(Debug)]
pub(super) struct Collect(pub(super) Arc<Pending>);

impl SpanProcessor for Collect {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        let mut ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if span.span_context.is_sampled() && ended.len() < MAX_PENDING {
            ended.push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

    use super::*;

    #[test]
    fn spans_are_dropped_while_too_many_are_unsent() {
        let exporter = SpanExporter::builder().with_http().build().unwrap();
        let pending = Arc::new(Pending::new(exporter, Duration::ZERO));
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::AlwaysOn)
            .with_span_processor(Collect(Arc::clone(&pending)))
            .build();
        let tracer = provider.tracer("work");
        for _ in 0..=MAX_PENDING {
            drop(tracer.start("step"));
        }
        assert_eq!(pending.ended.lock().unwrap().len(), MAX_PENDING);
    }
}
