//! What is known of a call.

use std::time::Duration;

use history::inbox::{Class, Failure};
use idempotent_sqs::Claim;
use idempotent_sqs::idempotency::{RecordedAttempt, WorkErrorKind};
use tokio::time::Instant;

use super::plan::Plan;
use crate::postgres::SessionSeen;

/// A call.
#[derive(Debug)]
pub struct Call {
    pub caller: usize,
    pub consumer: &'static str,
    pub key: String,
    pub payload: u64,
    pub fence: u64,
    pub number: u8,
    pub plan: Plan,
    pub begun: Instant,
    pub ends: Instant,
    /// `None` if it has not returned: it was dropped.
    pub ended: Option<Instant>,
    pub runs: Vec<RunSeen>,
    pub told: Told,
}

/// What a call returned.
#[derive(Debug)]
pub enum Told {
    Done(Vec<u8>),
    DoneBefore(Vec<u8>),
    Busy {
        after: Duration,
    },
    Mismatch,
    Unreachable(String),
    Failed(Class, String),
    /// The row was read.
    Row(Option<Vec<u8>>),
    Checked(Result<(), String>),
    Deleted(Result<u64, String>),
    /// It panicked, was dropped, or did not return before its end.
    Nothing,
}

impl Told {
    pub fn of_attempt(attempt: Result<RecordedAttempt, idempotent_sqs::WorkError>) -> Self {
        match attempt {
            Ok(RecordedAttempt::Done(result)) => Self::Done(result),
            Ok(RecordedAttempt::DoneBefore(result)) => Self::DoneBefore(result),
            Ok(RecordedAttempt::Busy { after }) => Self::Busy { after },
            Ok(RecordedAttempt::Mismatch) => Self::Mismatch,
            Ok(RecordedAttempt::Unreachable(reason)) => Self::Unreachable(reason.to_string()),
            Err(error) => Self::failed(&error),
        }
    }

    /// Its error, if it has one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Unreachable(reason)
            | Self::Failed(_, reason)
            | Self::Checked(Err(reason))
            | Self::Deleted(Err(reason)) => Some(reason),
            _ => None,
        }
    }

    pub fn failed(error: &idempotent_sqs::WorkError) -> Self {
        let class = match error.kind() {
            WorkErrorKind::Retryable { .. } => Class::Retryable,
            WorkErrorKind::Unavailable { .. } => Class::Unavailable,
            WorkErrorKind::Busy { .. } => Class::Busy,
            WorkErrorKind::Uncertain => Class::Uncertain,
            _ => Class::Permanent,
        };
        Self::Failed(class, error.to_string())
    }
}

/// A run of the work.
#[derive(Debug)]
pub struct RunSeen {
    pub fence: u64,
    pub number: u8,
    pub begun: Instant,
    pub session: Option<SessionSeen>,
    pub effect: Option<Instant>,
    /// Whether it has executed COMMIT or ROLLBACK.
    pub has_ended: bool,
    /// `None` if it panicked or was dropped.
    pub returned: Option<Result<Vec<u8>, Failed>>,
    pub ended: Option<Instant>,
    pub recordings: Vec<Recording>,
}

impl RunSeen {
    pub fn begun(claim: &Claim) -> Self {
        Self {
            fence: claim.fence().0,
            number: claim.attempt(),
            begun: Instant::now(),
            session: None,
            effect: None,
            has_ended: false,
            returned: None,
            ended: None,
            recordings: Vec::new(),
        }
    }
}

/// How a work failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub class: Class,
    /// What its statement returned, if it failed by one.
    pub statement: Option<String>,
}

impl Failed {
    pub fn by(failure: &Failure) -> Self {
        let (class, statement) = failure.class();
        Self { class, statement }
    }
}

/// The record of a permanent failure.
#[derive(Debug)]
pub struct Recording {
    pub begun: Instant,
    pub session: Option<SessionSeen>,
    pub returned: Option<Result<(), Failed>>,
}
