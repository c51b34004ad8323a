//! The answer to a request with a key.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use idempotent_sqs::idempotency::{Fence, Outcome, Report, WorkErrorKind};
use idempotent_sqs::{Deadline, WorkError};
use tokio::time::Instant;

use crate::body::ResponseBody;
use crate::problem::Problem;
use crate::report::RequestOutcome;
use crate::settings::Settings;
use crate::stored;

/// What the service returns.
pub(crate) type Answer<RB, E> = Result<Response<ResponseBody<RB>>, E>;

/// What happened, for the report.
pub(crate) struct Summary {
    pub(crate) outcome: RequestOutcome,
    pub(crate) fence: Option<Fence>,
    pub(crate) attempts: Option<u8>,
    pub(crate) is_recovery: bool,
}

impl From<RequestOutcome> for Summary {
    fn from(outcome: RequestOutcome) -> Self {
        Self { outcome, fence: None, attempts: None, is_recovery: false }
    }
}

/// The layer's own answer to a request that did not run.
pub(crate) fn reject<RB, E>(problem: Problem) -> (Answer<RB, E>, Summary) {
    (Ok(whole(problem.response())), RequestOutcome::from(problem).into())
}

pub(crate) fn whole<RB>(response: Response<Bytes>) -> Response<ResponseBody<RB>> {
    response.map(|body| ResponseBody::read(body, None))
}

/// The answer for this report. `answer` is that of the run, if it returned one, and `ended` is when the run ended.
pub(crate) fn conclude<RB, E>(
    report: Report,
    answer: Option<Answer<RB, E>>,
    ended: Option<Instant>,
    deadline: Deadline,
    settings: &Settings,
) -> (Answer<RB, E>, Summary) {
    let Report { outcome, fence, attempts, ran, recovery, is_settled, .. } = report;
    let (answer, outcome) = if let Some(answer) = answer {
        (answer, outcome_of_run(&outcome, is_settled))
    } else if let Some(response) = replayed(&outcome, settings) {
        (Ok(whole(response)), RequestOutcome::Replayed)
    } else {
        let cut = ended.is_none_or(|ended| ended >= deadline.work);
        // Without a claim, the store knows of an earlier failure.
        let is_doubtful = recovery || fence.is_none();
        let held = (fence.is_some() && !is_settled).then(|| settings.policy.lease_until(deadline.end));
        let problem = problem(&outcome, ran, cut, is_doubtful, held, settings.mismatch_status);
        (Ok(whole(problem.response())), problem.into())
    };
    (answer, Summary { outcome, fence, attempts, is_recovery: ran && recovery })
}

/// What is reported if the run returned an answer.
fn outcome_of_run(outcome: &Outcome, is_settled: bool) -> RequestOutcome {
    match outcome {
        Outcome::Done { .. } | Outcome::DoneByOwnRecord { .. } => RequestOutcome::Completed,
        Outcome::Unavailable { .. } if is_settled => RequestOutcome::Released,
        Outcome::Failed { .. } | Outcome::FailedPermanently { .. } => RequestOutcome::Uncertain,
        Outcome::Unsettled { .. }
        | Outcome::Lost { .. }
        | Outcome::Duplicate { .. }
        | Outcome::Conflict { .. }
        | Outcome::Mismatch
        | Outcome::FailedBefore
        | Outcome::NotStarted
        | Outcome::Unavailable { .. }
        | _ => RequestOutcome::NotRecorded,
    }
}

/// The marked response of an earlier run, if this is one.
fn replayed(outcome: &Outcome, settings: &Settings) -> Option<Response<Bytes>> {
    let Outcome::Duplicate { result: Some(result) } = outcome else { return None };
    stored::replay(result, &settings.dropped_headers)
}

/// The layer's own answer to a request that has no response. `cut` if its run was cancelled at the deadline, and
/// `is_doubtful` if an earlier one may have taken effect. `held` is the remaining lease if the end of the request was
/// not recorded: until then, retries are in conflict.
fn problem(
    outcome: &Outcome,
    ran: bool,
    cut: bool,
    is_doubtful: bool,
    held: Option<Duration>,
    mismatch_status: StatusCode,
) -> Problem {
    let unavailable = |error| Problem::Unavailable {
        after: after(error).max(held).unwrap_or_default(),
        is_doubtful,
        is_released: held.is_none(),
    };
    match outcome {
        Outcome::Conflict { lease_remains } => Problem::InFlight { lease_remains: *lease_remains },
        Outcome::Mismatch => Problem::Mismatch { status: mismatch_status },
        Outcome::FailedBefore => Problem::FailedBefore,
        // A parked recovery, also if its failure could not be recorded, or a request whose own record does not show what
        // took effect.
        Outcome::FailedPermanently { .. } | Outcome::Unsettled { .. } | Outcome::Lost { .. } if !ran => {
            Problem::FailedBefore
        }
        // No retry runs. After an uncertain attempt, the answer is that of the attempt.
        Outcome::FailedPermanently { error, .. } if error.kind() != WorkErrorKind::Uncertain => {
            Problem::FailedPermanently { is_doubtful }
        }
        Outcome::NotStarted => Problem::NotStarted { after: held.unwrap_or_default() },
        Outcome::Duplicate { .. } => Problem::ResponseNotKept,
        Outcome::Unavailable { error } => unavailable(error),
        // This attempt had no effect, also if it was a recovery.
        Outcome::Failed { error, .. } if error.kind() != WorkErrorKind::Uncertain => unavailable(error),
        // The handler panicked, was cancelled at the deadline, or its response broke off.
        Outcome::Failed { .. }
        | Outcome::FailedPermanently { .. }
        | Outcome::Unsettled { .. }
        | Outcome::Lost { .. }
        | Outcome::Done { .. }
        | Outcome::DoneByOwnRecord { .. }
        | _ => {
            if cut {
                Problem::Deadline
            } else {
                Problem::Failed
            }
        }
    }
}

/// When to try again, if the work said so.
fn after(error: &WorkError) -> Option<Duration> {
    match error.kind() {
        WorkErrorKind::Retryable { after } | WorkErrorKind::Unavailable { after } | WorkErrorKind::Busy { after } => {
            after
        }
        WorkErrorKind::Uncertain | WorkErrorKind::Permanent | _ => None,
    }
}

#[cfg(test)]
mod tests {
    use idempotent_sqs::idempotency::StoreError;

    use super::*;

    #[test]
    fn a_parked_recovery_whose_failure_is_not_recorded_has_failed_before() {
        let outcome = Outcome::Unsettled { error: StoreError::unreachable("planned") };
        let problem = |ran| problem(&outcome, ran, true, false, None, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!([problem(false), problem(true)], [Problem::FailedBefore, Problem::Deadline]);
    }
}
