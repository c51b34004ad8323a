//! The verdict on a run.
//!
//! - `attempts`: runs of the work
//! - `closures`: closures that run once
//! - `connections`: connections to Redis, and calls that it did not answer
//! - `endpoints`: answers of works with records of their own by HTTP
//! - `inputs`: keys, payloads and malformed records
//! - `invocations`: claims that are not settled, leases and responses
//! - `jitter`: delays that are drawn at random
//! - `letters`, `letter_records`: dead letters, and their records
//! - `logs`, `reasons`: the log, and the reasons in it
//! - `losses`: lost writes, and the effects that these repeat
//! - `metrics`: metrics of each invocation
//! - `notes`: what lines say of dead letters
//! - `messages`: deletions, acknowledgements and order
//! - `objects`: payloads in S3
//! - `own_records`: works with records of their own
//! - `progress`: messages that wait, and payloads in memory
//! - `receivers`: receivers that are unavailable, and messages that are not started
//! - `reductions`: visibility timeouts that SQS refuses
//! - `requests`: settings and results
//! - `results`: large results in S3
//! - `row_messages`: messages of works with records of their own
//! - `script_calls`: script calls of Redis
//! - `settling`: how runs are settled
//! - `sqs`: calls of SQS
//! - `visibility`: visibility timeouts

mod attempts;
mod closures;
mod connections;
mod endpoints;
mod inputs;
mod invocations;
mod jitter;
mod letter_records;
mod letters;
mod logs;
mod losses;
mod messages;
mod metrics;
mod notes;
mod objects;
mod own_records;
mod progress;
mod reasons;
mod receivers;
mod reductions;
mod requests;
mod results;
mod row_messages;
mod script_calls;
mod settling;
mod sqs;
mod visibility;

use history::{Allowances, Outside, Report};

use crate::http::HttpRun;
use crate::world::Run;

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
        let report = Report::of_functions(&self.history, &Outside { effects, ..Outside::default() }, allowances);
        let mut faults = Vec::new();
        let contention = Report::of_calls(&self.contention, Allowances::EXACT);
        let rows = Report::of_calls(&self.after.row_history, allowances);
        faults.extend(rows.faults().map(|fault| format!("own record: {fault}")));
        if let Some(HttpRun { seen, outside, history }) = &self.after.http {
            let report = Report::of_functions(history, outside, allowances);
            faults.extend(report.faults().chain(seen.faults(history)).map(|fault| format!("http: {fault}")));
        }
        faults.extend(self.parts.iter().cloned());
        faults.extend(contention.faults().map(|fault| format!("contention: {fault}")));
        faults.extend(self.other_values.iter().map(|fault| format!("not a record: {fault}")));
        faults.extend(report.not_linearizable.iter().chain(&report.undecided).chain(&report.not_in_model).cloned());
        faults.extend(self.unexplained(&report));
        faults.extend(self.wrong_attempts());
        faults.extend(self.wrong_connections());
        faults.extend(self.wrong_receivers());
        faults.extend(self.wrong_progress());
        faults.extend(self.wrong_inputs());
        faults.extend(self.wrong_malformed());
        faults.extend(self.wrong_messages());
        faults.extend(self.wrong_letters());
        faults.extend(self.wrong_letter_records());
        faults.extend(self.wrong_attributes());
        faults.extend(self.wrong_calls());
        faults.extend(self.wrong_reductions());
        faults.extend(self.wrong_acknowledgements());
        faults.extend(self.wrong_invocations());
        faults.extend(self.wrong_lines());
        faults.extend(self.wrong_overlaps());
        faults.extend(self.wrong_metrics());
        faults.extend(self.wrong_jitter());
        faults.extend(self.wrong_settling());
        faults.extend(self.wrong_script_calls());
        faults.extend(self.wrong_requests());
        faults.extend(self.wrong_objects());
        faults.extend(self.wrong_results());
        faults.extend(self.wrong_answers());
        faults.extend(self.wrong_order());
        faults.extend(self.wrong_closures());
        faults.extend(self.wrong_own_records());
        if !self.drained {
            faults.push("the queue did not drain".to_owned());
        }
        Verdict { report, faults }
    }
}
