//! How long the steps of an invocation took. Each invocation has its own timings, as several may share a process.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long the steps of the messages of one invocation took.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    /// Each acquire and each settling, including retries.
    pub(crate) store: Times,
    /// Each run of the work, including failed and cancelled ones.
    pub(crate) work: Times,
    /// Remaining time of each lease when its claim was settled.
    pub(crate) lease_remaining: Times,
}

#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<Vec<Duration>>);

impl Times {
    pub(crate) fn add(&self, time: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(time);
    }

    /// Adds the time since `began`.
    pub(crate) fn add_since(&self, began: Option<Instant>) {
        if let Some(began) = began {
            self.add(began.elapsed());
        }
    }

    pub(crate) fn all(&self) -> Vec<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
