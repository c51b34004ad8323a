//! Metrics of each request for CloudWatch: one line of JSON in the Embedded Metric Format.
//!
//! <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrique_writer_core::format::Format;
use metrique_writer_core::unit::NegativeScale;
use metrique_writer_core::{Entry, EntryWriter, MetricFlags, Observation, Unit, Value, ValueWriter};
use metrique_writer_format_emf::Emf;

use crate::report::RequestReport;

/// The only dimension, as in the metrics of messages.
const DIMENSION: &str = "Consumer";

/// Prints a metrics document for each request, for [`report`](crate::IdempotencyLayerBuilder::report).
///
/// | metric | unit | |
/// |---|---|---|
/// | [`RequestOutcome::metric`](crate::RequestOutcome::metric) of the request | Count | 1 |
/// | `Attempts` | Count | the number of attempts, if known |
/// | `Recoveries` | Count | 1 if the handler ran as a recovery |
/// | `RequestLatency` | Milliseconds | [`RequestReport::duration`] |
///
/// The only dimension is `Consumer`. On Lambda, CloudWatch reads the metrics from the log. Elsewhere, its agent has to
/// collect the output of the process.
///
/// ```
/// use idempotent_sqs::MemoryStore;
/// use idempotent_sqs_http::{EmfMetrics, IdempotencyLayer, Principal};
///
/// let metrics = EmfMetrics::new("Payments", "payments-http");
/// let layer = IdempotencyLayer::builder(MemoryStore::default(), |_| Some(Principal::GLOBAL))
///     .report(move |report| metrics.print(report))
///     .build();
/// ```
pub struct EmfMetrics {
    consumer: String,
    format: Mutex<Emf>,
}

impl fmt::Debug for EmfMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmfMetrics").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}

impl EmfMetrics {
    /// Metrics in this [namespace] of CloudWatch. `consumer` is the value of the dimension.
    ///
    /// [namespace]: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html#Namespace
    pub fn new(namespace: impl Into<String>, consumer: impl Into<String>) -> Self {
        let format = Emf::builder(namespace.into(), vec![vec![DIMENSION.to_owned()]]).build();
        Self { consumer: consumer.into(), format: Mutex::new(format) }
    }

    /// Prints the metrics document of a request to standard output.
    pub fn print(&self, report: &RequestReport) {
        if let Err(error) = self.write(report, &mut io::stdout().lock()) {
            tracing::warn!(%error, "the metrics of this request could not be written");
        }
    }

    fn write(&self, report: &RequestReport, output: &mut impl Write) -> io::Result<()> {
        let document = Document { consumer: &self.consumer, report };
        let mut line = Vec::new();
        let formatted = self.format.lock().unwrap_or_else(PoisonError::into_inner).format(&document, &mut line);
        formatted.map_err(io::Error::other)?;
        // A single write, because several requests may print concurrently.
        output.write_all(&line)
    }
}

struct Document<'a> {
    consumer: &'a str,
    report: &'a RequestReport,
}

impl Entry for Document<'_> {
    fn write<'a>(&'a self, writer: &mut impl EntryWriter<'a>) {
        let RequestReport { outcome, attempts, is_recovery, duration, .. } = self.report;
        writer.value(DIMENSION, self.consumer);
        writer.value(outcome.metric(), &Count(1));
        writer.value("Attempts", &attempts.map(|attempts| Count(attempts.into())));
        if *is_recovery {
            writer.value("Recoveries", &Count(1));
        }
        writer.value("RequestLatency", &Milliseconds(*duration));
    }
}

struct Count(u64);

impl Value for Count {
    fn write(&self, writer: impl ValueWriter) {
        writer.metric([Observation::Unsigned(self.0)], Unit::Count, [], MetricFlags::empty());
    }
}

struct Milliseconds(Duration);

impl Value for Milliseconds {
    fn write(&self, writer: impl ValueWriter) {
        let ms = (self.0.as_secs_f64() * 1e6).round() / 1e3;
        writer.metric([Observation::Floating(ms)], Unit::Second(NegativeScale::Milli), [], MetricFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};
    use serde_json::{Value, json};

    use super::*;
    use crate::report::RequestOutcome;

    #[test]
    fn a_document_has_the_outcome_the_attempts_and_the_latency() {
        let metrics = EmfMetrics::new("Payments", "payments-http");
        let report = RequestReport {
            outcome: RequestOutcome::Completed,
            status: Some(StatusCode::CREATED),
            method: Method::POST,
            client_key: Some("secret".to_owned()),
            fence: None,
            attempts: Some(2),
            is_recovery: true,
            duration: Duration::from_micros(12_345),
        };
        let mut line = Vec::new();
        metrics.write(&report, &mut line).unwrap();
        assert!(line.ends_with(b"\n"));
        let mut document: Value = serde_json::from_slice(&line).unwrap();
        let metadata = document["_aws"].take();
        let expected = json!({ "_aws": null, "Consumer": "payments-http", "Completed": 1, "Attempts": 2, "Recoveries": 1,
            "RequestLatency": 12.345 });
        assert_eq!(document, expected);
        let directive = &metadata["CloudWatchMetrics"][0];
        assert_eq!((&directive["Namespace"], &directive["Dimensions"]), (&json!("Payments"), &json!([["Consumer"]])));
        let latency = json!({ "Name": "RequestLatency", "Unit": "Milliseconds" });
        assert!(directive["Metrics"].as_array().unwrap().contains(&latency), "{directive}");
    }
}
