//! What an invocation came to, for CloudWatch: one document a line, in the Embedded Metric Format.
//!
//! <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>
//!
//! - `document`: the verdicts and the timings as metrics

mod document;

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use metrique_writer_core::format::Format;
use metrique_writer_format_emf::Emf;

use crate::disposition::Verdict;
use crate::store::StoreError;
use crate::timings::Timings;

use document::{Counts, Document};

/// The one dimension. Whatever has more values, a key or a queue, would make a metric of each.
const DIMENSION: &str = "Consumer";

/// Whose metrics they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// CloudWatch's namespace.
    pub namespace: String,
    /// The logical consumer: the dimension's value.
    pub consumer: String,
}

impl MetricsSettings {
    /// Whether CloudWatch takes the namespace:
    /// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html#Namespace>
    pub(crate) fn is_fine_namespace(&self) -> bool {
        let name = self.namespace.as_str();
        let fine = |c: char| c.is_ascii_alphanumeric() || ".-_/#: ".contains(c);
        (1..=255).contains(&name.len()) && name.chars().all(fine) && !name.starts_with("AWS/") && !name.starts_with(':')
    }

    /// Whether CloudWatch takes the consumer as a dimension's value:
    /// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html>
    pub(crate) fn is_fine_consumer(&self) -> bool {
        let name = self.consumer.as_str();
        let fine = |c: char| c.is_ascii_graphic() || c == ' ';
        (1..=1024).contains(&name.len()) && name.chars().all(fine) && !name.starts_with(':')
    }
}

/// Prints a document for each invocation.
pub struct Metrics {
    consumer: String,
    format: Mutex<Emf>,
    findings: Box<Findings>,
}

/// How many findings a look at the store had; `None` where no look was had yet.
type Findings = dyn Fn() -> Option<u64> + Send + Sync;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}

impl Metrics {
    /// Metrics of these settings. `findings` says how many findings a look at the store had, as
    /// [`RedisStore::findings`](crate::stores::RedisStore::findings) does; `None` before there was one.
    pub fn new(settings: MetricsSettings, findings: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        let MetricsSettings { namespace, consumer } = settings;
        let format = Emf::builder(namespace, vec![vec![DIMENSION.to_owned()]]).build();
        Self { consumer, format: Mutex::new(format), findings: Box::new(findings) }
    }

    /// Print the document of an invocation of so many messages.
    pub(crate) fn print(
        &self,
        request_id: &str,
        batch_size: usize,
        verdicts: &Result<Vec<Verdict>, StoreError>,
        timings: &Timings,
    ) {
        let counts = match verdicts {
            Ok(verdicts) => Counts::of(verdicts),
            Err(_none_was_answered) => Counts::of_outage(batch_size),
        };
        let findings = (self.findings)();
        let document = Document { consumer: &self.consumer, request_id, findings, counts, timings };
        let mut line = Vec::new();
        let formatted = self.format.lock().unwrap_or_else(PoisonError::into_inner).format(&document, &mut line);
        // One write for the whole line: several invocations may be printing.
        if let Err(error) = formatted.map_err(io::Error::other).and_then(|()| io::stdout().lock().write_all(&line)) {
            tracing::warn!(%error, "the metrics of this invocation are lost");
        }
    }
}
