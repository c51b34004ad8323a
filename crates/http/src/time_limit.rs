//! How long a request may take.

use std::time::Duration;

use http::request::Parts;
use idempotent_sqs::Deadline;
use tokio::time::Instant;

use crate::settings::Settings;

/// The time for one run, and the end of the invocation that the request is part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit {
    timeout: Duration,
    invocation: Option<Deadline>,
}

impl TimeLimit {
    pub(crate) fn of(settings: &Settings, parts: &Parts) -> Self {
        Self { timeout: settings.timeout, invocation: (settings.deadline)(parts) }
    }

    /// The deadline of what starts now.
    pub(crate) fn deadline(&self) -> Deadline {
        let own = Deadline::within(self.timeout);
        self.invocation.filter(|invocation| invocation.end < own.end).unwrap_or(own)
    }

    /// When a request that waits before its run gives up: after `wait`, or when this time is left to start in.
    pub(crate) fn waits_until(&self, wait: Duration, left: Duration) -> Instant {
        let own = Deadline::within(wait).end;
        let last = self.invocation.map(|invocation| invocation.work.checked_sub(left).unwrap_or_else(Instant::now));
        last.map_or(own, |last| own.min(last))
    }
}
