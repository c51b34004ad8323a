//! Whether the answers that clients got are those of the runs, and the runs were settled as their responses say.

use std::collections::{BTreeMap, BTreeSet};

use history::{Call, History, Operation, wrong_settling};

use super::clients::{Answer, Flaw, Identity, NOT_KEPT, Sent, is_kept};
use super::service::{Ending, KEPT_BYTES, Run, kept_headers, receipt};

/// The requests of a run, by their numbers, and the runs of the handler.
pub(crate) struct Seen {
    pub(crate) sent: Vec<Sent>,
    pub(crate) runs: Vec<Run>,
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
            faults.extend(run.faults.iter().map(|fault| format!("{fault}: {run:?}")));
            let operations = history.keys.get(&run.key).map_or(&[][..], Vec::as_slice);
            let is_right = |operation: &Operation| is_settled_right(run, &operation.call);
            if let Some(wrong) = wrong_settling(operations, run.fence, run.ended.is_some(), is_right) {
                faults.push(format!("{wrong}: {run:?}"));
            }
        }
        faults.extend(self.wrong_records(history));
        let mut replayed: BTreeMap<&Identity, usize> = BTreeMap::new();
        for (number, sent) in self.sent.iter().enumerate() {
            let runs: Vec<_> = self.runs.iter().filter(|run| run.plan.request == number).collect();
            if runs.len() > 1 {
                faults.push(format!("one request had these runs: {runs:?}"));
            }
            if let Some(flaw) = sent.flaw
                && !runs.is_empty()
            {
                faults.push(format!("a request with a flaw ran: {flaw:?}, {runs:?}"));
            }
            let Some(answer) = &sent.answer else { continue };
            if let Some(wrong) = self.wrong_answer(number, sent, answer, runs.first().copied()) {
                faults.push(format!("{wrong}: request {number}, {sent:?}, {runs:?}"));
            }
            if let Answer::Receipt { request, is_replayed: true, .. } = answer
                && *replayed.entry(&sent.identity).or_insert(*request) != *request
            {
                faults.push(format!("another response was replayed before: request {number}, {sent:?}"));
            }
        }
        faults
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
            let of_key = self.sent.iter().filter(|sent| sent.identity.key() == key);
            for kind in of_key.filter_map(|sent| sent.answer.as_ref()?.of_store()) {
                *unused.entry(kind).or_default() -= 1;
            }
            if unused.values().any(|count| *count < 0) {
                faults.push(format!("{key:?} has answers that the store did not give: {unused:?}"));
            }
        }
        faults
    }

    /// What is wrong with the answer to the request of this number. `own` is its run.
    fn wrong_answer(&self, number: usize, sent: &Sent, answer: &Answer, own: Option<&Run>) -> Option<&'static str> {
        let rejected = match answer {
            Answer::Problem { kind, .. } => [Flaw::Cut, Flaw::TwoKeys].into_iter().find(|flaw| flaw.problem() == kind),
            Answer::Receipt { .. } | Answer::Error => None,
        };
        if rejected != sent.flaw {
            return Some("a flaw that was missed, or that the request does not have");
        }
        match answer {
            Answer::Error if own.is_some_and(|run| run.ended == Some(Ending::Error)) => None,
            Answer::Error => Some("an error of another run"),
            Answer::Receipt { request, .. } => {
                let run = self.runs.iter().find(|run| run.plan.request == *request);
                let maker = self.sent.get(*request).filter(|maker| maker.identity == sent.identity);
                match (maker, run) {
                    (Some(_), Some(run)) => wrong_receipt(answer, run, *request == number, own),
                    _ => Some("the response to another request"),
                }
            }
            Answer::Problem { status, kind } => self.wrong_problem((*status, kind), sent, own),
        }
    }

    fn wrong_problem(&self, (status, kind): (u16, &str), sent: &Sent, own: Option<&Run>) -> Option<&'static str> {
        let expected = match kind {
            "in-flight" => 409,
            "mismatch" => 422,
            "store-unavailable" | "not-started" => 503,
            "failed" | "failed-before" => 500,
            "deadline" => 504,
            "body-too-large" => 413,
            "key-malformed" => 400,
            NOT_KEPT => 410,
            _ => return Some("an unexpected problem"),
        };
        let has_failed = |run: &Run| match run.ended {
            None | Some(Ending::BreakOff | Ending::Panic) => true,
            Some(Ending::Error) => run.is_endpoint,
            Some(Ending::Answer(_)) => false,
        };
        // A response of an endpoint that was too large.
        let is_not_kept = |run: &Run| {
            run.is_endpoint && run.plan.bytes > KEPT_BYTES && self.sent[run.plan.request].identity == sent.identity
        };
        let is_other_of_key = |other: &Sent| {
            other.flaw.is_none()
                && other.identity.key() == sent.identity.key()
                && other.identity.variant != sent.identity.variant
        };
        match kind {
            _ if status != expected => Some("another status than that of the problem"),
            "failed" | "deadline" if !own.is_some_and(has_failed) => Some("a run that did not fail"),
            "failed" | "deadline" => None,
            _ if own.is_some() => Some("a request that ran was told that it did not"),
            NOT_KEPT if !self.runs.iter().any(is_not_kept) => Some("a response that was kept"),
            "mismatch" if !self.sent.iter().any(is_other_of_key) => Some("no other request had this key"),
            _ => None,
        }
    }
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

/// What is wrong with a response of this run, which is that of the request itself if it `is_own`.
fn wrong_receipt(answer: &Answer, run: &Run, is_own: bool, own: Option<&Run>) -> Option<&'static str> {
    let Answer::Receipt { status, headers, body, has_session, is_replayed, is_omitted, .. } = answer else {
        return None;
    };
    let whole = receipt(&run.plan);
    if run.ended != Some(Ending::Answer(*status)) {
        Some("a response that the run did not return")
    } else if *headers != kept_headers(&run.plan) {
        Some("other headers")
    } else if *is_replayed == is_own {
        Some("the wrong mark of a replay")
    } else if *has_session != (is_own && !run.is_endpoint) {
        Some("the session of another client, or none")
    } else if *is_replayed && !is_kept(*status) {
        Some("a response that is not kept was replayed")
    } else if *is_replayed && own.is_some() {
        Some("a replay to a request that ran")
    } else if *is_omitted && (is_own || whole.len() < KEPT_BYTES || !body.is_empty()) {
        Some("a body that was omitted without need")
    } else if !*is_omitted && *body != whole {
        Some("another body")
    } else {
        None
    }
}

/// Whether a call settles this run as it ended.
fn is_settled_right(run: &Run, call: &Call) -> bool {
    match run.ended {
        Some(Ending::Answer(429 | 503)) => matches!(call, Call::Release { .. }),
        Some(Ending::Answer(status)) if is_kept(status) => matches!(call, Call::Complete { .. }),
        Some(_) | None => matches!(call, Call::Fail { uncertain: true, .. }),
    }
}
