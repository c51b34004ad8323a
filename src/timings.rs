//! How long the steps of an invocation's messages took. Each invocation has timings of its own, as several may
//! share a process.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the steps of an invocation's messages took.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    /// Each acquire and each settling, with all tries.
    pub(crate) store: Times,
    /// Each run of the work, also one that failed or was cut off.
    pub(crate) work: Times,
    /// What was left of each lease when its claim was settled.
    pub(crate) lease_remaining: Times,
}

#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<Vec<Duration>>);

impl Times {
    pub(crate) fn add(&self, time: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(time);
    }

    pub(crate) fn all(&self) -> Vec<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
