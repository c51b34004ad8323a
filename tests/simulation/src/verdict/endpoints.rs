//! Whether each request to an endpoint of a work with its own record has the answer that this record and the store's
//! answers explain: the tables of `docs/http.md`.

use std::time::Duration;

use bytes::Bytes;
use history::{Answer, Call, Operation};
use http::Response;
use idempotent_sqs::idempotency::WorkErrorKind;
use idempotent_sqs_http::encode_response;

use super::invocations::CLOCK_US;
use crate::own_records::{BUSY, HttpAnswer, MAX_ATTEMPTS, Read, Returned, RowAttempt, RowCall};

/// Whether the answer is that of the attempt, of the read, or of the store's answer.
pub(super) fn is_answered(call: &RowCall, answer: &HttpAnswer, made: &[&Operation], longest_lease: Duration) -> bool {
    let acquired = made.iter().rfind(|made| matches!(made.call, Call::Acquire { .. })).map(|made| &made.answer);
    match (&call.attempt, &call.read) {
        (Some(attempt), None) => is_of_attempt(call, answer, attempt, made),
        (None, Some(read)) => match (read, acquired) {
            (Read::Done(row), _) => is_response(answer, row, true),
            (Read::Unfinished | Read::Unavailable, Some(Answer::Duplicate { .. })) => {
                is_problem(answer, 410, "response-not-kept", None)
            }
            (Read::NotDone, Some(Answer::Mismatch)) => is_problem(answer, 422, "mismatch", None),
            (Read::NotDone | Read::Unfinished, Some(Answer::Failed)) => is_problem(answer, 500, "failed-before", None),
            (Read::Unavailable, _) | (Read::Unfinished, Some(Answer::Mismatch)) => {
                is_problem(answer, 503, "unavailable", Some(1))
            }
            _ => false,
        },
        (None, None) => match acquired {
            Some(Answer::Duplicate { .. }) => call.rows[1]
                .as_ref()
                .is_some_and(|row| row.result.as_ref().is_some_and(|row| is_response(answer, row, true))),
            Some(Answer::Conflict { .. }) => {
                let longest = longest_lease.as_millis().div_ceil(1000);
                is_problem(answer, 409, "in-flight", answer.retry_after_s)
                    && answer.retry_after_s.is_some_and(|seconds| (1..=longest).contains(&u128::from(seconds)))
            }
            Some(Answer::Unknown | Answer::NotExecuted) => is_problem(answer, 503, "store-unavailable", Some(1)),
            // There was no time left to start it.
            None | Some(Answer::Acquired { .. }) => is_problem(answer, 503, "not-started", Some(1)),
            Some(_) => false,
        },
        (Some(_), Some(_)) => false,
    }
}

/// Whether an answer says how this attempt ended.
fn is_of_attempt(call: &RowCall, answer: &HttpAnswer, attempt: &RowAttempt, made: &[&Operation]) -> bool {
    let is_recorded = made.last().is_some_and(|made| made.answer == Answer::Recorded);
    let is_last = attempt.number >= MAX_ATTEMPTS;
    let busy_s = BUSY.as_secs() + 1;
    match &attempt.returned {
        Returned::Done(row) => is_response(answer, row, false),
        Returned::DoneBefore(row) => is_response(answer, row, true),
        Returned::Busy => is_problem(answer, 409, "in-flight", Some(busy_s)),
        Returned::Mismatch => is_problem(answer, 422, "mismatch", None),
        Returned::Unreachable => is_problem(answer, 503, "store-unavailable", Some(1)),
        Returned::Error(WorkErrorKind::Unavailable { .. } | WorkErrorKind::Busy { .. }) => {
            is_problem(answer, 503, "unavailable", Some(1))
        }
        Returned::Error(WorkErrorKind::Retryable { .. }) if is_recorded && !is_last => {
            is_problem(answer, 503, "unavailable", Some(1))
        }
        Returned::Error(WorkErrorKind::Retryable { .. } | WorkErrorKind::Permanent) if is_recorded => {
            is_problem(answer, 500, "failed-before", None)
        }
        Returned::Error(_) | Returned::Nothing => {
            let may_be_cut = call.returned_us + CLOCK_US >= call.work_ends_us;
            is_problem(answer, 500, "failed", None) || may_be_cut && is_problem(answer, 504, "deadline", None)
        }
    }
}

/// Whether this is the response in a row, and is marked as replayed or not.
fn is_response(answer: &HttpAnswer, row: &[u8], is_replayed: bool) -> bool {
    let response = Response::builder().status(answer.status).body(Bytes::clone(&answer.body));
    let is_same = response.is_ok_and(|response| encode_response(&response) == row);
    is_same && answer.is_replayed == is_replayed
}

fn is_problem(answer: &HttpAnswer, status: u16, problem: &str, retry_after_s: Option<u64>) -> bool {
    (answer.status, answer.problem.as_deref(), answer.retry_after_s) == (status, Some(problem), retry_after_s)
        && !answer.is_replayed
}
