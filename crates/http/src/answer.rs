//! The answer to a request with a key.

use bytes::Bytes;
use http::{Response, StatusCode};
use idempotent_sqs::Deadline;
use idempotent_sqs::idempotency::{Fence, Outcome, Report};

use crate::body::ResponseBody;
use crate::problem::Problem;
use crate::report::RequestOutcome;
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

fn whole<RB>(response: Response<Bytes>) -> Response<ResponseBody<RB>> {
    response.map(|body| ResponseBody::read(body, None))
}

/// The answer for this report. `answer` is that of the inner service, if it ran.
pub(crate) fn conclude<RB, E>(
    report: Report,
    answer: Option<Answer<RB, E>>,
    deadline: Deadline,
    mismatch_status: StatusCode,
) -> (Answer<RB, E>, Summary) {
    let Report { outcome, fence, attempts, recovery: is_recovery, .. } = report;
    let (answer, outcome) = if let Some(answer) = answer {
        (answer, outcome_of_run(&outcome))
    } else if let Some(response) = replayed(&outcome) {
        (Ok(whole(response)), RequestOutcome::Replayed)
    } else {
        let problem = problem(&outcome, deadline, mismatch_status);
        (Ok(whole(problem.response())), problem.into())
    };
    (answer, Summary { outcome, fence, attempts, is_recovery })
}

/// What is reported if the inner service answered.
fn outcome_of_run(outcome: &Outcome) -> RequestOutcome {
    match outcome {
        Outcome::Done { .. } => RequestOutcome::Completed,
        Outcome::Unavailable { .. } => RequestOutcome::Released,
        Outcome::Failed { .. } | Outcome::FailedPermanently { .. } => RequestOutcome::Uncertain,
        Outcome::Unsettled { .. }
        | Outcome::Lost { .. }
        | Outcome::DoneByOwnRecord { .. }
        | Outcome::Duplicate { .. }
        | Outcome::Conflict { .. }
        | Outcome::Mismatch
        | Outcome::FailedBefore
        | Outcome::NotStarted
        | _ => RequestOutcome::NotRecorded,
    }
}

/// The marked response of an earlier run, if this is one.
pub(crate) fn replayed(outcome: &Outcome) -> Option<Response<Bytes>> {
    if let Outcome::Duplicate { result: Some(result) } = outcome { stored::replay(result) } else { None }
}

/// The layer's own answer to a request that has no response.
pub(crate) fn problem(outcome: &Outcome, deadline: Deadline, mismatch_status: StatusCode) -> Problem {
    match outcome {
        Outcome::Conflict { lease_remains } => Problem::InFlight { lease_remains: *lease_remains },
        Outcome::Mismatch => Problem::Mismatch { status: mismatch_status },
        Outcome::FailedBefore | Outcome::FailedPermanently { .. } => Problem::FailedBefore,
        Outcome::NotStarted => Problem::NotStarted,
        Outcome::Duplicate { .. } => Problem::ResponseNotKept,
        // The handler panicked, was cancelled at the deadline, or its response broke off.
        Outcome::Failed { .. }
        | Outcome::Unsettled { .. }
        | Outcome::Lost { .. }
        | Outcome::Unavailable { .. }
        | Outcome::Done { .. }
        | Outcome::DoneByOwnRecord { .. }
        | _ => {
            if deadline.has_passed() {
                Problem::Deadline
            } else {
                Problem::Failed
            }
        }
    }
}
