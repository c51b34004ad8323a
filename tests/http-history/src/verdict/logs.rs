//! Whether each report has a line in the log, which says the same and no secret.

use std::collections::{BTreeMap, BTreeSet};

use harness::lines::Line;

use crate::logs::NUMBER;
use crate::reported::{Reported, in_logs};
use crate::verdict::Seen;

/// The fields of a line. Others could have a payload or a principal.
const FIELDS: [&str; 12] = [
    "otel.status_code",
    "http.request.method",
    "url.path",
    "idempotency.key",
    "idempotency.record_key",
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
            if line.get("idempotency.record_key").is_some_and(|record_key| !is_of_request(record_key, line)) {
                faults.push(format!("a line with a key of a record that is not that of its request: {line:?}"));
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

/// Whether the key of a record is the hash of a principal, of 16 bytes, and the key of the request.
fn is_of_request(record_key: &str, line: &Line) -> bool {
    let client_key = line.get("idempotency.key").unwrap_or_default();
    let principal = record_key.strip_suffix(client_key).and_then(|rest| rest.strip_suffix(':'));
    principal.is_some_and(|hash| hash.len() == 32 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()))
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
