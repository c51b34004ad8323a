//! Whether each call of a work with its own record has the outcome that this record and the store's answers explain,
//! and is settled as its attempt ended.

use std::time::Duration;

use history::{Answer, Call, Operation};
use idempotent_sqs::idempotency::{Decision, Outcome, Report, StoreError, WorkErrorKind};
use idempotent_sqs::sqs::{Disposition, MessageReport};

use crate::own_records::{
    BUSY, MAX_ATTEMPTS, Missing, Read, Returned, Row, RowAttempt, RowCall, RowOutcome, longest_lease,
};
use crate::world::Run;

use super::endpoints::is_answered;
use super::invocations::{CLOCK_US, PAUSE_US};
use super::row_messages::is_reported;

impl Run {
    /// What is wrong with calls of works with their own records.
    pub(super) fn wrong_own_records(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for call in &self.after.rows {
            let made = self.row_calls(call);
            // A message without its payload is compared by its key alone.
            let is_same = |row: &Row| row.payload == call.payload || call.missing.is_some();
            let is_done = |row: &Option<Row>| row.as_ref().is_some_and(|row| is_same(row) && row.result.is_some());
            let decision = match &call.outcome {
                RowOutcome::Report(report) => report.as_ref().ok().map(|report| report.decision(1)),
                RowOutcome::Answer(answer) => (answer.status == 201).then_some(Decision::Ack),
                RowOutcome::Message(report) => report.as_ref().ok().and_then(decision),
            };
            let checks = [
                (
                    is_expected(call, &made, longest_lease(&self.plan)),
                    "not the outcome of its attempt, or of its record",
                ),
                (is_settled(call, &made), "not settled as its attempt ended"),
                (decision != Some(Decision::Ack) || is_done(&call.rows[1]), "acknowledged, but not done"),
                (decision != Some(Decision::DeadLetter) || !is_done(&call.rows[0]), "a dead letter, but done before"),
            ];
            let faults = checks.into_iter().filter(|(holds, _)| !holds);
            wrong.extend(faults.map(|(_, fault)| format!("own record: {fault}: {call:?} made {made:?}")));
        }
        wrong
    }

    /// The calls of the store that this call made, in their order.
    fn row_calls(&self, call: &RowCall) -> Vec<&Operation> {
        let calls = self.after.row_history.keys.values().flatten().chain(&self.after.row_history.not_executed);
        let is_during = |made: &&Operation| (call.invoked_us..=call.returned_us).contains(&made.invoked_us);
        let mut calls: Vec<_> = calls.filter(|made| made.process == call.process).filter(is_during).collect();
        calls.sort_by_key(|made| made.number);
        calls
    }
}

/// What to do with a message that has this report, if that is decided.
fn decision(report: &MessageReport) -> Option<Decision> {
    match (report.disposition, report.dead_letter) {
        (Disposition::Done, _) => Some(Decision::Ack),
        (_, Some(_)) => Some(Decision::DeadLetter),
        _ => None,
    }
}

/// Whether the outcome is that of the attempt, of the read, or of the store's answer.
fn is_expected(call: &RowCall, made: &[&Operation], longest_lease: Duration) -> bool {
    let outcome = match &call.outcome {
        RowOutcome::Report(outcome) => outcome,
        RowOutcome::Answer(answer) => return is_answered(call, answer, made, longest_lease),
        RowOutcome::Message(Ok(report)) => return is_reported(call, report, made),
        RowOutcome::Message(Err(error)) => return is_outage(call, error),
    };
    let answer = made.iter().find_map(|made| matches!(made.call, Call::Acquire { .. }).then_some(&made.answer));
    match (&call.attempt, &call.read, outcome) {
        (Some(attempt), None, Ok(report)) => {
            let is_own = report.fence.is_some_and(|fence| fence.0 == attempt.fence)
                && (report.attempts, report.recovery) == (Some(attempt.number), attempt.is_recovery);
            is_own && is_of_attempt(report, attempt, made)
        }
        (None, Some(read), Ok(report)) => match (read, &report.outcome) {
            (Read::Done(row), Outcome::Duplicate { result }) => result.as_ref() == Some(row),
            // The store did not keep the result.
            (Read::Unavailable, Outcome::Duplicate { result: None }) => {
                matches!(answer, Some(Answer::Duplicate { .. }))
            }
            (Read::NotDone, Outcome::Mismatch) | (Read::Unfinished, Outcome::Unavailable { .. }) => {
                answer == Some(&Answer::Mismatch)
            }
            (Read::NotDone, Outcome::FailedBefore) => answer == Some(&Answer::Failed),
            (Read::Unfinished, Outcome::FailedPermanently { uncertain, .. }) => {
                *uncertain && answer == Some(&Answer::Failed)
            }
            (Read::Unavailable, Outcome::Unavailable { .. }) => true,
            _ => false,
        },
        (None, None, Ok(report)) => match &report.outcome {
            Outcome::Duplicate { result } => {
                call.rows[1].as_ref().is_some_and(|row| row.payload == call.payload && row.result == *result)
            }
            Outcome::Conflict { lease_remains } => *lease_remains <= longest_lease,
            Outcome::NotStarted => call.returned_us + CLOCK_US >= call.work_ends_us,
            _ => false,
        },
        (_, None, Err(error)) => is_outage(call, error),
        (Some(_), Some(_), _) | (None, Some(_), Err(_)) => false,
    }
}

/// Whether a call ended with the error of a store, or of a database, that is unavailable.
fn is_outage(call: &RowCall, error: &StoreError) -> bool {
    error.is_unavailable()
        && match &call.attempt {
            Some(attempt) => attempt.returned == Returned::Unreachable,
            // A call goes on without the store if it knows in time that there is none.
            None => !call.is_optional || call.returned_us + CLOCK_US >= call.work_ends_us,
        }
}

/// Whether a report says how this attempt ended.
fn is_of_attempt(report: &Report, attempt: &RowAttempt, made: &[&Operation]) -> bool {
    let settled = made.last().map(|made| &made.answer);
    let is_recorded = settled == Some(&Answer::Recorded);
    let (is_last, doubt) = (attempt.number >= MAX_ATTEMPTS, attempt.is_recovery);
    match (&attempt.returned, &report.outcome) {
        (Returned::Done(row), Outcome::Done { result }) => is_recorded && result == row,
        (Returned::Done(row), Outcome::DoneByOwnRecord { result }) => !is_recorded && result == row,
        (Returned::DoneBefore(row), Outcome::Duplicate { result }) => result.as_ref() == Some(row),
        (Returned::Busy, Outcome::Conflict { lease_remains }) => *lease_remains == BUSY,
        (Returned::Mismatch, Outcome::Mismatch)
        | (
            Returned::Error(WorkErrorKind::Unavailable { .. } | WorkErrorKind::Busy { .. }),
            Outcome::Unavailable { .. },
        ) => true,
        (Returned::Error(_) | Returned::Nothing, Outcome::Unsettled { .. }) => {
            settled.is_some_and(|answer| matches!(answer, Answer::Unknown | Answer::NotExecuted))
        }
        (Returned::Error(_) | Returned::Nothing, Outcome::Lost { done: false, .. }) => {
            matches!(settled, Some(Answer::Lost(_)))
        }
        (Returned::Error(WorkErrorKind::Retryable { .. }), Outcome::Failed { uncertain, .. }) => {
            is_recorded && !is_last && *uncertain == doubt
        }
        (Returned::Error(WorkErrorKind::Retryable { .. }), Outcome::FailedPermanently { uncertain, .. }) => {
            is_recorded && is_last && *uncertain == doubt
        }
        (Returned::Error(WorkErrorKind::Permanent), Outcome::FailedPermanently { uncertain, .. }) => {
            is_recorded && *uncertain == doubt
        }
        // It is never permanent: the next attempt reads the row.
        (Returned::Error(WorkErrorKind::Uncertain) | Returned::Nothing, Outcome::Failed { uncertain, .. }) => {
            is_recorded && *uncertain
        }
        _ => false,
    }
}

/// Whether the claim is settled as its attempt ended: by one call, if the row says that it is done or it was made
/// without the store, and else until the store replies.
fn is_settled(call: &RowCall, made: &[&Operation]) -> bool {
    let Some(attempt) = &call.attempt else { return is_settled_without_payload(call, made) };
    let is_last = attempt.number >= MAX_ATTEMPTS;
    let without_store = !made.iter().any(|made| made.acquired().is_some());
    let settling: Vec<_> = made.iter().filter(|made| !matches!(made.call, Call::Acquire { .. })).collect();
    let is_right = |made: &&Operation| match (&attempt.returned, &made.call) {
        (Returned::Done(_) | Returned::DoneBefore(_), Call::Complete { .. })
        | (
            Returned::Busy
            | Returned::Unreachable
            | Returned::Error(WorkErrorKind::Unavailable { .. } | WorkErrorKind::Busy { .. }),
            Call::Release { .. },
        ) => true,
        // Its number is not known.
        (Returned::Error(WorkErrorKind::Retryable { .. } | WorkErrorKind::Permanent), call) if without_store => {
            matches!(call, Call::Release { .. })
        }
        // Doubts of earlier attempts are cleared, and this one is not counted.
        (Returned::Mismatch, Call::Fail { claim, uncertain, permanent }) => {
            let is_counted = claim.attempt == attempt.number;
            attempt.is_recovery && !without_store && !uncertain && !permanent && !is_counted
        }
        (Returned::Mismatch, Call::Release { .. }) => !attempt.is_recovery || without_store,
        (Returned::Error(kind), Call::Fail { uncertain, permanent, .. }) => match kind {
            WorkErrorKind::Retryable { .. } => (*uncertain, *permanent) == (attempt.is_recovery, is_last),
            WorkErrorKind::Permanent => *uncertain == attempt.is_recovery && *permanent,
            WorkErrorKind::Uncertain => *uncertain && !permanent,
            _ => false,
        },
        (Returned::Nothing, Call::Fail { uncertain, permanent, .. }) => *uncertain && !permanent,
        _ => false,
    };
    let is_once = without_store || matches!(attempt.returned, Returned::Done(_) | Returned::DoneBefore(_));
    is_enough(call, &settling, is_once) && settling.into_iter().all(is_right)
}

/// Whether a claim is settled by one call, or by calls until the store replies or there is no time.
fn is_enough(call: &RowCall, settling: &[&&Operation], is_once: bool) -> bool {
    let has_time = call.returned_us + PAUSE_US + CLOCK_US < call.settling_ends_us;
    let has_reply = settling.last().is_some_and(|made| !made.is_failed());
    if is_once { settling.len() == 1 } else { !settling.is_empty() && (has_reply || !has_time) }
}

/// Whether the claim of a message without its payload is released, unless the payload was deleted and the work is not
/// done, or its row does not say what took effect.
fn is_settled_without_payload(call: &RowCall, made: &[&Operation]) -> bool {
    let (Some(missing), Some(read)) = (call.missing, &call.read) else { return true };
    let fails = (missing, read) == (Missing::Deleted, &Read::NotDone);
    let is_doubtful = *read == Read::Unfinished;
    let settling: Vec<_> = made.iter().filter(|made| !matches!(made.call, Call::Acquire { .. })).collect();
    let is_claimed = made.iter().any(|made| made.acquired().is_some());
    let is_enough = if is_claimed {
        is_enough(call, &settling, matches!(read, Read::Done(_)))
    } else {
        // Without the store, the claim is settled once. There may be none.
        settling.len() <= usize::from(call.is_optional)
    };
    let is_right = |made: &&&Operation| match made.call {
        Call::Fail { permanent, uncertain, .. } => fails && permanent || is_doubtful && uncertain && !permanent,
        Call::Release { .. } => !fails && !is_doubtful,
        Call::Complete { .. } | Call::Acquire { .. } => false,
    };
    is_enough && settling.iter().all(is_right)
}
