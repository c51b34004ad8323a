//! No traces: the feature `otel` is off.

use tokio::time::Instant;
use tracing::Span;

use crate::sqs::{Message, MessageReport};

pub(super) fn init(log: impl FnOnce()) {
    log();
}

pub(crate) fn of_invocation(_request_id: &str, _trace_header: Option<&str>) -> Span {
    Span::none()
}

pub(crate) fn of_message(_message: &Message) -> Span {
    Span::none()
}

pub(crate) fn record_report(_span: &Span, _report: &MessageReport) {}

pub(crate) async fn flush(_until: Instant) {}
