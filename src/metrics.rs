//! Metrics of each invocation for CloudWatch: one line of JSON in the Embedded Metric Format.
//!
//! <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>
//!
//! - `document`: the reports and timings of an invocation as metrics

mod document;

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use metrique_writer_core::format::Format;
use metrique_writer_format_emf::Emf;

use crate::idempotency::catch;
use crate::sqs::{MessageReport, Timings};

use document::{Counts, Document};

/// The only dimension. CloudWatch bills one metric for each value of a dimension.
const DIMENSION: &str = "Consumer";

/// Namespace and dimension of the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricsSettings {
    /// Namespace in CloudWatch.
    pub namespace: String,
    /// Name of the logical consumer, the value of the dimension.
    pub consumer: String,
}

impl MetricsSettings {
    /// Metrics in this namespace of CloudWatch, for this consumer.
    #[must_use]
    pub fn new(namespace: impl Into<String>, consumer: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), consumer: consumer.into() }
    }

    /// Whether CloudWatch accepts the namespace:
    /// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html#Namespace>
    pub(crate) fn has_valid_namespace(&self) -> bool {
        let name = self.namespace.as_str();
        let valid = |c: char| c.is_ascii_alphanumeric() || ".-_/#: ".contains(c);
        (1..=255).contains(&name.len())
            && name.chars().all(valid)
            && !name.starts_with("AWS/")
            && !name.starts_with(':')
    }

    /// Whether CloudWatch accepts the consumer as the value of a dimension:
    /// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html>
    pub(crate) fn has_valid_consumer(&self) -> bool {
        let name = self.consumer.as_str();
        let valid = |c: char| c.is_ascii_graphic() || c == ' ';
        (1..=1024).contains(&name.len()) && name.chars().all(valid) && !name.starts_with(':')
    }
}

/// Prints a metrics document for each invocation.
pub struct Metrics {
    consumer: String,
    format: Mutex<Emf>,
    findings: Box<Findings>,
}

/// Returns the number of findings of the server check; `None` until it is done.
type Findings = dyn Fn() -> Option<u64> + Send + Sync;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}

impl Metrics {
    /// Metrics with these settings. `findings` returns the number of findings of the server check, as
    /// [`RedisStore::findings`](crate::RedisStore::findings) does.
    pub fn new(settings: MetricsSettings, findings: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        let MetricsSettings { namespace, consumer } = settings;
        let format = Emf::builder(namespace, vec![vec![DIMENSION.to_owned()]]).build();
        Self { consumer, format: Mutex::new(format), findings: Box::new(findings) }
    }

    /// Prints the metrics document of an invocation to standard output.
    pub(crate) fn print(&self, request_id: &str, reports: &[MessageReport], timings: &Timings) {
        let counts = Counts::of(reports);
        let findings = catch(|| (self.findings)()).flatten();
        let document = Document { consumer: &self.consumer, request_id, findings, counts, timings };
        let mut line = Vec::new();
        let formatted = self.format.lock().unwrap_or_else(PoisonError::into_inner).format(&document, &mut line);
        // A single write, because several invocations may print concurrently.
        if let Err(error) = formatted.map_err(io::Error::other).and_then(|()| io::stdout().lock().write_all(&line)) {
            tracing::warn!(%error, "the metrics of this invocation could not be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_findings_does_not_end_the_invocation() {
        let metrics = Metrics::new(MetricsSettings::new("Payments", "payments"), || panic!("no findings"));
        metrics.print("request", &[], &Timings::default());
    }
}
