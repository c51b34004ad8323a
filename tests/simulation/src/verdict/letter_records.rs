//! Whether the record of each dead letter has the terms of the function, is settled once as its send ended, and in
//! time.

use std::time::Duration;

use history::{Answer, Call, Hex, Operation};
use idempotent_sqs::idempotency::MessageIdHash;
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::plan::Fault;
use crate::sqs::SdkCall;
use crate::world::Run;

use super::invocations::{CLOCK_US, is_of};
use super::letters::letter_key;

/// After a send that failed as late as this, no further letter of the invocation is tried.
const SLOW_US: u64 = 500_000;

impl Run {
    /// What is wrong with the records of dead letters.
    pub(super) fn wrong_letter_records(&self) -> Vec<String> {
        let all = self.history.keys.values().flatten().chain(&self.history.not_executed);
        let of_letters = all.filter(|call| call.is_of_dead_letter() && !self.has_terms(call));
        let mut wrong: Vec<_> =
            of_letters.map(|call| format!("{}: not with the terms of the function: {call}", call.call.key())).collect();
        for invoked in &self.invocations {
            let calls = self.calls(invoked);
            let of_letters = || calls.iter().copied().filter(|call| call.is_of_dead_letter());
            // Releases and failures are repeated until the store replies.
            let settles = || of_letters().filter(|call| matches!(call.call, Call::Complete { .. } | Call::Fail { .. }));
            for call in settles() {
                let is_fail = |call: &Operation| matches!(call.call, Call::Fail { .. });
                let may_be_repeated = |earlier: &Operation| earlier.is_failed() && is_fail(earlier) && is_fail(call);
                let is_earlier =
                    |other: &&Operation| other.number < call.number && other.call.request() == call.call.request();
                if settles().filter(is_earlier).any(|earlier| !may_be_repeated(earlier)) {
                    wrong.push(format!("{}: the record of this letter was settled twice: {call}", call.call.key()));
                }
                if !self.is_settled_as_sent(invoked, call) {
                    wrong.push(format!("{}: {call} is not how its send ended", call.call.key()));
                }
            }
            wrong.extend(self.late_letters(invoked, of_letters()));
            wrong.extend(self.not_tried(invoked, &calls));
            wrong.extend(taken_for_sent(invoked, &calls));
        }
        wrong
    }

    /// Whether the record is kept as long as those of the function, and its attempts do not end.
    fn has_terms(&self, call: &Operation) -> bool {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request = call.call.request();
        let longest_ms = ms(self.plan.longest_lease);
        request.retention_ms == ms(self.plan.retention)
            && request.longest_lease_ms == longest_ms
            && request.max_attempts == u8::MAX
    }

    /// Whether this call settles as the send of its letter ended: a letter that SQS refused is no attempt. A send that
    /// was cancelled may have been accepted.
    fn is_settled_as_sent(&self, invoked: &Invoked, call: &Operation) -> bool {
        let mut calls = self.calls(invoked).into_iter();
        let is_own = |other: &&Operation| other.call.request() == call.call.request();
        let acquire = calls.rfind(|other| matches!(other.call, Call::Acquire { .. }) && is_own(other));
        let claim_ends_us = acquire.map_or(0, |acquire| self.claim_ends_us(acquire));
        let ends_us = self.letters_end_us(invoked).min(claim_ends_us) - CLOCK_US.min(claim_ends_us);
        !matches!(call.call, Call::Fail { .. }) || call.invoked_us >= ends_us
    }

    /// Letters that are acquired, or sent, after half of the time for settling.
    fn late_letters<'a>(&self, invoked: &Invoked, calls: impl Iterator<Item = &'a Operation>) -> Vec<String> {
        let ends_us = self.letters_end_us(invoked) + CLOCK_US;
        // A process that does not run for some time sees the end of a call late.
        let is_frozen = self.plan.has(Fault::Freeze);
        let is_late_end = |ended_us: Option<u64>| !is_frozen && ended_us.is_some_and(|ended_us| ended_us > ends_us);
        // One without an answer was cancelled.
        let is_late = |call: &&Operation| {
            call.returned_us.is_some() && (call.invoked_us > ends_us || is_late_end(call.returned_us))
        };
        let acquires = calls.filter(|call| matches!(call.call, Call::Acquire { .. })).filter(is_late);
        let mut wrong: Vec<_> =
            acquires.map(|call| format!("{}: this letter is too late: {call}", call.call.key())).collect();
        let is_late = |call: &SdkCall| call.at_us > ends_us || is_late_end(call.ended_us);
        let late = self.sends(invoked).filter(|call| is_late(call));
        wrong.extend(late.map(|call| format!("this send of a letter is too late: {call:?}")));
        wrong
    }

    /// Whether a send of a letter took so long that no further one is tried, if it failed.
    pub(super) fn had_slow_letter(&self, invoked: &Invoked) -> bool {
        let lasted_us = |send: &SdkCall| send.ended_us.unwrap_or(invoked.until_us).saturating_sub(send.at_us);
        self.sends(invoked).any(|send| lasted_us(send) + CLOCK_US >= SLOW_US)
    }

    /// Messages that cannot succeed, as a record showed in time, and whose letter was not tried.
    fn not_tried(&self, invoked: &Invoked, calls: &[&Operation]) -> Vec<String> {
        let ends_us = self.letters_end_us(invoked) - CLOCK_US;
        let is_final = |call: &Operation| match call.call {
            Call::Acquire { .. } => matches!(call.answer, Answer::Failed | Answer::Mismatch),
            Call::Fail { permanent, .. } => permanent && call.answer == Answer::Recorded,
            Call::Complete { .. } | Call::Release { .. } => false,
        };
        let has_failed = |message: &ReceivedMessage| {
            calls.iter().any(|call| is_of(call, message) && is_final(call) && call.ends_us() < ends_us)
        };
        let is_tried = |message: &ReceivedMessage| {
            let key = letter_key(&message.message_id);
            calls.iter().any(|call| call.call.key() == key)
        };
        let is_movable = |message: &&ReceivedMessage| {
            let malformed = &invoked.malformed;
            !malformed.attributes.contains(&message.message_id) && !malformed.messages.contains(&message.message_id)
        };
        // The letter of a message whose process does not run may be too late.
        if self.plan.is_own_letter_queue || self.plan.has(Fault::Freeze) || self.had_slow_letter(invoked) {
            return Vec::new();
        }
        let kept =
            invoked.messages.iter().filter(is_movable).filter(|message| has_failed(message) && !is_tried(message));
        kept.map(|message| format!("{}: cannot succeed, and its letter was not tried: {invoked:?}", message.body))
            .collect()
    }
}

/// Messages of another queue, whose letter was taken for sent because a message with the same id was. Their redrive
/// policy moves them.
fn taken_for_sent(invoked: &Invoked, calls: &[&Operation]) -> Vec<String> {
    let is_taken = |call: &&&Operation| {
        let mut others = invoked.malformed.other_queue.iter();
        let is_other = others.any(|id| call.call.request().message == Hex(*MessageIdHash::of(id).as_bytes()));
        call.is_of_dead_letter() && is_other && matches!(call.answer, Answer::Duplicate { .. })
    };
    let taken = calls.iter().filter(is_taken);
    taken.map(|call| format!("{}: taken for the letter of another queue's message: {call}", call.call.key())).collect()
}
