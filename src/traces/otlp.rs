//! Spans by OpenTelemetry, over OTLP.

use std::env;
use std::error::Error;
use std::sync::{Arc, OnceLock};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt, TracerProvider};
use opentelemetry_aws::trace::XrayIdGenerator;
use opentelemetry_aws::trace::xray_propagator::span_context_from_str;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter as _};
use tokio::time::{Instant, timeout_at};
use tracing::field::Empty;
use tracing::{Level, Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{EnvFilter, LevelFilter, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::pending::{Collect, Pending};
use crate::disposition::{Disposition, Verdict};
use crate::message::Message;
use crate::record::Key;

/// What has ended in this process and is not sent yet. The log is one for all invocations, and so
/// are its spans.
static PENDING: OnceLock<Arc<Pending>> = OnceLock::new();

pub(super) fn init(log: impl FnOnce()) {
    if !is_wanted() {
        return log();
    }
    match tracer() {
        Ok(tracer) => {
            let spans = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
            tracing_subscriber::registry().with(lines()).with(spans.with_filter(filter_fn(is_sent))).init();
        }
        // Whoever looks at traces misses them; whoever sends messages shall not.
        Err(error) => {
            log();
            tracing::warn!(error, "no traces are sent: do the OTEL_ variables say what they should?");
        }
    }
}

/// <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>
fn is_wanted() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set.trim().eq_ignore_ascii_case(value));
    let to = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
    let somewhere = to.into_iter().any(|name| env::var(name).is_ok_and(|endpoint| !endpoint.trim().is_empty()));
    somewhere && !is("OTEL_SDK_DISABLED", "true") && !is("OTEL_TRACES_EXPORTER", "none")
}

fn tracer() -> Result<SdkTracer, String> {
    let mut exporter = SpanExporter::builder().with_http().build().map_err(|error| error.to_string())?;
    let resource = resource();
    exporter.set_resource(&resource);
    let pending = Arc::clone(PENDING.get_or_init(|| Arc::new(Pending::new(exporter))));
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Collect(pending))
        .with_id_generator(XrayIdGenerator::default())
        .with_resource(resource)
        .build();
    Ok(provider.tracer(env!("CARGO_PKG_NAME")))
}

/// What the environment says, and the function's name where it says none.
fn resource() -> Resource {
    let named = env::var("OTEL_SERVICE_NAME").is_ok()
        || env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|attributes| attributes.contains("service.name="));
    match env::var("AWS_LAMBDA_FUNCTION_NAME") {
        Ok(function) if !named => Resource::builder().with_service_name(function).build(),
        Ok(_) | Err(_) => Resource::builder().build(),
    }
}

/// The log, like `lambda_runtime`'s own.
fn lines<S>() -> Box<dyn Layer<S> + Send + Sync>
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

/// This crate's spans, and those of the work that are of interest to everybody. What is said in them
/// is in the log; and the runtime's span of an invocation ends only after the answer.
fn is_sent(what: &Metadata<'_>) -> bool {
    let ours = what.target().starts_with(env!("CARGO_CRATE_NAME"));
    what.is_span() && (ours || *what.level() <= Level::INFO) && !what.target().starts_with("lambda_runtime")
}

/// An invocation's span, in the trace that Lambda names, or linked with it.
pub(crate) fn of_invocation(request_id: &str, trace_header: Option<&str>) -> Span {
    // Below the level of the log, whose lines stay as they are.
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
            // It fails where nothing is sent, or where the span has begun, which this one has not.
            let _ = span.set_parent(Context::new().with_remote_span_context(lambda));
        } else {
            span.add_link(lambda);
        }
    }
    span
}

/// A message's span, linked with the trace that it was sent in.
pub(crate) fn of_message(message: &Message) -> Span {
    let queue = message.queue_arn.as_deref().and_then(|arn| arn.rsplit(':').next());
    let span = tracing::trace_span!(
        "message",
        otel.kind = "consumer",
        otel.name = queue.map(|queue| format!("process {queue}")),
        otel.status_code = Empty,
        otel.status_description = Empty,
        messaging.system = "aws_sqs",
        messaging.operation.type = "process",
        messaging.destination.name = queue,
        messaging.message.id = message.id,
        idempotency.key = Empty,
        idempotency.outcome = Empty,
        idempotency.fence = Empty,
        idempotency.attempt = Empty,
    );
    if !span.is_disabled()
        && let Some(sent) = context(message.trace_header.as_deref())
    {
        span.add_link(sent);
    }
    span
}

/// Tell the message's span what became of it.
pub(crate) fn judged(span: &Span, verdict: &Verdict) {
    span.record("idempotency.key", verdict.key.as_ref().map(Key::as_str));
    span.record("idempotency.outcome", verdict.outcome);
    span.record("idempotency.fence", verdict.fence.map(|fence| fence.0));
    span.record("idempotency.attempt", verdict.attempt);
    match verdict.disposition {
        Disposition::Done => {}
        Disposition::Redeliver { after: _ } => {
            span.record("otel.status_code", "error");
            span.record("otel.status_description", &*verdict.reason);
        }
    }
}

/// Send what has ended, for no longer than until then.
pub(crate) async fn flush(until: Instant) {
    let Some(pending) = PENDING.get() else { return };
    let sent = timeout_at(until, pending.send()).await;
    let error: Box<dyn Error> = match sent {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.into(),
        Err(elapsed) => elapsed.into(),
    };
    tracing::warn!(%error, "spans are lost: is the collector there?");
}

/// Of a header such as `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1`:
/// <https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader>
fn context(header: Option<&str>) -> Option<SpanContext> {
    span_context_from_str(header?).filter(SpanContext::is_valid)
}

/// Whether an invocation belongs to the trace that Lambda names, and is left out where X-Ray leaves it
/// out, which is always where X-Ray is not active.
fn follows_xray() -> bool {
    static FOLLOWS: OnceLock<bool> = OnceLock::new();
    *FOLLOWS.get_or_init(|| {
        let propagators = env::var("OTEL_PROPAGATORS").unwrap_or_default();
        propagators.split(',').any(|name| ["xray", "xray-lambda"].contains(&name.trim()))
    })
}
