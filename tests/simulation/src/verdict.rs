//! The verdict on a run.
//!
//! - `attempts`: runs of the work
//! - `messages`: deletions, acknowledgements, dead letters and order
//! - `requests`: settings and results

mod attempts;
mod messages;
mod requests;

use history::{Outside, Report};

use crate::plan::Fault;
use crate::world::Run;

use requests::wrong_requests;

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
        let wrong_attempts = self.wrong_attempts();
        faults.extend(report.wrong_effects.iter().chain(&wrong_attempts).filter(|fault| !is_lost(fault)).cloned());
        faults.extend(self.wrong_messages());
        faults.extend(self.wrong_acknowledgements());
        faults.extend(wrong_requests(&self.plan, &self.history));
        faults.extend(self.wrong_order());
        if !self.drained {
            faults.push("the queue did not drain".to_owned());
        }
        Verdict { report, faults }
    }
}
