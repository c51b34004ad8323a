//! The spans that the processes send to an OpenTelemetry collector.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::collector::{Collector, Sent, attribute};
use history::{Span, monotonic_us};
use opentelemetry_proto::tonic::trace::v1::{self, Status, status::StatusCode};

/// The spans of messages, as the collector received them.
pub(super) fn of_messages(collector: &Collector) -> Vec<Span> {
    let (wall_us, now_us) = (us(SystemTime::now()), monotonic_us());
    let monotonic = |unix_us: u64| (now_us + unix_us).saturating_sub(wall_us);
    let of_request = |sent: Sent| {
        let (instance, received_us) = (attribute(&sent.resource, "service.instance.id"), monotonic(us(sent.at)));
        let process = instance.and_then(|instance| instance.strip_prefix("process-")?.parse().ok()).unwrap();
        let (invocations, messages): (Vec<_>, Vec<_>) =
            sent.spans.into_iter().partition(|span| span.name == "invocation");
        let invocations: Vec<_> = invocations.into_iter().map(|span| span.span_id).collect();
        messages.into_iter().filter_map(move |span| {
            let text = |name| attribute(&span.attributes, name);
            Some(Span {
                message_id: text("messaging.message.id")?,
                process,
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

fn is_error(span: &v1::Span) -> bool {
    span.status.as_ref().map_or(StatusCode::Unset, Status::code) == StatusCode::Error
}

fn us(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros()).unwrap()
}
