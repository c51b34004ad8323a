//! The verdicts and the timings of an invocation as metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use metrique_writer_core::unit::NegativeScale;
use metrique_writer_core::{Entry, EntryWriter, MetricFlags, Observation, Unit, Value, ValueWriter};

use super::DIMENSION;
use crate::disposition::{Disposition, Verdict};
use crate::timings::Timings;

/// Values that one metric of a document may have.
const MOST_VALUES: usize = 100;

/// Outcomes that every document counts, so that a graph of them has no holes. The others are there
/// when they happen.
const ALWAYS: [&str; 7] = ["ACQUIRED", "ACQUIRED_STALE", "DUPLICATE", "CONFLICT", "MISMATCH", "FAILED", "LOST"];

/// What an invocation came to.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) consumer: &'a str,
    /// Not a metric: it leads from a document to the lines of its messages.
    pub(super) request_id: &'a str,
    pub(super) findings: Option<u64>,
    pub(super) counts: Counts,
    pub(super) timings: &'a Timings,
}

/// What became of the messages.
#[derive(Debug)]
pub(super) struct Counts {
    batch_size: u64,
    done: u64,
    redeliver: u64,
    /// By the outcome's word.
    outcomes: BTreeMap<&'static str, u64>,
    /// Of each run, which attempt it was.
    attempts: Vec<u8>,
}

impl Counts {
    pub(super) fn of(verdicts: &[Verdict]) -> Self {
        let mut counts = Self::none();
        for verdict in verdicts {
            counts.batch_size += 1;
            *counts.outcomes.entry(verdict.outcome).or_default() += 1;
            if verdict.failed_for_good {
                *counts.outcomes.entry("FAILED").or_default() += 1;
            }
            match verdict.disposition {
                Disposition::Done => counts.done += 1,
                Disposition::Redeliver { after: _ } => counts.redeliver += 1,
            }
            counts.attempts.extend(verdict.attempt.filter(|_| verdict.ran));
        }
        counts
    }

    /// The store was out of reach before any work ran: all messages come again.
    pub(super) fn of_outage(messages: usize) -> Self {
        let mut counts = Self::none();
        counts.batch_size = messages as u64;
        counts.redeliver = counts.batch_size;
        counts.outcomes.insert("UNAVAILABLE", counts.batch_size);
        counts
    }

    fn none() -> Self {
        let outcomes = ALWAYS.map(|outcome| (outcome, 0)).into();
        Self { batch_size: 0, done: 0, redeliver: 0, outcomes, attempts: Vec::new() }
    }
}

impl Entry for Document<'_> {
    fn write<'a>(&'a self, writer: &mut impl EntryWriter<'a>) {
        let Counts { batch_size, done, redeliver, outcomes, attempts } = &self.counts;
        writer.value(DIMENSION, self.consumer);
        writer.value("RequestId", self.request_id);
        writer.value("BatchSize", &Count(*batch_size));
        for (outcome, count) in outcomes {
            writer.value(name(outcome), &Count(*count));
        }
        writer.value("Done", &Count(*done));
        writer.value("Redeliver", &Count(*redeliver));
        writer.value("Attempts", &Spread::new(attempts.iter().copied().map(f64::from).collect(), Unit::Count));
        writer.value("RedisLatency", &milliseconds(&self.timings.store.all()));
        writer.value("WorkLatency", &milliseconds(&self.timings.work.all()));
        writer.value("LeaseRemaining", &milliseconds(&self.timings.lease_remaining.all()));
        writer.value("CheckFindings", &self.findings.map(Count));
    }
}

/// The metric of an outcome: `AcquiredStale` of `ACQUIRED_STALE`.
fn name(outcome: &str) -> String {
    let (first, rest): (Vec<_>, Vec<_>) = outcome.split('_').filter_map(|word| word.split_at_checked(1)).unzip();
    first.into_iter().zip(rest).flat_map(|(first, rest)| [first.to_owned(), rest.to_lowercase()]).collect()
}

struct Count(u64);

impl Value for Count {
    fn write(&self, writer: impl ValueWriter) {
        writer.metric([Observation::Unsigned(self.0)], Unit::Count, [], MetricFlags::empty());
    }
}

/// Values, of which equal ones are told once, with their count.
struct Spread {
    values: Vec<Observation>,
    unit: Unit,
}

impl Spread {
    /// Of more values than a metric may have, neighbours are told as their mean: the sum, the
    /// smallest and the largest stay as they are, and a percentile moves by one at most.
    fn new(mut values: Vec<f64>, unit: Unit) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let mut groups: Vec<_> = values.chunk_by(|one, next| one.total_cmp(next).is_eq()).collect();
        if let ([first, between @ .., last], true) = (values.as_slice(), groups.len() > MOST_VALUES) {
            groups = between.chunks(between.len().div_ceil(MOST_VALUES - 2)).collect();
            groups.insert(0, std::slice::from_ref(first));
            groups.push(std::slice::from_ref(last));
        }
        Self { values: groups.into_iter().map(observation).collect(), unit }
    }
}

fn observation(group: &[f64]) -> Observation {
    match group {
        [value] => Observation::Floating(*value),
        group => Observation::Repeated { total: group.iter().sum(), occurrences: group.len() as u64 },
    }
}

impl Value for Spread {
    fn write(&self, writer: impl ValueWriter) {
        writer.metric(self.values.iter().copied(), self.unit, [], MetricFlags::empty());
    }
}

/// In milliseconds, down to the microsecond.
fn milliseconds(times: &[Duration]) -> Spread {
    let values = times.iter().map(|time| (time.as_secs_f64() * 1e6).round() / 1e3).collect();
    Spread::new(values, Unit::Second(NegativeScale::Milli))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each value with its count.
    fn told(values: impl IntoIterator<Item = f64>) -> Vec<(f64, u64)> {
        let spread = Spread::new(values.into_iter().collect(), Unit::None);
        let told = spread.values.into_iter().map(|value| match value {
            Observation::Floating(value) => (value, 1),
            Observation::Repeated { total, occurrences } => (total, occurrences),
            other @ (Observation::Unsigned(_) | _) => panic!("{other:?}"),
        });
        told.collect()
    }

    #[test]
    fn an_outcome_names_its_metric() {
        assert_eq!(["ACQUIRED", "ACQUIRED_STALE", "NO_KEY"].map(name), ["Acquired", "AcquiredStale", "NoKey"]);
    }

    #[test]
    fn equal_values_are_told_once_and_exactly() {
        assert_eq!(told([]), []);
        assert_eq!(told([2.5]), [(2.5, 1)]);
        assert_eq!(told([1.0, 3.0, 1.0, 1.0]), [(3.0, 3), (3.0, 1)]);
    }

    #[test]
    fn of_ten_thousand_values_a_hundred_keep_the_sum_the_count_and_both_ends() {
        let values = || (0..10_000).map(|n| f64::from(n * n % 10_007));
        let told = told(values());
        assert!(told.len() <= MOST_VALUES && told.len() > MOST_VALUES / 2, "{}", told.len());
        assert_eq!(told.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert!((told.iter().map(|(total, _)| total).sum::<f64>() - values().sum::<f64>()).abs() < 1e-6);
        assert_eq!(told[0], (values().fold(f64::MAX, f64::min), 1));
        assert_eq!(told[told.len() - 1], (values().fold(f64::MIN, f64::max), 1));
    }

    #[test]
    fn a_hundred_and_one_values_are_told_as_a_hundred_at_most() {
        for count in [100, 101, 102, 198, 199, 300] {
            let told = told((0..count).map(f64::from));
            assert!(told.len() <= MOST_VALUES, "{count}");
            assert_eq!(told.iter().map(|(_, count)| count).sum::<u64>(), u64::try_from(count).unwrap());
        }
    }
}
