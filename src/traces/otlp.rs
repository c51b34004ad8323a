//! Sends spans to an OpenTelemetry collector over OTLP.

use std::env;
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt, TracerProvider};
use opentelemetry_aws::trace::XrayIdGenerator;
use opentelemetry_aws::trace::xray_propagator::span_context_from_str;
use opentelemetry_otlp::{
    ExporterBuildError, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, SpanExporter,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter as _};
use tokio::time::{Instant, timeout_at};
use tracing::field::Empty;
use tracing::level_filters::STATIC_MAX_LEVEL;
use tracing::{Level, Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{EnvFilter, LevelFilter, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::pending::{Collect, Pending};
use crate::idempotency::{Fence, Key};

/// Ended spans that are not sent yet, of all invocations of this process.
static PENDING: OnceLock<Arc<Pending>> = OnceLock::new();

pub(super) fn init(log: impl FnOnce()) {
    if !is_enabled() {
        return log();
    }
    match tracer() {
        Ok(tracer) => {
            let spans = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
            tracing_subscriber::registry().with(log_layer()).with(spans.with_filter(filter_fn(is_sent))).init();
            if STATIC_MAX_LEVEL < LevelFilter::TRACE {
                tracing::warn!(
                    "no spans of invocations and messages are sent: a crate enables a max_level feature of tracing"
                );
            }
        }
        // Traces are optional: messages are processed without them.
        Err(error) => {
            log();
            tracing::warn!(error, "no traces are sent: check the OTEL_ variables");
        }
    }
}

/// Whether the environment enables traces:
/// <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>
fn is_enabled() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set.trim().eq_ignore_ascii_case(value));
    // As the exporter reads them: it refuses an address with white space, or that is not Unicode, and the log says so.
    let endpoints = [OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT];
    let has_endpoint = endpoints.into_iter().any(|name| env::var_os(name).is_some_and(|endpoint| !endpoint.is_empty()));
    has_endpoint && !is("OTEL_SDK_DISABLED", "true") && !is("OTEL_TRACES_EXPORTER", "none")
}

fn tracer() -> Result<SdkTracer, String> {
    let mut exporter = SpanExporter::builder().with_http().build().map_err(invalid_setting)?;
    let resource = resource();
    exporter.set_resource(&resource);
    let pending = Arc::clone(PENDING.get_or_init(|| Arc::new(Pending::new(exporter, export_timeout()))));
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Collect(pending))
        .with_id_generator(XrayIdGenerator::default())
        .with_resource(resource)
        .build();
    Ok(provider.tracer(env!("CARGO_PKG_NAME")))
}

/// What is wrong, without the value of a variable: an address may contain a password.
fn invalid_setting(error: ExporterBuildError) -> String {
    match error {
        // Its text begins with the name of the variable.
        ExporterBuildError::InvalidConfiguration(text) => {
            format!("invalid {}", text.split(':').next().unwrap_or_default())
        }
        error @ ExporterBuildError::InternalFailure(_) => error.to_string(),
    }
}

/// The resource from the `OTEL_` variables. Its service name is the function's name unless they set another. An empty
/// value counts as not set: <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>
fn resource() -> Resource {
    let is_named = env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.trim().is_empty())
        || env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|attributes| has_service_name(&attributes));
    match env::var("AWS_LAMBDA_FUNCTION_NAME") {
        Ok(function) if !is_named => Resource::builder().with_service_name(function).build(),
        Ok(_) | Err(_) => Resource::builder().build(),
    }
}

/// Whether these attributes, as in `service.name=payments,service.version=7`, name the service.
fn has_service_name(attributes: &str) -> bool {
    let mut attributes = attributes.split(',').filter_map(|attribute| attribute.split_once('='));
    attributes.any(|(name, value)| name.trim() == "service.name" && !value.trim().is_empty())
}

/// The log, in the same format as that of `lambda_runtime`.
fn log_layer<S>() -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let level = env::var("AWS_LAMBDA_LOG_LEVEL").or_else(|_| env::var("RUST_LOG")).ok();
    let level = level.and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::INFO);
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let lines = tracing_subscriber::fmt::layer().with_target(false).without_time();
    if env::var("AWS_LAMBDA_LOG_FORMAT").is_ok_and(|format| format.eq_ignore_ascii_case("json")) {
        lines.json().with_filter(filter).boxed()
    } else {
        lines.with_filter(filter).boxed()
    }
}

/// Whether a span is sent: spans of this crate, and spans of the work at level INFO and above. Events appear only in
/// the log. The runtime's own span of an invocation ends after the response, too late to be sent.
fn is_sent(metadata: &Metadata<'_>) -> bool {
    let ours = metadata.target().starts_with(env!("CARGO_CRATE_NAME"));
    metadata.is_span() && (ours || *metadata.level() <= Level::INFO) && !metadata.target().starts_with("lambda_runtime")
}

/// The span of an invocation: a child of the trace in Lambda's header, or linked to it.
pub(crate) fn of_invocation(request_id: &str, trace_header: Option<&str>) -> Span {
    // At level TRACE, so that the span's fields do not appear in log lines.
    let span = tracing::trace_span!(
        "invocation",
        otel.kind = "consumer",
        faas.trigger = "pubsub",
        faas.invocation_id = request_id
    );
    if !span.is_disabled()
        && let Some(lambda) = context(trace_header)
    {
        if follows_xray() {
            // Fails only if spans are disabled or the span has already started. Neither is the case.
            let _ = span.set_parent(Context::new().with_remote_span_context(lambda));
        } else {
            span.add_link(lambda);
        }
    }
    span
}

/// The span of a message, linked to the trace of its sender if the header names the parent in it.
pub(crate) fn of_message(message_id: &str, queue_arn: Option<&str>, trace_header: Option<&str>) -> Span {
    let queue = queue_arn.and_then(|arn| arn.rsplit(':').next());
    let span = tracing::trace_span!(
        "message",
        otel.kind = "consumer",
        otel.name = queue.map(|queue| format!("process {queue}")),
        otel.status_code = Empty,
        otel.status_description = Empty,
        messaging.system = "aws_sqs",
        messaging.operation.type = "process",
        messaging.destination.name = queue,
        messaging.message.id = message_id,
        idempotency.key = Empty,
        idempotency.outcome = Empty,
        idempotency.fence = Empty,
        idempotency.attempt = Empty,
    );
    if !span.is_disabled()
        && let Some(sent) = context(trace_header)
    {
        span.add_link(sent);
    }
    span
}

/// Adds the outcome to the span of its message. `failure` is the reason why a message is delivered again.
pub(crate) fn record_outcome(
    span: &Span,
    outcome: &str,
    key: Option<&Key>,
    fence: Option<Fence>,
    attempt: Option<u8>,
    failure: Option<&str>,
) {
    span.record("idempotency.key", key.map(Key::as_str));
    span.record("idempotency.outcome", outcome);
    span.record("idempotency.fence", fence.map(|fence| fence.0));
    span.record("idempotency.attempt", attempt);
    if let Some(failure) = failure {
        span.record("otel.status_code", "error");
        span.record("otel.status_description", failure);
    }
}

/// Sends the ended spans. Stops at `until`, or after the timeout of the exporter, which includes the wait for the
/// request of another invocation.
pub(crate) async fn flush(until: Instant) {
    let Some(pending) = PENDING.get() else { return };
    let until = Instant::now().checked_add(pending.timeout).map_or(until, |limit| until.min(limit));
    let sent = timeout_at(until, pending.send()).await;
    let error: Box<dyn Error> = match sent {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.into(),
        Err(elapsed) => elapsed.into(),
    };
    tracing::warn!(%error, "spans were not sent: check that the collector can be reached");
}

/// The timeout of the exporter, which reads it from the same variables.
fn export_timeout() -> Duration {
    let names = [OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT];
    let set = names.into_iter().find_map(|name| env::var(name).ok()?.parse().ok());
    set.map_or(OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, Duration::from_millis)
}

/// The span context of a header such as `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1`:
/// <https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader>
fn context(header: Option<&str>) -> Option<SpanContext> {
    span_context_from_str(header?).filter(SpanContext::is_valid)
}

/// Whether the span of an invocation is a child of the trace in Lambda's header. It is then sent only if X-Ray samples
/// that trace, and so never if X-Ray tracing is not active for the function.
fn follows_xray() -> bool {
    static FOLLOWS: OnceLock<bool> = OnceLock::new();
    *FOLLOWS.get_or_init(|| {
        let propagators = env::var("OTEL_PROPAGATORS").unwrap_or_default();
        propagators.split(',').any(|name| ["xray", "xray-lambda"].contains(&name.trim()))
    })
}
