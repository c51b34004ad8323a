//! Whether each invocation settles its claims, asks for leases that end with it, and names no message that is done.

use std::time::Duration;

use history::{Answer, Call, Hex, Operation};
use idempotent_sqs::idempotency::MessageIdHash;
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::world::Run;

/// Resolution of the deadline, which is a time of the wall clock, µs.
pub(super) const CLOCK_US: u64 = 2_000;

/// How long a message is looked up whose payload cannot be read: docs/envelopes.md.
const LOOK_UP: Duration = Duration::from_secs(5);

/// The pause before a call that settles is repeated, µs.
pub(super) const PAUSE_US: u64 = 50_000;

impl Run {
    /// What is wrong with invocations that returned in time.
    pub(super) fn wrong_invocations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for invoked in &self.invocations {
            let calls = self.calls(invoked);
            let acquires = || calls.iter().filter(|call| matches!(call.call, Call::Acquire { .. }));
            for acquire in acquires().filter(|acquire| may_own(acquire)) {
                if !calls.iter().any(|call| settles(call, acquire)) {
                    wrong.push(format!(
                        "{}: this claim was neither settled nor released: {acquire}",
                        acquire.call.key()
                    ));
                }
            }
            for acquire in acquires().filter(|acquire| !self.has_its_lease(acquire, invoked)) {
                wrong.push(format!("{}: this lease does not end with its invocation: {acquire}", acquire.call.key()));
            }
            for acquire in acquires().filter(|acquire| !acquire.is_of_dead_letter()) {
                if acquire.invoked_us > self.work_ends_us(invoked) + CLOCK_US {
                    wrong.push(format!("{}: this acquire is after the deadline: {acquire}", acquire.call.key()));
                }
                // Of a cluster, another node may respond.
                let failed = |other: &&&Operation| {
                    other.answer == Answer::NotExecuted && is_before(other, acquire) && self.plan.servers == 1
                };
                if let Some(failed) = acquires().find(failed) {
                    wrong.push(format!("{}: {acquire} follows {failed}, which found no server", acquire.call.key()));
                }
            }
            if is_failed_without_outage(invoked, &calls) {
                wrong.push(format!("an invocation failed without an outage: {invoked:?}"));
            }
            wrong.extend(self.changed_before_release(invoked, &calls));
            for message in &invoked.messages {
                wrong.extend(self.wrong_visibility(invoked, &calls, message));
                wrong.extend(self.wrong_response(invoked, &calls, message));
                if self.is_acquired_twice(invoked, &calls, message) {
                    wrong.push(format!(
                        "{}: was acquired, and so was its in-batch duplicate: {invoked:?}",
                        message.body
                    ));
                }
                if self.is_held_back(invoked, &calls, message) {
                    wrong.push(format!("{}: was not started, without a reason: {invoked:?}", message.body));
                }
            }
        }
        wrong
    }

    /// The calls of this invocation, also those that were not executed.
    pub(super) fn calls(&self, invoked: &Invoked) -> Vec<&Operation> {
        let calls = self.history.keys.values().flatten().chain(&self.history.not_executed);
        calls.filter(|call| call.process == invoked.process && is_during(call.invoked_us, invoked)).collect()
    }

    /// Whether an acquire asks for a lease until the end of its invocation and the grace, or the longest lease. If the
    /// payload cannot be read, the invocation only looks up whether the message is done.
    fn has_its_lease(&self, acquire: &Operation, invoked: &Invoked) -> bool {
        let since = Duration::from_micros(acquire.invoked_us - invoked.from_us);
        let left = self.plan.function_timeout.saturating_sub(since);
        let ids = invoked.messages.iter().map(|message| &message.message_id);
        let mut own = ids.filter(|id| Hex(*MessageIdHash::of(id).as_bytes()) == acquire.call.request().message);
        let is_look_up =
            !acquire.is_of_dead_letter() && own.any(|id| self.has_no_payload(id, &acquire.process, acquire.invoked_us));
        let lease = if is_look_up { left.min(LOOK_UP) } else { left } + self.plan.grace();
        let expected = lease.min(self.plan.longest_lease);
        Duration::from_millis(acquire.call.request().lease_ms).abs_diff(expected) <= Duration::from_micros(CLOCK_US)
    }

    /// When work ends in this invocation, µs.
    pub(super) fn work_ends_us(&self, invoked: &Invoked) -> u64 {
        let (ends_us, reserve_us) = self.time_us(invoked);
        ends_us - reserve_us
    }

    /// Until when calls that settle are repeated, µs, without the pause before the last one.
    pub(super) fn settling_ends_us(&self, invoked: &Invoked) -> u64 {
        let (ends_us, reserve_us) = self.time_us(invoked);
        ends_us - reserve_us / 3 - PAUSE_US
    }

    /// Until when visibility timeouts are changed in this invocation, µs.
    pub(super) fn changes_end_us(&self, invoked: &Invoked) -> u64 {
        let (ends_us, reserve_us) = self.time_us(invoked);
        ends_us - reserve_us / 8
    }

    /// Until when dead letters are sent in this invocation, µs.
    pub(super) fn letters_end_us(&self, invoked: &Invoked) -> u64 {
        let (ends_us, reserve_us) = self.time_us(invoked);
        ends_us - reserve_us * 2 / 3
    }

    /// When an invocation ends at the latest, and how much of the time is not for work: a second, or a quarter. In µs.
    fn time_us(&self, invoked: &Invoked) -> (u64, u64) {
        let timeout_us = u64::try_from(self.plan.function_timeout.as_micros()).unwrap_or(u64::MAX);
        let ends_us = invoked.from_us + timeout_us;
        (ends_us, (ends_us.saturating_sub(invoked.ran_us) / 4).min(1_000_000))
    }

    /// Whether the response names a message whose work the invocation recorded, or found done, also for an in-batch
    /// duplicate, or is an error although work was recorded. Only without faults is no delete lost.
    fn wrong_response(&self, invoked: &Invoked, calls: &[&Operation], message: &ReceivedMessage) -> Option<String> {
        let ran = self.ran_for(invoked, calls, message).unwrap_or(message);
        let is_done = |call: &&&Operation| {
            is_of(call, ran)
                && match call.call {
                    Call::Acquire { .. } => matches!(call.answer, Answer::Duplicate { .. }),
                    Call::Complete { .. } => matches!(call.answer, Answer::Recorded | Answer::Lost(_)),
                    Call::Fail { .. } | Call::Release { .. } => false,
                }
        };
        if invoked.retained.is_none() && self.is_moved_by(invoked, calls, message) {
            return Some(format!("{}: the invocation failed although its dead letter was sent", message.body));
        }
        let done = calls.iter().find(is_done)?;
        let is_named = |retained: &Vec<String>| self.plan.is_quiet && retained.contains(&message.message_id);
        let is_recorded = matches!(done.call, Call::Complete { .. });
        let is_wrong = invoked.retained.as_ref().map_or(is_recorded, is_named);
        is_wrong.then(|| format!("{}: is delivered again although it is done: {done}", message.body))
    }
}

pub(super) fn is_during(at_us: u64, invoked: &Invoked) -> bool {
    (invoked.from_us..=invoked.until_us).contains(&at_us)
}

/// Whether an invocation returned an error, although each message has a messageId and each call of the store an answer.
fn is_failed_without_outage(invoked: &Invoked, calls: &[&Operation]) -> bool {
    invoked.retained.is_none() && !invoked.malformed.has_unnamed && !has_outage(calls)
}

/// Whether a call of the store failed.
pub(super) fn has_outage(calls: &[&Operation]) -> bool {
    calls.iter().any(|call| call.is_failed())
}

/// Whether an acquire has a claim, or may have one.
fn may_own(acquire: &Operation) -> bool {
    matches!(acquire.answer, Answer::Acquired { .. } | Answer::Unknown)
}

fn is_before(call: &Operation, other: &Operation) -> bool {
    call.returned_us.is_some_and(|returned_us| returned_us < other.invoked_us)
}

/// Whether a call settles or releases the claim of this acquire.
fn settles(call: &Operation, acquire: &Operation) -> bool {
    !matches!(call.call, Call::Acquire { .. })
        && call.call.request() == acquire.call.request()
        && call.invoked_us >= acquire.invoked_us
}

/// Whether any call was made for this message.
pub(super) fn has_calls(calls: &[&Operation], message: &ReceivedMessage) -> bool {
    calls.iter().any(|call| is_of(call, message))
}

/// Whether a call was made for this message.
pub(super) fn is_of(call: &Operation, message: &ReceivedMessage) -> bool {
    call.call.request().message == Hex(*MessageIdHash::of(&message.message_id).as_bytes()) && !call.is_of_dead_letter()
}
