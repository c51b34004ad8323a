//! Whether the runs were settled as their responses say, and the answers that clients got are those of the runs.

mod answers;
mod logs;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use harness::lines::Line;
use history::{Call, History, Operation, wrong_settling};
use idempotent_sqs_http::RequestReport;
use tokio::time::Instant;

use super::answer::Answer;
use super::clients::Sent;
use super::format::Acquired;
use super::handler::{Ending, Run};
use super::kind::Kind;
use super::request::Identity;

/// With less time, a request is not started.
const SHORTEST_RUN: Duration = Duration::from_millis(50);

/// The requests of a run, by their numbers, and the runs of the handler.
pub(crate) struct Seen {
    pub(crate) sent: Vec<Sent>,
    pub(crate) runs: Vec<Run>,
    /// What the services reported.
    pub(crate) reports: Vec<(Kind, RequestReport)>,
    /// What they logged.
    pub(crate) lines: Vec<Line>,
    /// What the store answered to the acquires of each request, one after another.
    pub(crate) acquires: Vec<(usize, Acquired, Instant)>,
    /// Whether each key has a response that is kept.
    pub(crate) is_finished: bool,
}

impl Seen {
    /// Everything that is wrong from outside.
    pub(crate) fn faults(&self, history: &History) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.is_finished {
            faults.push("a key has no response that is kept".to_owned());
        }
        for run in &self.runs {
            faults.extend(self.wrong_run(run, history).into_iter().map(|fault| format!("{fault}: {run:?}")));
        }
        faults.extend(self.wrong_records(history));
        faults.extend(self.wrong_completions(history));
        faults.extend(self.wrong_reports(history));
        faults.extend(self.wrong_lines());
        let mut replayed: BTreeMap<&Identity, usize> = BTreeMap::new();
        for (number, sent) in self.sent.iter().enumerate() {
            let runs: Vec<_> = self.runs_of(number).collect();
            if runs.len() > 1 {
                faults.push(format!("one request had these runs: {runs:?}"));
            }
            if let Some(flaw) = sent.flaw
                && !runs.is_empty()
            {
                faults.push(format!("a request with a flaw ran: {flaw:?}, {runs:?}"));
            }
            if let Some(deadline) = sent.deadline
                && deadline.work.saturating_duration_since(sent.at) < SHORTEST_RUN
                && !runs.is_empty()
            {
                faults.push(format!("a request ran with too little time: {sent:?}, {runs:?}"));
            }
            if let Some(wrong) = self.wrong_answer(number, sent, runs.first().copied(), history) {
                faults.push(format!("{wrong}: request {number}, {sent:?}, {runs:?}"));
            }
            if let Some(Answer::Receipt { request, is_replayed: true, .. }) = sent.answer()
                && *replayed.entry(&sent.identity).or_insert(*request) != *request
            {
                faults.push(format!("another response was replayed before: request {number}, {sent:?}"));
            }
        }
        faults
    }

    /// Whether the store answered this to the request of this number, before this time.
    pub(super) fn was_told(&self, number: usize, told: Acquired, before: Instant) -> bool {
        self.acquires.iter().any(|(of, acquired, at)| (*of, *acquired) == (number, told) && *at < before)
    }

    /// The runs of the request with this number.
    pub(crate) fn runs_of(&self, number: usize) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.plan.request == number)
    }

    /// What is wrong with a run, by itself and by the calls of its record.
    fn wrong_run(&self, run: &Run, history: &History) -> Vec<&'static str> {
        let operations = history.keys.get(&run.key).map_or(&[][..], Vec::as_slice);
        let is_right = |operation: &Operation| is_settled_right(run, &operation.call);
        let told = (run.fence, run.attempt, run.is_recovery);
        let mut claims = operations.iter().filter_map(Operation::acquired);
        let is_told = claims.any(|claim| (claim.fence, claim.attempt, claim.recovery) == told);
        let told = (!is_told).then_some("it was told of another attempt");
        // Without a task of its own, a run is not settled after its client has gone.
        let is_cancelled = !run.kind.spawns && self.sent[run.plan.request].answered.is_none();
        let settled = wrong_settling(operations, run.fence, run.ended.is_some() && !is_cancelled, is_right);
        run.faults.iter().copied().chain(told).chain(settled).collect()
    }

    /// Keys with several records, records of several keys, and answers that no call of their key explains.
    fn wrong_records(&self, history: &History) -> Vec<String> {
        let mut faults = Vec::new();
        let mut records: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
        for run in &self.runs {
            records.entry(self.sent[run.plan.request].identity.key()).or_default().insert(&run.key);
        }
        let different: BTreeSet<_> = records.values().flatten().collect();
        if records.values().any(|records| records.len() > 1) || different.len() < records.len() {
            faults.push(format!("each key has a record of its own: {records:?}"));
        }
        for (key, records) in records {
            let calls = history.keys.iter().filter(|(record, _)| records.contains(record.as_str()));
            let mut unused: BTreeMap<&str, i64> = BTreeMap::new();
            for kind in calls.flat_map(|(_, calls)| calls).filter_map(|call| answered_with(&call.answer)) {
                *unused.entry(kind).or_default() += 1;
            }
            // A parked recovery does not run, and fails for good.
            let calls = history.keys.iter().filter(|(record, _)| records.contains(record.as_str()));
            let is_parked = |record: &str, call: &Operation| matches!(&call.call, Call::Fail { claim, permanent: true, .. } if !self.runs.iter().any(|run| run.key == record && run.fence == claim.fence));
            let parked = calls.flat_map(|(record, calls)| calls.iter().filter(move |call| is_parked(record, call)));
            *unused.entry("failed-before").or_default() += i64::try_from(parked.count()).unwrap();
            // The store answers a request that does not run.
            let of_key = self.sent.iter().enumerate().filter(|(_, sent)| sent.identity.key() == key);
            let of_store = of_key.filter(|(number, _)| self.runs_of(*number).next().is_none());
            for kind in of_store.filter_map(|(_, sent)| sent.answer()?.of_store()) {
                *unused.entry(kind).or_default() -= 1;
            }
            if unused.values().any(|count| *count < 0) {
                faults.push(format!("{key:?} has answers that the store did not give: {unused:?}"));
            }
        }
        faults
    }

    /// Records that were completed without a run.
    fn wrong_completions(&self, history: &History) -> Vec<String> {
        let runs: BTreeSet<_> = self.runs.iter().map(|run| (run.key.as_str(), run.fence)).collect();
        let is_wrong = |key: &str, operation: &Operation| matches!(&operation.call, Call::Complete { claim, .. } if !runs.contains(&(key, claim.fence)));
        let operations = history.keys.iter().flat_map(|(key, operations)| operations.iter().map(move |one| (key, one)));
        let wrong = operations.filter(|(key, operation)| is_wrong(key, operation));
        wrong.map(|(key, operation)| format!("{key} was completed without a run: {operation}")).collect()
    }
}

/// Whether a call settles this run as it ended.
fn is_settled_right(run: &Run, call: &Call) -> bool {
    let is_uncertain = matches!(call, Call::Fail { uncertain: true, .. });
    match run.ended {
        _ if run.may_be_cut() && is_uncertain => true,
        Some(Ending::Answer(429 | 503) | Ending::Unavailable) => matches!(call, Call::Release { .. }),
        Some(Ending::Answer(status)) if run.kind.keeps(status) => matches!(call, Call::Complete { .. }),
        Some(Ending::Garbage) => matches!(call, Call::Complete { .. }),
        Some(Ending::Permanent) => {
            matches!(call, Call::Fail { uncertain, permanent: true, .. } if *uncertain == run.is_recovery)
        }
        Some(_) | None => is_uncertain,
    }
}

/// Whether the store answered that it recorded how this run ended.
fn is_recorded(run: &Run, history: &History) -> bool {
    let operations = history.keys.get(&run.key).into_iter().flatten();
    let mut of_run = operations.filter(|call| call.claim().is_some_and(|claim| claim.fence == run.fence));
    of_run.any(|call| call.answer == history::Answer::Recorded)
}

/// The answer to a request that got this answer of the store, by [`Answer::of_store`].
fn answered_with(answer: &history::Answer) -> Option<&'static str> {
    match answer {
        history::Answer::Mismatch => Some("mismatch"),
        history::Answer::Conflict { .. } => Some("in-flight"),
        history::Answer::Failed => Some("failed-before"),
        history::Answer::Duplicate { .. } => Some("replayed"),
        _ => None,
    }
}
