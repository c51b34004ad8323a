//! Whether each closure ran once for its key, and whether each call returned what it should.

use std::time::Duration;

use crate::closures::{Ending, GRACE, MAX_ATTEMPTS, OnceCall, OnceOutcome, PLANNED, TIME};
use crate::world::Run;

/// The error of a failure that could not be recorded in time.
const UNRECORDED: &str = "the idempotency store is unavailable";

/// The error of a closure that was cancelled.
const CANCELLED: &str = "the work was cancelled at the deadline";

impl Run {
    /// What is wrong with calls of `once`. Nothing fails meanwhile.
    pub(super) fn wrong_closures(&self) -> Vec<String> {
        let is_wrong = |(at, call): &(usize, &OnceCall)| !self.is_right(*at, call);
        let calls = self.after.closures.iter().enumerate();
        calls.filter(is_wrong).map(|(at, call)| format!("once: not the outcome of call {at}: {call:?}")).collect()
    }

    /// Whether a call returned what its own run and the other calls with its key explain.
    fn is_right(&self, at: usize, call: &OnceCall) -> bool {
        let Some(outcome) = &call.outcome else { return true };
        let others = || {
            let calls = self.after.closures.iter().enumerate().filter(|(other, _)| *other != at);
            calls.map(|(_, other)| other).filter(|other| other.key == call.key)
        };
        let same = || others().filter(|other| other.payload == call.payload);
        let before = |other: &&OnceCall| other.invoked_us < call.returned_us.unwrap_or(u64::MAX);
        let was_done = |other: &OnceCall| other.ran_to(&[Ending::Return, Ending::ReturnLarge]);
        match outcome {
            OnceOutcome::Value(value) if value.call == at => {
                // Another run before it has returned a value only if nothing else is known of its call.
                let is_first = !same().any(|other| other.is_done() && other.returned_us < Some(call.invoked_us));
                call.ran_to(&[Ending::Return, Ending::ReturnLarge]) && is_first
            }
            OnceOutcome::Value(value) => {
                let of_value = self.after.closures.get(value.call);
                call.run.is_none()
                    && same().filter(before).any(|other| {
                        of_value.is_some_and(|call| std::ptr::eq(call, other)) && other.ran_to(&[Ending::Return])
                    })
            }
            OnceOutcome::Number => {
                call.expects_number
                    && (call.ran_to(&[Ending::Return, Ending::ReturnLarge])
                        || same().filter(before).any(|other| was_done(other) && other.expects_number))
            }
            OnceOutcome::OtherType => {
                call.run.is_none()
                    && same().filter(before).any(|other| was_done(other) && other.expects_number != call.expects_number)
            }
            OnceOutcome::NotKept => {
                let is_large = |other: &OnceCall| other.ran_to(&[Ending::ReturnLarge]) && !other.expects_number;
                call.run.is_none() && same().filter(before).any(is_large)
            }
            OnceOutcome::Conflict { remains } => {
                let is_running = |other: &OnceCall| {
                    let lease_us = us(TIME + GRACE);
                    (other.run.is_some() || other.is_doubtful()) && other.invoked_us + lease_us >= call.invoked_us
                };
                call.run.is_none() && *remains <= TIME + GRACE && others().filter(before).any(is_running)
            }
            // A payload was done, or may have been.
            OnceOutcome::Mismatch => {
                let may_be_done =
                    |other: &OnceCall| other.payload != call.payload && (was_done(other) || other.may_have_effect());
                call.run.is_none() && others().filter(before).any(may_be_done)
            }
            OnceOutcome::FailedBefore => {
                let has_failed = |other: &OnceCall| {
                    matches!(other.outcome, Some(OnceOutcome::Failed { permanent: true, .. }))
                        || other.is_doubtful()
                        || other.run.as_ref().is_some_and(|run| run.attempt >= MAX_ATTEMPTS)
                        || other.parks && other.outcome == Some(OnceOutcome::FailedBefore)
                };
                let may_be_recovery = call.parks && same().filter(before).any(OnceCall::may_have_effect);
                call.run.is_none() && (may_be_recovery || others().filter(before).any(has_failed))
            }
            OnceOutcome::NotStarted | OnceOutcome::NoReply => call.time < TIME && call.run.is_none(),
            OnceOutcome::Failed { error, uncertain, permanent } => call.has_failed(error, *uncertain, *permanent),
            OnceOutcome::Other(_) => false,
        }
    }
}

impl OnceCall {
    /// Whether its closure ran, and ended in one of these ways.
    fn ran_to(&self, endings: &[Ending]) -> bool {
        self.run.is_some() && endings.contains(&self.ending)
    }

    /// Whether its value was recorded.
    fn is_done(&self) -> bool {
        matches!(self.outcome, Some(OnceOutcome::Value(_) | OnceOutcome::Number))
    }

    /// Whether it may not have recorded how its run ended.
    fn is_doubtful(&self) -> bool {
        self.time < TIME || self.outcome.is_none()
    }

    /// Whether its run may have had its effect although it returned no value.
    fn may_have_effect(&self) -> bool {
        self.is_doubtful()
            || self.run.as_ref().is_some_and(|run| run.is_recovery)
            || self.ran_to(&[Ending::Uncertain, Ending::Panic, Ending::Wait])
    }

    /// Whether it failed as its closure did.
    fn has_failed(&self, error: &str, uncertain: bool, permanent: bool) -> bool {
        let Some(run) = &self.run else { return false };
        let is_last = run.attempt >= MAX_ATTEMPTS;
        let expected = match self.ending {
            _ if self.time < TIME && error == CANCELLED => (CANCELLED, true, is_last),
            _ if self.time < TIME && error == UNRECORDED => (UNRECORDED, true, false),
            Ending::Retryable => (PLANNED, run.is_recovery, is_last),
            Ending::Unavailable => (PLANNED, run.is_recovery, false),
            Ending::Uncertain => (PLANNED, true, is_last),
            Ending::Permanent => (PLANNED, run.is_recovery, true),
            Ending::Panic => ("the work panicked", true, is_last),
            Ending::Wait => (CANCELLED, true, is_last),
            Ending::Return | Ending::ReturnLarge => return false,
        };
        (error, uncertain, permanent) == expected
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
