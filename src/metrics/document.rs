//! The reports and timings of an invocation as a metrics document.

use std::collections::BTreeMap;
use std::time::Duration;

use metrique_writer_core::unit::NegativeScale;
use metrique_writer_core::{Entry, EntryWriter, MetricFlags, Observation, Unit, Value, ValueWriter};

use super::DIMENSION;
use crate::sqs::{DeadLetterOutcome, Disposition, MessageOutcome, MessageReport, Timings};

/// Largest number of values of one metric in a document:
/// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>
const MAX_VALUES: usize = 100;

/// Outcomes that every document has, so that their graphs have no gaps. Others appear when they occur.
const ALWAYS: [MessageOutcome; 7] = [
    MessageOutcome::Acquired,
    MessageOutcome::AcquiredStale,
    MessageOutcome::Duplicate,
    MessageOutcome::Conflict,
    MessageOutcome::Mismatch,
    MessageOutcome::Failed,
    MessageOutcome::Lost,
];

/// The metrics document of one invocation.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) consumer: &'a str,
    /// Not a metric: relates the document to the log lines of its messages.
    pub(super) request_id: &'a str,
    pub(super) findings: Option<u64>,
    pub(super) counts: Counts,
    pub(super) timings: &'a Timings,
}

/// Counts of the messages of an invocation.
#[derive(Debug)]
pub(super) struct Counts {
    batch_size: u64,
    done: u64,
    redeliver: u64,
    dead_letters: BTreeMap<DeadLetterOutcome, u64>,
    dead_letters_not_sent: u64,
    outcomes: BTreeMap<MessageOutcome, u64>,
    /// The number of the attempt of each run of the work.
    attempts: Vec<u8>,
}

impl Counts {
    pub(super) fn of(reports: &[MessageReport]) -> Self {
        let mut counts = Self::zero();
        for report in reports {
            counts.batch_size += 1;
            *counts.outcomes.entry(report.outcome).or_default() += 1;
            if report.failed_permanently {
                *counts.outcomes.entry(MessageOutcome::Failed).or_default() += 1;
            }
            match report.disposition {
                Disposition::Done => counts.done += 1,
                Disposition::Redeliver { after: _ } => counts.redeliver += 1,
                Disposition::DeadLetter => {
                    if let Some(outcome) = report.dead_letter {
                        *counts.dead_letters.entry(outcome).or_default() += 1;
                    }
                }
            }
            counts.dead_letters_not_sent += u64::from(report.dead_letter_not_sent);
            counts.attempts.extend(report.attempts.filter(|_| report.ran));
        }
        counts
    }

    fn zero() -> Self {
        let outcomes = ALWAYS.map(|outcome| (outcome, 0)).into();
        Self {
            batch_size: 0,
            done: 0,
            redeliver: 0,
            dead_letters: BTreeMap::new(),
            dead_letters_not_sent: 0,
            outcomes,
            attempts: Vec::new(),
        }
    }
}

impl Entry for Document<'_> {
    fn write<'a>(&'a self, writer: &mut impl EntryWriter<'a>) {
        let Counts { batch_size, done, redeliver, dead_letters, dead_letters_not_sent, outcomes, attempts } =
            &self.counts;
        writer.value(DIMENSION, self.consumer);
        writer.value("RequestId", self.request_id);
        writer.value("BatchSize", &Count(*batch_size));
        for (outcome, count) in outcomes {
            writer.value(outcome.metric(), &Count(*count));
        }
        writer.value("Done", &Count(*done));
        writer.value("Redeliver", &Count(*redeliver));
        writer.value("DeadLetters", &Count(dead_letters.values().sum()));
        for (outcome, count) in dead_letters {
            writer.value(outcome.metric(), &Count(*count));
        }
        if *dead_letters_not_sent > 0 {
            writer.value("DeadLettersNotSent", &Count(*dead_letters_not_sent));
        }
        writer.value("Attempts", &Distribution::new(attempts.iter().copied().map(f64::from).collect(), Unit::Count));
        writer.value("RedisLatency", &milliseconds(&self.timings.store.all()));
        writer.value("WorkLatency", &milliseconds(&self.timings.work.all()));
        writer.value("LeaseRemaining", &milliseconds(&self.timings.lease_remaining.all()));
        writer.value("CheckFindings", &self.findings.map(Count));
    }
}

struct Count(u64);

impl Value for Count {
    fn write(&self, writer: impl ValueWriter) {
        writer.metric([Observation::Unsigned(self.0)], Unit::Count, [], MetricFlags::empty());
    }
}

/// A metric with several values. Equal values are written once, with their count.
struct Distribution {
    values: Vec<Observation>,
    unit: Unit,
}

impl Distribution {
    /// If there are more distinct values than a metric may have, neighbouring values are written as their mean. The
    /// count, the sum, the minimum and the maximum stay exact, and a percentile shifts by about one percentage point at
    /// most.
    fn new(mut values: Vec<f64>, unit: Unit) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let mut groups: Vec<_> = values.chunk_by(|one, next| one.total_cmp(next).is_eq()).collect();
        if let ([first, between @ .., last], true) = (values.as_slice(), groups.len() > MAX_VALUES) {
            groups = between.chunks(between.len().div_ceil(MAX_VALUES - 2)).collect();
            groups.insert(0, std::slice::from_ref(first));
            groups.push(std::slice::from_ref(last));
        }
        Self { values: groups.into_iter().map(observation).collect(), unit }
    }
}

/// One value, or several neighbouring values as their sum and their number.
fn observation(group: &[f64]) -> Observation {
    match group {
        [value] => Observation::Floating(*value),
        group => Observation::Repeated { total: group.iter().sum(), occurrences: group.len() as u64 },
    }
}

impl Value for Distribution {
    fn write(&self, writer: impl ValueWriter) {
        writer.metric(self.values.iter().copied(), self.unit, [], MetricFlags::empty());
    }
}

/// Durations in milliseconds, rounded to microseconds.
fn milliseconds(times: &[Duration]) -> Distribution {
    let values = times.iter().map(|time| (time.as_secs_f64() * 1e6).round() / 1e3).collect();
    Distribution::new(values, Unit::Second(NegativeScale::Milli))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each value with its count.
    fn written(values: impl IntoIterator<Item = f64>) -> Vec<(f64, u64)> {
        let distribution = Distribution::new(values.into_iter().collect(), Unit::None);
        let written = distribution.values.into_iter().map(|value| match value {
            Observation::Floating(value) => (value, 1),
            Observation::Repeated { total, occurrences } => (total, occurrences),
            other @ (Observation::Unsigned(_) | _) => panic!("{other:?}"),
        });
        written.collect()
    }

    #[test]
    fn equal_values_are_written_once_and_exactly() {
        assert_eq!(written([]), []);
        assert_eq!(written([2.5]), [(2.5, 1)]);
        assert_eq!(written([1.0, 3.0, 1.0, 1.0]), [(3.0, 3), (3.0, 1)]);
    }

    #[test]
    fn ten_thousand_values_keep_their_sum_count_minimum_and_maximum() {
        let values = || (0..10_000).map(|n| f64::from(n * n % 10_007));
        let written = written(values());
        assert!(written.len() <= MAX_VALUES && written.len() > MAX_VALUES / 2, "{}", written.len());
        assert_eq!(written.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert!((written.iter().map(|(total, _)| total).sum::<f64>() - values().sum::<f64>()).abs() < 1e-6);
        assert_eq!(written[0], (values().fold(f64::MAX, f64::min), 1));
        assert_eq!(written[written.len() - 1], (values().fold(f64::MIN, f64::max), 1));
    }

    #[test]
    fn no_metric_has_more_than_a_hundred_values() {
        for count in [100, 101, 102, 198, 199, 300] {
            let written = written((0..count).map(f64::from));
            assert!(written.len() <= MAX_VALUES, "{count}");
            assert_eq!(written.iter().map(|(_, count)| count).sum::<u64>(), u64::try_from(count).unwrap());
        }
    }
}
