//! The spans that the processes send to an OpenTelemetry collector.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::collector::{Collector, Sent, attribute};
use harness::torture::PROCESSES;
use history::{Span, Traces, monotonic_us};
use opentelemetry_proto::tonic::trace::v1::{self, Status, status::StatusCode};

/// The variables of OpenTelemetry of some processes, and what they do.
struct Variant {
    /// Whether the address of the collector is in `OTEL_EXPORTER_OTLP_ENDPOINT`.
    has_address: bool,
    /// Other variables.
    others: &'static [(&'static str, &'static str)],
    /// More attributes of the resource.
    attributes: &'static str,
    are_sent: bool,
    service: &'static str,
}

const USUAL: Variant =
    Variant { has_address: true, others: &[], attributes: "", are_sent: true, service: harness::lambda::FUNCTION };

/// As docs/configuration.md and the specification say. Two seeds have all of them.
const VARIANTS: [Variant; 8] = [
    USUAL,
    Variant {
        has_address: false,
        others: &[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "/v1/traces"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", " "),
            ("OTEL_SDK_DISABLED", "false"),
            ("OTEL_TRACES_EXPORTER", "otlp"),
            ("OTEL_SERVICE_NAME", "billing"),
        ],
        service: "billing",
        ..USUAL
    },
    Variant { others: &[("OTEL_SDK_DISABLED", " TRUE")], are_sent: false, ..USUAL },
    Variant { attributes: ", service.name=shop", service: "shop", ..USUAL },
    Variant { others: &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], has_address: false, are_sent: false, ..USUAL },
    Variant {
        others: &[("OTEL_SERVICE_NAME", " ")],
        attributes: ",upstream.service.name=shop,service.name= ",
        ..USUAL
    },
    Variant { others: &[("OTEL_TRACES_EXPORTER", "none")], are_sent: false, ..USUAL },
    // The trace of Lambda is not sampled.
    Variant { others: &[("OTEL_PROPAGATORS", "tracecontext, xray-lambda")], are_sent: false, ..USUAL },
];

fn variant(seed: u64, number: usize) -> &'static Variant {
    &VARIANTS[(usize::try_from(seed).unwrap() * PROCESSES + number) % VARIANTS.len()]
}

/// A collector that does not answer some requests before the end of their invocations.
pub(super) async fn collector() -> Collector {
    Collector::with_delays(|request| Duration::from_secs(if request.is_multiple_of(8) { 3 } else { 0 })).await
}

/// The variables of a process that sends spans to the collector at this address. The resource names the process.
pub(super) fn variables(seed: u64, number: usize, address: &str) -> Vec<(&'static str, String)> {
    let Variant { has_address, others, attributes, .. } = variant(seed, number);
    let value = |value: &str| if value.starts_with('/') { format!("{address}{value}") } else { value.to_owned() };
    let mut variables: Vec<_> = others.iter().map(|(name, other)| (*name, value(other))).collect();
    if *has_address {
        variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", address.to_owned()));
    }
    variables.push(("OTEL_RESOURCE_ATTRIBUTES", format!("service.instance.id=process-{number}{attributes}")));
    variables
}

/// What this process does with its spans.
pub(super) fn traces(seed: u64, number: usize) -> Traces {
    let Variant { are_sent, service, .. } = *variant(seed, number);
    Traces { are_sent, service: service.to_owned() }
}

/// The spans of messages, as the collector received them.
pub(super) fn of_messages(collector: &Collector) -> Vec<Span> {
    let (wall_us, now_us) = (us(SystemTime::now()), monotonic_us());
    let monotonic = |unix_us: u64| (now_us + unix_us).saturating_sub(wall_us);
    let of_request = |sent: Sent| {
        let (instance, received_us) = (attribute(&sent.resource, "service.instance.id"), monotonic(us(sent.at)));
        let process = instance.and_then(|instance| instance.strip_prefix("process-")?.parse().ok()).unwrap();
        let (invocations, messages): (Vec<_>, Vec<_>) =
            sent.spans.into_iter().partition(|span| span.name == "invocation");
        let is_linked = |span: &v1::Span| trace_of_link(span).as_deref() == Some(harness::lambda::TRACE_ID);
        let invocations: Vec<_> = invocations.into_iter().filter(is_linked).map(|span| span.span_id).collect();
        let service = attribute(&sent.resource, "service.name").unwrap();
        messages.into_iter().filter_map(move |span| {
            let text = |name| attribute(&span.attributes, name);
            Some(Span {
                message_id: text("messaging.message.id")?,
                process,
                name: span.name.clone(),
                service: service.clone(),
                sender: trace_of_link(&span),
                why: span.status.as_ref().map(|status| status.message.clone()).unwrap_or_default(),
                key: text("idempotency.key"),
                outcome: text("idempotency.outcome").unwrap_or_default(),
                fence: text("idempotency.fence").and_then(|fence| fence.parse().ok()),
                attempt: text("idempotency.attempt").and_then(|attempt| attempt.parse().ok()),
                is_error: is_error(&span),
                has_invocation: invocations.contains(&span.parent_span_id),
                begun_us: monotonic(span.start_time_unix_nano / 1000),
                ended_us: monotonic(span.end_time_unix_nano / 1000),
                received_us,
            })
        })
    };
    collector.sent().into_iter().flat_map(of_request).collect()
}

/// The trace that this span is linked to, in hexadecimal digits.
fn trace_of_link(span: &v1::Span) -> Option<String> {
    let link = span.links.first()?;
    Some(format!("{:032x}", u128::from_be_bytes(link.trace_id.as_slice().try_into().unwrap())))
}

fn is_error(span: &v1::Span) -> bool {
    span.status.as_ref().map_or(StatusCode::Unset, Status::code) == StatusCode::Error
}

fn us(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros()).unwrap()
}
