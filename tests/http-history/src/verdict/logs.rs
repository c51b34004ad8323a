//! Whether each report has a line in the log, which says the same and no secret.

use std::collections::{BTreeMap, BTreeSet};

use harness::lines::Line;

use crate::logs::NUMBER;
use crate::reported::{Reported, in_logs};
use crate::verdict::Seen;

/// The fields of a line. Others could have a payload or a principal.
const FIELDS: [&str; 11] = [
    "otel.status_code",
    "http.request.method",
    "url.path",
    "idempotency.key",
    "idempotency.outcome",
    "idempotency.fence",
    "idempotency.attempt",
    "status",
    "is_recovery",
    "ms",
    "message",
];

/// The fields that say the same as a report.
const OF_REPORT: [&str; 9] = [
    NUMBER,
    "http.request.method",
    "idempotency.key",
    "idempotency.outcome",
    "idempotency.fence",
    "idempotency.attempt",
    "status",
    "is_recovery",
    "otel.status_code",
];

type Told = [Option<String>; OF_REPORT.len()];

impl Seen {
    pub(super) fn wrong_lines(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let requests: BTreeSet<_> =
            self.sent.iter().map(|sent| (sent.identity.variant.0, sent.identity.path())).collect();
        let mut unused: BTreeMap<Told, i64> = BTreeMap::new();
        for line in &self.lines {
            *unused.entry(OF_REPORT.map(|field| line.get(field).map(str::to_owned))).or_default() += 1;
            let has_other = line.fields().any(|field| field != NUMBER && !FIELDS.contains(&field));
            if has_other || !requests.contains(&request(line)) {
                faults.push(format!("a line of no request, or with more than its head: {line:?}"));
            }
        }
        for report in &self.reports {
            *unused.entry(told(report)).or_default() -= 1;
        }
        unused.retain(|_, count| *count != 0);
        if !unused.is_empty() {
            faults.push(format!("the log and the reports differ: {unused:?}"));
        }
        faults
    }
}

fn request(line: &Line) -> (&str, &str) {
    (line.get("http.request.method").unwrap_or_default(), line.get("url.path").unwrap_or_default())
}

/// What the line of this report says.
fn told(report: &Reported) -> Told {
    let is_error = report.status.is_none_or(|status| (500..600).contains(&status));
    [
        Some(report.request.to_string()),
        Some(report.method.clone()),
        report.client_key.clone(),
        Some(in_logs(report.outcome)),
        report.fence.map(|fence| fence.to_string()),
        report.attempts.map(|attempts| attempts.to_string()),
        report.status.map(|status| status.to_string()),
        Some(report.is_recovery.to_string()),
        is_error.then(|| "error".to_owned()),
    ]
}
