//! The figures of one function in one or several measurements.

use std::time::Duration;

use benches::figures::{median, number};
use benches::server::Load;

/// One measurement, or the sum of several.
pub(crate) struct Sample {
    /// Milliseconds of each invocation.
    pub(crate) times: Vec<f64>,
    /// From the first event to the last response.
    pub(crate) wall: Duration,
    /// The number of messages.
    pub(crate) records: f64,
    /// Processor time. `None` without /proc.
    pub(crate) cpu: Option<Duration>,
    pub(crate) load: Load,
    /// The number of records that were added to Redis.
    pub(crate) added: usize,
}

impl Sample {
    /// The sum of these.
    pub(crate) fn sum(samples: &[Self]) -> Self {
        Self {
            times: samples.iter().flat_map(|sample| &sample.times).copied().collect(),
            wall: samples.iter().map(|sample| sample.wall).sum(),
            records: samples.iter().map(|sample| sample.records).sum(),
            cpu: samples.iter().map(|sample| sample.cpu).sum(),
            load: samples.iter().map(|sample| sample.load).sum(),
            added: samples.iter().map(|sample| sample.added).sum(),
        }
    }

    pub(crate) fn p50(&self) -> f64 {
        median(self.times.iter().copied())
    }

    pub(crate) fn records_per_s(&self) -> f64 {
        self.records / self.wall.as_secs_f64()
    }

    /// Microseconds of processor time per record.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu.map_or(f64::NAN, |cpu| cpu.as_secs_f64() * 1e6 / self.records)
    }

    /// Microseconds of Redis commands per record.
    pub(crate) fn redis(&self) -> f64 {
        self.load.command_us / self.records
    }

    /// Microseconds of Redis processor time per record.
    pub(crate) fn redis_cpu(&self) -> f64 {
        self.load.cpu_us / self.records
    }

    /// Commands to Redis per batch.
    pub(crate) fn commands(&self) -> f64 {
        self.load.commands / number(self.times.len())
    }
}

/// The ratio of a figure of one function to that of another: the median over their simultaneous samples.
pub(crate) fn ratio<'a>(
    one: impl IntoIterator<Item = &'a Sample>,
    other: impl IntoIterator<Item = &'a Sample>,
    figure: impl Fn(&Sample) -> f64,
) -> f64 {
    median(one.into_iter().zip(other).map(|(one, other)| figure(one) / figure(other)))
}
