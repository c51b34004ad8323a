//! What the layers log of their requests.

use harness::lines::{self, Line};
use tracing::{Span, info_span};

/// The field with the number of a request, which no layer logs.
pub(crate) const NUMBER: &str = "number";

/// Records the lines of all layers of this process.
pub fn record() {
    lines::record(&[module_path!(), "idempotent_sqs_http::report"]);
}

/// The lines since the last call. Others say that the function that gets reports panicked.
pub(crate) fn take() -> Vec<Line> {
    lines::take().into_iter().filter(|line| line.get("message") == Some("request answered")).collect()
}

/// A span for the request of this number, for [`request`].
pub(crate) fn span(number: usize) -> Span {
    info_span!("request", number)
}

/// The number of the request that this task answers.
pub(crate) fn request() -> Option<usize> {
    lines::in_current_span(NUMBER)?.parse().ok()
}
