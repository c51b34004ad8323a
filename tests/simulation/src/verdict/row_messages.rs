//! Whether the report on each message of a work with its own record is what this record and the store's answers
//! explain: docs/failures.md and docs/inbox.md.

use history::{Answer, Call, Operation};
use idempotent_sqs::idempotency::WorkErrorKind;
use idempotent_sqs::sqs::{DeadLetterOutcome, Disposition, MessageOutcome, MessageReport};

use super::invocations::CLOCK_US;
use crate::own_records::{MAX_ATTEMPTS, Missing, Read, Returned, RowAttempt, RowCall};

/// What a report says: what happened, and why the message is a dead letter, if it is one.
type Said = (MessageOutcome, Option<DeadLetterOutcome>);

/// Whether a report is that of the attempt, of the read, or of the store's answer.
pub(super) fn is_reported(call: &RowCall, report: &MessageReport, made: &[&Operation]) -> bool {
    let Some(expected) = expected(call, made) else { return false };
    let is_done = matches!(call.attempt.as_ref().map(|attempt| &attempt.returned), Some(Returned::Done(_)));
    let is_done = is_done || expected.0 == MessageOutcome::Duplicate;
    (report.outcome, report.dead_letter) == expected && (report.disposition == Disposition::Done) == is_done
}

/// `None` is the error of a store that is unavailable.
fn expected(call: &RowCall, made: &[&Operation]) -> Option<Said> {
    use DeadLetterOutcome::{Failed, Mismatch, Unreadable};
    let answer = made.iter().rfind(|made| matches!(made.call, Call::Acquire { .. })).map(|made| &made.answer);
    let claim = match answer {
        Some(Answer::Acquired { recovery, .. }) => Some(started(*recovery)),
        // Without the store, an earlier attempt may have taken effect.
        Some(Answer::Unknown | Answer::NotExecuted) if call.is_optional => Some(started(true)),
        _ => None,
    };
    // The reason of a message that cannot be read is not another one.
    let letter = |outcome| Some(if call.missing.is_some() { Unreadable } else { outcome });
    match (&call.attempt, &call.read, claim) {
        (Some(attempt), ..) => of_attempt(attempt, made),
        // There is no payload.
        (None, Some(read), Some(started)) => Some(match (read, call.missing?) {
            (Read::Done(_), _) => (MessageOutcome::Duplicate, None),
            (Read::NotDone, Missing::Deleted) => settled(made, started, Some(Unreadable)),
            (Read::NotDone, Missing::Forbidden) => (MessageOutcome::Unreadable, Some(Unreadable)),
            (Read::Unfinished, _) => settled(made, started, None),
            (Read::Unavailable, _) => (started, None),
        }),
        (None, Some(read), None) => Some(match (read, answer) {
            (Read::Done(_), _) => (MessageOutcome::Duplicate, None),
            (Read::NotDone, Some(Answer::Mismatch)) => (MessageOutcome::Mismatch, letter(Mismatch)),
            (Read::NotDone | Read::Unfinished, Some(Answer::Failed)) => (MessageOutcome::Failed, letter(Failed)),
            (Read::Unfinished | Read::Unavailable, _) => (MessageOutcome::Unavailable, None),
            (Read::NotDone, _) => return None,
        }),
        // There was no time left to start it.
        (None, None, Some(started)) if call.returned_us + CLOCK_US >= call.work_ends_us => Some((started, None)),
        (None, None, _) => match answer {
            Some(Answer::Duplicate { .. }) => Some((MessageOutcome::Duplicate, None)),
            Some(Answer::Conflict { .. }) => Some((MessageOutcome::Conflict, None)),
            None if call.returned_us + CLOCK_US >= call.work_ends_us => Some((MessageOutcome::NotProcessed, None)),
            _ => None,
        },
    }
}

fn of_attempt(attempt: &RowAttempt, made: &[&Operation]) -> Option<Said> {
    use DeadLetterOutcome::{AttemptsUsedUp, FailedPermanently, Mismatch};
    let started = started(attempt.is_recovery);
    Some(match attempt.returned {
        Returned::Done(_) | Returned::Error(WorkErrorKind::Unavailable { .. } | WorkErrorKind::Busy { .. }) => {
            (started, None)
        }
        Returned::DoneBefore(_) => (MessageOutcome::Duplicate, None),
        Returned::Busy => (MessageOutcome::Conflict, None),
        Returned::Mismatch => (MessageOutcome::Mismatch, Some(Mismatch)),
        Returned::Unreachable => return None,
        Returned::Error(WorkErrorKind::Retryable { .. }) => {
            settled(made, started, (attempt.number >= MAX_ATTEMPTS).then_some(AttemptsUsedUp))
        }
        Returned::Error(WorkErrorKind::Permanent) => settled(made, started, Some(FailedPermanently)),
        Returned::Error(_) | Returned::Nothing => settled(made, started, None),
    })
}

/// The same, unless the failure was not recorded, or another owner has the record.
fn settled(made: &[&Operation], started: MessageOutcome, letter: Option<DeadLetterOutcome>) -> Said {
    match made.last().map(|made| &made.answer) {
        Some(Answer::Recorded) => (started, letter),
        Some(Answer::Lost(_)) => (MessageOutcome::Lost, None),
        _ => (started, None),
    }
}

fn started(is_recovery: bool) -> MessageOutcome {
    if is_recovery { MessageOutcome::AcquiredStale } else { MessageOutcome::Acquired }
}
