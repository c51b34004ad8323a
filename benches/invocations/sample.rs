//! What a function did while it had its turn.

use std::time::Duration;

use crate::figures::{median, number};
use crate::server::Load;

/// One turn, or several.
pub(crate) struct Turn {
    /// Milliseconds of each invocation.
    pub(crate) times: Vec<f64>,
    /// From the first event to the last answer.
    pub(crate) wall: Duration,
    /// Messages.
    pub(crate) records: f64,
    /// Processor time; `None` where there is no /proc.
    pub(crate) cpu: Option<Duration>,
    pub(crate) load: Load,
    /// By so many records Redis had more at the end.
    pub(crate) left: usize,
}

impl Turn {
    /// Several as one.
    pub(crate) fn all(turns: &[Self]) -> Self {
        Self {
            times: turns.iter().flat_map(|turn| &turn.times).copied().collect(),
            wall: turns.iter().map(|turn| turn.wall).sum(),
            records: turns.iter().map(|turn| turn.records).sum(),
            cpu: turns.iter().map(|turn| turn.cpu).sum(),
            load: turns.iter().map(|turn| turn.load).sum(),
            left: turns.iter().map(|turn| turn.left).sum(),
        }
    }

    pub(crate) fn p50(&self) -> f64 {
        median(self.times.iter().copied())
    }

    pub(crate) fn records_per_s(&self) -> f64 {
        self.records / self.wall.as_secs_f64()
    }

    /// Microseconds of processor time for a record.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu.map_or(f64::NAN, |cpu| cpu.as_secs_f64() * 1e6 / self.records)
    }

    /// Microseconds of Redis in commands for a record.
    pub(crate) fn redis(&self) -> f64 {
        self.load.command_us / self.records
    }

    /// Microseconds of Redis on the processor for a record.
    pub(crate) fn redis_cpu(&self) -> f64 {
        self.load.cpu_us / self.records
    }

    /// Commands to Redis for a batch.
    pub(crate) fn commands(&self) -> f64 {
        self.load.commands / number(self.times.len())
    }
}

/// What a figure of one function is to that of another: the median of the ratios in each turn.
pub(crate) fn ratio<'a>(
    one: impl IntoIterator<Item = &'a Turn>,
    other: impl IntoIterator<Item = &'a Turn>,
    figure: impl Fn(&Turn) -> f64,
) -> f64 {
    median(one.into_iter().zip(other).map(|(one, other)| figure(one) / figure(other)))
}
