//! Whether each answer was reported once, and as what happened: the documentation of `RequestReport` and
//! `RequestOutcome`.

use history::History;
use idempotent_sqs_http::RequestOutcome;

use super::answers::is_protected;
use super::is_recorded;
use crate::answer::{Answer, NOT_KEPT};
use crate::clients::Sent;
use crate::handler::Ending;
use crate::kind::Serves;
use crate::reported::Reported;
use crate::runs::Run;
use crate::store::Told;
use crate::verdict::Seen;

impl Seen {
    pub(crate) fn wrong_reports(&self, history: &History) -> Vec<String> {
        let mut faults = Vec::new();
        for (number, sent) in self.sent.iter().enumerate() {
            let reports: Vec<_> = self.reports.iter().filter(|report| report.request == number).collect();
            let most = usize::from(is_protected(sent));
            let least = if sent.answered.is_some() { most } else { 0 };
            if !(least..=most).contains(&reports.len()) {
                faults.push(format!("not one report of its answer: request {number}, {sent:?}, {reports:?}"));
            }
            let own = self.runs_of(number).next();
            let wrong = reports.iter().filter_map(|report| self.wrong_report(report, sent, own, history));
            faults.extend(wrong.map(|wrong| format!("{wrong}: request {number}, {sent:?}, {own:?}, {reports:?}")));
        }
        faults
    }

    /// What is wrong with the report of this request. `own` is its run.
    pub(crate) fn wrong_report(
        &self,
        report: &Reported,
        sent: &Sent,
        own: Option<&Run>,
        history: &History,
    ) -> Option<&'static str> {
        if report.method != sent.identity.variant.0 || report.client_key != reported_key(sent) {
            return Some("the report of another request");
        }
        if !self.is_attempt(report, sent, own) {
            return Some("a report of another attempt");
        }
        // The run is part of it.
        if own.is_some_and(|run| run.ended.is_some() && report.duration < run.plan.before + run.plan.after) {
            return Some("it was reported to have taken less time than its run");
        }
        let answered = sent.answered.as_ref()?;
        if report.duration > answered.after {
            return Some("it was reported to have taken more time than it took");
        }
        if report.status != answered.answer.status() {
            return Some("it was reported with another status");
        }
        let is_right = match self.outcome(report.request, &answered.answer, own, history) {
            // The layer got the response of the endpoint in it, and may not have recorded that.
            None => [RequestOutcome::Uncertain, RequestOutcome::NotRecorded].contains(&report.outcome),
            Some(outcome) => report.outcome == outcome,
        };
        (!is_right).then_some("it was reported as something else")
    }

    /// Whether fence, attempts and recovery are those of the run, or of the run that the store said to have completed
    /// it.
    fn is_attempt(&self, report: &Reported, sent: &Sent, own: Option<&Run>) -> bool {
        let reported = (report.fence, report.attempts, report.is_recovery);
        if let Some(run) = own {
            return reported == (Some(run.fence), Some(run.attempt), run.is_recovery);
        }
        let told = self.asked_for(report.request).map(|asked| asked.told);
        match (report.outcome, told.last()) {
            (RequestOutcome::Replayed | RequestOutcome::ResponseNotKept, _) => {
                self.asked_for(report.request).any(|asked| matches!(asked.told, Told::Duplicate { fence, attempts, .. } if reported == (Some(fence), Some(attempts), false)))
            }
            (_, Some(Told::Acquired { fence, attempt, is_recovery })) => {
                let is_run = sent.kind.serves == Serves::EndpointInLayer;
                let is_of_claim = (report.fence, report.attempts) == (Some(fence), Some(attempt));
                (is_of_claim || !is_run && report.fence.is_none()) && report.is_recovery == (is_recovery && is_run)
            }
            _ => report.fence.is_none() && !report.is_recovery,
        }
    }

    /// How this answer must be reported.
    fn outcome(&self, number: usize, answer: &Answer, own: Option<&Run>, history: &History) -> Option<RequestOutcome> {
        if self.unprotected_run(number).is_some() {
            return Some(RequestOutcome::Unprotected);
        }
        match (answer, own) {
            (Answer::Receipt { is_replayed: true, .. }, _) => Some(RequestOutcome::Replayed),
            (Answer::Problem { kind, .. }, _) => of_problem(kind, own, history),
            (_, Some(run)) => Some(of_run(run, is_recorded(run, history))),
            (_, None) => None,
        }
    }
}

/// The key in the report of a request.
fn reported_key(sent: &Sent) -> Option<String> {
    let is_malformed = sent.flaw.is_some_and(|flaw| flaw.problem().1 == "key-malformed");
    (sent.key.is_some() && !is_malformed).then(|| sent.identity.key.clone())
}

/// How a run is reported whose answer the client got.
fn of_run(run: &Run, is_recorded: bool) -> RequestOutcome {
    match run.ended {
        _ if !is_recorded => RequestOutcome::NotRecorded,
        Some(Ending::Answer(429 | 503) | Ending::Unavailable | Ending::Busy) => RequestOutcome::Released,
        Some(Ending::Answer(status)) if run.kind.keeps(status) => RequestOutcome::Completed,
        Some(_) | None => RequestOutcome::Uncertain,
    }
}

/// How a request is reported that got this problem.
fn of_problem(problem: &str, own: Option<&Run>, history: &History) -> Option<RequestOutcome> {
    Some(match problem {
        "in-flight" => RequestOutcome::InFlight,
        "mismatch" => RequestOutcome::Mismatch,
        NOT_KEPT => RequestOutcome::ResponseNotKept,
        "failed-before" if own.is_some() => RequestOutcome::FailedPermanently,
        "failed-before" => RequestOutcome::FailedBefore,
        "not-started" => RequestOutcome::NotStarted,
        "store-unavailable" => RequestOutcome::StoreUnavailable,
        "unavailable" if own.is_some_and(|run| !is_recorded(run, history)) => RequestOutcome::NotRecorded,
        "unavailable" => RequestOutcome::Released,
        "failed" | "deadline" if own.is_some() => RequestOutcome::Uncertain,
        "failed" => return None,
        _flaw => RequestOutcome::Rejected,
    })
}
