//! Whether calls of SQS have parameters that it accepts and end in time, and whether letters are sent once.

use history::{Answer, Operation};

use crate::function::Invoked;
use crate::plan::Fault;
use crate::queue::{REGION, letters_region};
use crate::sqs::SdkCall;
use crate::world::Run;

use super::invocations::{CLOCK_US, is_during};

/// Longest time of a call, µs: docs/faults.md, row 42, and docs/failures.md.
const LONGEST_US: u64 = 3_000_000;

impl Run {
    /// What is wrong with calls of SQS.
    pub(super) fn wrong_calls(&self) -> Vec<String> {
        let refused = self.refusals.iter().map(|refusal| format!("SQS does not accept these parameters: {refusal}"));
        let mut wrong: Vec<_> = refused.collect();
        // The end of a call is not seen by a process that does not run.
        let is_frozen = self.plan.has(Fault::Freeze);
        let lasts_us = |call: &SdkCall| call.ended_us.unwrap_or(u64::MAX) - call.at_us;
        for call in self.sqs_calls.iter().filter(|call| !is_frozen && lasts_us(call) > LONGEST_US + CLOCK_US) {
            wrong.push(format!("this call lasted too long: {call:?}"));
        }
        let is_elsewhere = |call: &&SdkCall| {
            let region = if call.action == "SendMessage" { letters_region(&self.plan) } else { REGION };
            call.endpoint != (format!("sqs.{region}.amazonaws.com"), region.to_owned())
        };
        let elsewhere = self.sqs_calls.iter().filter(is_elsewhere);
        wrong.extend(elsewhere.map(|call| format!("this call is not for the region of the queue: {call:?}")));
        for invoked in self.timed_out.iter().filter(|_| !is_frozen) {
            wrong.push(format!("this invocation did not end in time: {invoked:?}"));
        }
        for invoked in self.invocations.iter().filter(|_| !is_frozen) {
            wrong.extend(self.not_sent(invoked));
        }
        for invoked in &self.invocations {
            let mut letters: Vec<_> = self.letters_of(invoked).collect();
            let number = letters.len();
            letters.sort_unstable();
            letters.dedup();
            if letters.len() < number {
                wrong.push(format!("a dead letter was sent twice: {invoked:?}"));
            }
        }
        wrong
    }

    /// Letters whose record was acquired in time, and that were not sent. Half of the time for settling is theirs too.
    fn not_sent(&self, invoked: &Invoked) -> Vec<String> {
        let ends_us = self.letters_end_us(invoked) - CLOCK_US;
        let acquires = self.calls(invoked).into_iter().filter(|call| {
            let is_acquired = matches!(call.answer, Answer::Acquired { .. }) && call.is_of_dead_letter();
            let returned_us = call.returned_us.unwrap_or(u64::MAX);
            is_acquired && returned_us < ends_us.min(self.claim_ends_us(call).saturating_sub(CLOCK_US))
        });
        let is_sent = |acquire: &&Operation| {
            let is_later = |call: &SdkCall| acquire.returned_us.is_some_and(|acquired_us| call.at_us >= acquired_us);
            let mut calls = self.sqs_calls.iter().filter(|call| call.process == invoked.process);
            calls.any(|call| call.action == "SendMessage" && is_later(call) && is_during(call.at_us, invoked))
        };
        let not_sent = acquires.filter(|acquire| !is_sent(acquire));
        not_sent.map(|acquire| format!("{}: this dead letter was not sent: {acquire}", acquire.call.key())).collect()
    }

    /// The bodies and attributes of the letters that an invocation sent. A letter whose reply was lost is not sent
    /// again.
    fn letters_of(&self, invoked: &Invoked) -> impl Iterator<Item = String> {
        let is_own = |call: &&SdkCall| call.process == invoked.process && is_during(call.at_us, invoked);
        let letters = self.sqs_calls.iter().filter(|call| call.action == "SendMessage").filter(is_own);
        letters.map(|call| call.input.to_string())
    }
}
