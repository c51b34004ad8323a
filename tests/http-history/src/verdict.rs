//! Whether the runs were settled as their responses say, and the answers that clients got are those of the runs.

mod answers;
mod logs;
mod reports;
mod times;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use harness::lines::Line;
use history::{Call, History, Operation, wrong_settling};

use crate::answer::Answer;
use crate::clients::Sent;
use crate::handler::Ending;
use crate::reported::Reported;
use crate::request::Identity;
use crate::runs::{Run, UnprotectedRun};
use crate::service::GRACE;
use crate::store::Asked;

/// With less time, a request is not started.
const SHORTEST_RUN: Duration = Duration::from_millis(50);

/// The requests of a run, by their numbers, and the runs of the handler.
#[derive(Debug)]
pub struct Seen {
    pub(crate) sent: Vec<Sent>,
    pub(crate) runs: Vec<Run>,
    pub(crate) unprotected: Vec<UnprotectedRun>,
    /// What the services reported.
    pub(crate) reports: Vec<Reported>,
    /// What they logged.
    pub(crate) lines: Vec<Line>,
    /// The acquires of all requests, one after another.
    pub(crate) asked: Vec<Asked>,
    /// The requests whose object was read.
    pub(crate) read: BTreeSet<usize>,
    /// How late the machine was at most.
    pub(crate) late: Duration,
    /// Whether each key has a response that is kept.
    pub(crate) is_finished: bool,
}

impl Seen {
    /// The kind of each answer.
    pub fn kinds(&self) -> impl Iterator<Item = String> {
        self.sent.iter().map(|sent| sent.answer().map_or_else(|| "not awaited".to_owned(), Answer::name))
    }

    /// Everything that is wrong from outside.
    #[must_use]
    pub fn faults(&self, history: &History) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.is_finished {
            faults.push("a key has no response that is kept".to_owned());
        }
        for run in &self.runs {
            faults.extend(self.wrong_run(run, history).into_iter().map(|fault| format!("{fault}: {run:?}")));
        }
        faults.extend(self.wrong_records());
        faults.extend(self.wrong_completions(history));
        faults.extend(self.wrong_reports(history));
        faults.extend(self.wrong_lines());
        faults.extend(self.wrong_waits());
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
            let wrong_times = self.wrong_times(number, sent, runs.first().copied());
            let wrong = wrong_times.into_iter().chain(self.wrong_acquires(number, sent));
            faults.extend(wrong.map(|wrong| format!("{wrong}: request {number}, {sent:?}, {runs:?}")));
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

    /// The acquires of the request with this number, one after another.
    pub(super) fn asked_for(&self, number: usize) -> impl Iterator<Item = &Asked> {
        self.asked.iter().filter(move |asked| asked.request == number)
    }

    /// The run of the request with this number without the store.
    pub(super) fn unprotected_run(&self, number: usize) -> Option<&UnprotectedRun> {
        self.unprotected.iter().find(|run| run.request == number)
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
        // Nor if the machine was too late for it.
        let time = if run.is_late { GRACE / 10 } else { GRACE };
        let must_settle = run.ended.is_some() && !is_cancelled && self.late < time && !run.kind.holds(run.fence);
        let settled = wrong_settling(operations, run.fence, must_settle, is_right);
        run.faults.iter().copied().chain(told).chain(settled).collect()
    }

    /// Keys with several records, and records of several keys.
    fn wrong_records(&self) -> Option<String> {
        let mut records: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
        for run in &self.runs {
            records.entry(self.sent[run.plan.request].identity.key()).or_default().insert(&run.key);
        }
        let different: BTreeSet<_> = records.values().flatten().collect();
        let is_wrong = records.values().any(|records| records.len() > 1) || different.len() < records.len();
        is_wrong.then(|| format!("each key has a record of its own: {records:?}"))
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
        Some(Ending::Answer(429 | 503) | Ending::Unavailable | Ending::Busy) => matches!(call, Call::Release { .. }),
        Some(Ending::Retryable) => {
            let expected = (run.is_recovery, run.is_last());
            matches!(call, Call::Fail { uncertain, permanent, .. } if (*uncertain, *permanent) == expected)
        }
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
