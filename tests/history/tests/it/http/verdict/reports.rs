//! Whether each answer was reported once, for metrics.

use std::collections::BTreeMap;

use history::History;
use idempotent_sqs_http::{RequestOutcome, RequestReport};

use super::answers::is_protected;
use super::is_recorded;
use crate::http::answer::Answer;
use crate::http::clients::Sent;
use crate::http::handler::{Ending, Run};
use crate::http::kind::Serves;
use crate::http::verdict::Seen;

/// Key, outcome, status, and the fence of the run that was replayed.
type Told = (Option<String>, &'static str, Option<u16>, Option<u64>);

impl Seen {
    pub(super) fn wrong_reports(&self, history: &History) -> Vec<String> {
        let mut faults = Vec::new();
        for run in &self.runs {
            let sent = &self.sent[run.plan.request];
            // The same key of two principals may have the same fence.
            let runs = self.runs.iter().filter(|other| self.reported_as(other) == self.reported_as(run)).count();
            let reports: Vec<_> =
                self.of_services().filter(|report| is_of_run(report, self.reported_as(run))).collect();
            let is_right = |report: &&RequestReport| is_right(report, run, sent, is_recorded(run, history));
            // If the client has gone, the handler may have gone with it.
            let is_missing = sent.answered.is_some() && !reports.iter().any(is_right);
            if is_missing || reports.len() > runs {
                faults.push(format!("a run was reported wrongly: {reports:?}, {run:?}, {sent:?}"));
            }
        }
        let mut unused: BTreeMap<Told, i64> = BTreeMap::new();
        for report in self.of_services() {
            let fence = report.fence.filter(|_| report.outcome == RequestOutcome::Replayed).map(|fence| fence.0);
            let status = report.status.map(|status| status.as_u16());
            *unused.entry((report.client_key.clone(), report.outcome.as_str(), status, fence)).or_default() += 1;
        }
        let not_run = self.sent.iter().enumerate().filter(|(number, _)| self.runs_of(*number).next().is_none());
        for told in not_run.filter_map(|(_, sent)| self.told(sent)) {
            *unused.entry(told).or_default() -= 1;
        }
        let wrong = unused.iter().filter(|(_, count)| **count < 0);
        faults.extend(wrong.map(|(told, _)| format!("answers were not reported: {told:?}")));
        let is_recovery = |report: &&RequestReport| {
            self.runs.iter().any(|run| run.is_recovery && is_of_run(report, self.reported_as(run)))
        };
        // An endpoint in a layer is the layer's run, although its work does not run.
        let reports = self.reports.iter().filter(|(kind, _)| kind.serves != Serves::EndpointInLayer);
        let wrong = reports.map(|(_, report)| report).filter(|report| report.is_recovery && !is_recovery(report));
        faults.extend(wrong.map(|report| format!("no recovery ran: {report:?}")));
        // Reports, answered requests, and all requests.
        let mut counts: BTreeMap<(usize, Option<String>), [usize; 3]> = BTreeMap::new();
        for (kind, report) in &self.reports {
            counts.entry((kind.number(), report.client_key.clone())).or_default()[0] += 1;
        }
        for sent in self.sent.iter().filter(|sent| is_protected(sent)) {
            let count = counts.entry((sent.kind.number(), reported_key(sent))).or_default();
            count[1] += usize::from(sent.answered.is_some());
            count[2] += 1;
        }
        let wrong = counts.iter().filter(|(_, [reports, answered, all])| !(answered..=all).contains(&reports));
        faults.extend(wrong.map(|(told, counts)| format!("not one report of each answer: {told:?}, {counts:?}")));
        faults
    }

    fn of_services(&self) -> impl Iterator<Item = &RequestReport> {
        self.reports.iter().map(|(_, report)| report)
    }

    /// The key and fence in the report of a run.
    fn reported_as(&self, run: &Run) -> (&str, u64) {
        (&self.sent[run.plan.request].identity.key, run.fence)
    }

    /// What must have been reported of a request that did not run.
    fn told(&self, sent: &Sent) -> Option<Told> {
        let (outcome, status, fence) = match sent.answer()? {
            Answer::Receipt { request, is_replayed: true, reply, .. } => {
                let run = self.runs_of(*request).next()?;
                (RequestOutcome::Replayed, reply.status, Some(run.fence))
            }
            Answer::Problem { status, kind, .. } => (outcome_of(kind)?, *status, None),
            Answer::Receipt { .. } | Answer::Unprotected | Answer::Error(_) | Answer::Unknown(_) => return None,
        };
        Some((reported_key(sent), outcome.as_str(), Some(status), fence))
    }
}

/// The key in the report of a request.
fn reported_key(sent: &Sent) -> Option<String> {
    let is_malformed = sent.flaw.is_some_and(|flaw| flaw.problem().1 == "key-malformed");
    (sent.key.is_some() && !is_malformed).then(|| sent.identity.key.clone())
}

/// Whether the report may be that of a run with this key and fence.
fn is_of_run(report: &RequestReport, (key, fence): (&str, u64)) -> bool {
    let is_replay = [RequestOutcome::Replayed, RequestOutcome::ResponseNotKept].contains(&report.outcome);
    !is_replay && report.client_key.as_deref() == Some(key) && report.fence.map(|fence| fence.0) == Some(fence)
}

fn is_right(report: &RequestReport, run: &Run, sent: &Sent, is_recorded: bool) -> bool {
    let expected = match run.ended {
        _ if run.may_be_cut() && report.outcome == RequestOutcome::Uncertain => RequestOutcome::Uncertain,
        Some(Ending::Answer(429 | 503) | Ending::Unavailable) => RequestOutcome::Released,
        Some(Ending::Answer(status)) if run.kind.keeps(status) => RequestOutcome::Completed,
        Some(Ending::Permanent) => RequestOutcome::FailedBefore,
        Some(_) | None => RequestOutcome::Uncertain,
    };
    let status = match sent.answer() {
        Some(Answer::Receipt { reply, .. }) => Some(reply.status),
        Some(Answer::Problem { status, .. }) => Some(*status),
        Some(Answer::Unprotected | Answer::Error(_) | Answer::Unknown(_)) | None => None,
    };
    let is_expected = report.outcome == expected
        || !is_recorded && [RequestOutcome::NotRecorded, RequestOutcome::Uncertain].contains(&report.outcome);
    is_expected
        && (report.is_recovery, report.attempts) == (run.is_recovery, Some(run.attempt))
        && report.method == sent.identity.variant.0
        && (sent.answered.is_none() || report.status.map(|status| status.as_u16()) == status)
}

/// The outcome of a request that did not run and got this problem.
fn outcome_of(problem: &str) -> Option<RequestOutcome> {
    Some(match problem {
        "in-flight" => RequestOutcome::InFlight,
        "mismatch" => RequestOutcome::Mismatch,
        "response-not-kept" => RequestOutcome::ResponseNotKept,
        "failed-before" => RequestOutcome::FailedBefore,
        "not-started" => RequestOutcome::NotStarted,
        "store-unavailable" => RequestOutcome::StoreUnavailable,
        // The response of an endpoint in a layer.
        "failed" => return None,
        _flaw => RequestOutcome::Rejected,
    })
}
