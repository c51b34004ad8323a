//! The verdict on a run.
//!
//! - `attempts`: runs of the work
//! - `invocations`: claims that are not settled, leases, visibility timeouts and responses
//! - `letters`: dead letters
//! - `messages`: deletions, acknowledgements and order
//! - `requests`: settings and results
//! - `settling`: how runs are settled

mod attempts;
mod invocations;
mod letters;
mod messages;
mod requests;
mod settling;

use history::{Allowances, Outside, Report};

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
        // Servers, processes and the recorder read one clock.
        let allowances = Allowances { repeats: u8::from(!self.plan.is_quiet), ..Allowances::EXACT };
        let report = Report::of_functions(&self.history, &Outside { effects, deleted: Vec::new() }, allowances);
        let mut faults = Vec::new();
        let contention = Report::of_calls(&self.contention, 0);
        faults.extend(contention.faults().map(|fault| format!("contention: {fault}")));
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
        faults.extend(self.wrong_letters());
        faults.extend(self.wrong_acknowledgements());
        faults.extend(self.wrong_invocations());
        faults.extend(self.wrong_settling());
        faults.extend(wrong_requests(&self.plan, &self.history));
        faults.extend(self.wrong_order());
        if !self.drained {
            faults.push("the queue did not drain".to_owned());
        }
        Verdict { report, faults }
    }
}
