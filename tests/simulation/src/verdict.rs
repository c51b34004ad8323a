//! The verdict on a run.

use std::collections::{BTreeMap, BTreeSet};

use history::{Outside, Report};
use idempotent_sqs_testing::MessageState;

use crate::plan::Fault;
use crate::receiver::is_poison;
use crate::world::Run;

/// The verdict on a run. Each fault is one text.
pub struct Verdict {
    pub report: Report,
    pub faults: Vec<String>,
}

impl Run {
    pub fn verdict(&self) -> Verdict {
        let effects: Vec<_> = self.effects.iter().map(|counted| counted.effect.clone()).collect();
        let report = Report::of_functions(&self.history, &Outside { effects, deleted: Vec::new() });
        let mut faults = Vec::new();
        faults.extend(report.not_linearizable.iter().chain(&report.undecided).chain(&report.not_in_model).cloned());
        let losses = &report.lost_writes;
        let may_lose = self.plan.has(Fault::FailOver) || self.plan.has(Fault::Flush);
        if !may_lose {
            faults.extend(losses.iter().cloned());
        }
        let is_lost = |fault: &str| {
            let key = fault.split(": ").next();
            may_lose && losses.iter().any(|loss| loss.split(": ").next() == key)
        };
        faults.extend(report.wrong_effects.iter().filter(|fault| !is_lost(fault)).cloned());
        faults.extend(self.wrong_messages());
        if !self.drained {
            faults.push("the queue did not drain".to_owned());
        }
        Verdict { report, faults }
    }

    /// What is wrong with messages: each was deleted after its effect, or after its dead letter was sent.
    fn wrong_messages(&self) -> Vec<String> {
        let done: BTreeSet<_> = self.effects.iter().map(|counted| counted.body.as_str()).collect();
        let letters: BTreeMap<_, _> = self.letters.iter().map(|(id, outcome)| (id.as_str(), outcome.as_str())).collect();
        let mut wrong = Vec::new();
        for message in &self.messages {
            let outcome = message.message_ids.iter().find_map(|id| letters.get(id.as_str()));
            let why = match (&message.state, outcome) {
                (MessageState::Deleted, None) if !done.contains(message.body.as_str()) => "was deleted without its effect",
                (MessageState::Expired, _) => "expired",
                (_, Some(&"FAILED_PERMANENTLY" | &"FAILED_BEFORE"))
                    if !is_poison(self.seed, &message.body) && self.plan.max_attempts > 100 =>
                {
                    "has a dead letter, although its work can succeed"
                }
                _ => continue,
            };
            wrong.push(format!("{} {why}, dead letter {outcome:?}: {message:?}", message.body));
        }
        wrong
    }
}
