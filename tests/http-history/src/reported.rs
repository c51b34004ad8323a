//! What a layer reported of a request.

use std::time::Duration;

use idempotent_sqs_http::{RequestOutcome, RequestReport};
use serde_json::{Value, json};

/// A report, and the number of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) request: usize,
    pub(crate) outcome: RequestOutcome,
    pub(crate) status: Option<u16>,
    pub(crate) method: String,
    pub(crate) client_key: Option<String>,
    pub(crate) fence: Option<u64>,
    pub(crate) attempts: Option<u8>,
    pub(crate) is_recovery: bool,
    pub(crate) duration: Duration,
}

impl Reported {
    pub(crate) fn of(request: usize, report: &RequestReport) -> Self {
        Self {
            request,
            outcome: report.outcome,
            status: report.status.map(|status| status.as_u16()),
            method: report.method.to_string(),
            client_key: report.client_key.clone(),
            fence: report.fence.map(|fence| fence.0),
            attempts: report.attempts,
            is_recovery: report.is_recovery,
            duration: report.duration,
        }
    }

    /// What the metrics say of it.
    pub(crate) fn as_json(&self) -> Value {
        let Self { outcome, attempts, is_recovery, duration, .. } = self;
        let us = u64::try_from(duration.as_micros()).unwrap();
        json!({ "outcome": format!("{outcome:?}"), "attempts": attempts, "is_recovery": is_recovery, "us": us })
    }
}

/// The outcome in logs, `IN_FLIGHT` for [`RequestOutcome::InFlight`]: the documentation of `RequestOutcome::as_str`.
pub(crate) fn in_logs(outcome: RequestOutcome) -> String {
    let mut name = String::new();
    for letter in format!("{outcome:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
