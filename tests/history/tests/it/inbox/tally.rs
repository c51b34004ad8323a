//! What happened: the deliveries, the runs of their work, and what disturbed them. Times are by the monotonic clock,
//! µs.

use std::sync::Mutex;
use std::time::Duration;

use harness::torture::tally::lock;
use history::inbox::Class;
use history::monotonic_us;
use idempotent_sqs::idempotency::{StoreError, WorkErrorKind};
use idempotent_sqs::{Outcome, Report, WorkError};

use super::kind::Kind;
use super::plan::Plan;
use super::session::Session;
use super::watched::Called;

/// What all owners count.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: Mutex<Vec<Sent>>,
    pub(crate) runs: Mutex<Vec<Run>>,
    /// When all deliveries may have been disturbed.
    pub(crate) disturbed: Mutex<Vec<Span>>,
    /// When other transactions held the row of a key.
    pub(crate) held: Mutex<Vec<(Message, Span)>>,
    /// When the column whose type changes got another type.
    pub(crate) altered: Mutex<Vec<Span>>,
    /// When the row was locked that works wait for.
    pub(crate) locked: Mutex<Vec<Span>>,
    /// When sessions that had begun earlier were read-only.
    pub(crate) read_only: Mutex<Vec<Span>>,
    /// When deletions of rows were slow.
    pub(crate) slow_deletes: Mutex<Vec<Span>>,
    /// When idle sessions were ended.
    pub(crate) ended_idle: Mutex<Vec<Span>>,
    /// What took how long.
    pub(crate) took: Mutex<Vec<Took>>,
    /// When the machine was slow.
    pub(crate) slow: Mutex<Vec<Span>>,
    /// Transactions that had to be over at some time.
    pub(crate) overdue: Mutex<Vec<Overdue>>,
    /// What was found to be wrong at once.
    pub(crate) faults: Mutex<Vec<String>>,
}

/// From one time until another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from_us: u64,
    pub(crate) until_us: u64,
}

impl Span {
    pub(crate) fn since(from_us: u64) -> Self {
        Self { from_us, until_us: monotonic_us() }
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.from_us <= other.until_us && other.from_us <= self.until_us
    }
}

/// A transaction that had to be over at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    #[expect(dead_code, reason = "part of the fault")]
    pub(crate) what: &'static str,
    pub(crate) due_us: u64,
    /// When it was over.
    pub(crate) over_us: u64,
}

/// Something that may take a limited time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    #[expect(dead_code, reason = "part of the fault")]
    pub(crate) what: &'static str,
    pub(crate) from_us: u64,
    pub(crate) until_us: u64,
    pub(crate) limit_us: u64,
}

/// A message, which is delivered again and again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) namespace: &'static str,
    pub(crate) key: String,
    pub(crate) payload: u8,
    pub(crate) id: u8,
}

impl Message {
    /// Whether the other message has the same key.
    pub(crate) fn has_key_of(&self, other: &Self) -> bool {
        (self.namespace, &self.key) == (other.namespace, &other.key)
    }
}

/// One delivery.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) message: Message,
    /// The number of its owner.
    pub(crate) owner: usize,
    pub(crate) kind: Kind,
    pub(crate) plan: Plan,
    pub(crate) begun_us: u64,
    /// When its work was to end.
    pub(crate) work_us: u64,
    /// When it was to end.
    pub(crate) end_us: u64,
    pub(crate) calls: Vec<Called>,
    /// `None` if it was dropped.
    pub(crate) returned: Option<Returned>,
    /// When it had returned, or was dropped.
    pub(crate) ended_us: u64,
}

impl Sent {
    /// The name of its sessions.
    pub(crate) fn session(&self) -> String {
        format!("owner-{}", self.owner)
    }

    pub(crate) fn span(&self) -> Span {
        Span { from_us: self.begun_us, until_us: self.ended_us }
    }
}

/// What a delivery returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Returned {
    pub(crate) told: Told,
    pub(crate) fence: Option<u64>,
    pub(crate) attempts: Option<u8>,
    pub(crate) ran: bool,
    pub(crate) is_recovery: bool,
}

/// The outcome of a delivery.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Done {
        result: Vec<u8>,
        by_own_record: bool,
    },
    Duplicate {
        result: Option<Vec<u8>>,
    },
    Conflict {
        remains: Duration,
    },
    Mismatch,
    FailedBefore,
    NotStarted,
    Unavailable(Error),
    Failed {
        error: Error,
        uncertain: bool,
    },
    FailedPermanently {
        error: Error,
        uncertain: bool,
    },
    Lost {
        done: bool,
    },
    Unsettled,
    /// The delivery returned an error of the store.
    NoStore {
        reason: String,
    },
    NotARecord,
}

/// An error of a work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Error {
    pub(crate) class: Class,
    pub(crate) text: String,
}

impl From<&WorkError> for Error {
    fn from(error: &WorkError) -> Self {
        let class = match error.kind() {
            WorkErrorKind::Retryable { .. } => Class::Retryable,
            WorkErrorKind::Unavailable { .. } => Class::Unavailable,
            WorkErrorKind::Busy { .. } => Class::Busy,
            WorkErrorKind::Permanent => Class::Permanent,
            _ => Class::Uncertain,
        };
        Self { class, text: texts(error) }
    }
}

/// The texts of an error and of its causes.
fn texts(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Returned {
    pub(crate) fn of(returned: Result<Report, StoreError>) -> Self {
        let report = match returned {
            Ok(report) => report,
            Err(error) => {
                let told = match &error {
                    StoreError::NotARecord(_) => Told::NotARecord,
                    _ => Told::NoStore { reason: texts(&error) },
                };
                return Self { told, fence: None, attempts: None, ran: false, is_recovery: false };
            }
        };
        let Report { outcome, fence, attempts, ran, recovery, .. } = report;
        let told = match outcome {
            Outcome::Done { result } => Told::Done { result, by_own_record: false },
            Outcome::DoneByOwnRecord { result } => Told::Done { result, by_own_record: true },
            Outcome::Duplicate { result } => Told::Duplicate { result },
            Outcome::Conflict { lease_remains } => Told::Conflict { remains: lease_remains },
            Outcome::Mismatch => Told::Mismatch,
            Outcome::FailedBefore => Told::FailedBefore,
            Outcome::NotStarted => Told::NotStarted,
            Outcome::Unavailable { error } => Told::Unavailable((&error).into()),
            Outcome::Failed { error, uncertain } => Told::Failed { error: (&error).into(), uncertain },
            Outcome::FailedPermanently { error, uncertain } => {
                Told::FailedPermanently { error: (&error).into(), uncertain }
            }
            Outcome::Lost { done, .. } => Told::Lost { done },
            Outcome::Unsettled { .. } => Told::Unsettled,
            other => panic!("{other:?}"),
        };
        Self { told, fence: fence.map(|fence| fence.0), attempts, ran, is_recovery: recovery }
    }
}

/// One run of the work.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The number of its delivery.
    pub(crate) delivery: usize,
    /// Stored form of the key.
    pub(crate) key: String,
    pub(crate) fence: u64,
    pub(crate) attempt: u8,
    pub(crate) is_recovery: bool,
    pub(crate) begun_us: u64,
    /// When it was to be cancelled.
    pub(crate) ends_us: u64,
    /// What it saw of its session. `None` if it saw nothing.
    pub(crate) session: Option<Session>,
    /// When it had its effect.
    pub(crate) effect_us: Option<u64>,
    /// Whether its statement that ends the transaction was sent.
    pub(crate) has_ended: bool,
    /// How the work returned. `None` if it was dropped.
    pub(crate) returned: Option<Result<Vec<u8>, Failed>>,
    /// When the work had returned, or was dropped.
    pub(crate) ended_us: u64,
    /// How its failure was recorded.
    pub(crate) recordings: Vec<Recording>,
}

/// The error of a work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) class: Class,
    /// The SQLSTATE, or the kind of another error of the database. `None` for an error of its own.
    pub(crate) statement: Option<String>,
    /// How long its last statement took, µs.
    pub(crate) took_us: u64,
}

/// How a failure was recorded.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    pub(crate) begun_us: u64,
    /// Why the work had failed.
    pub(crate) why: String,
    /// What the session had of earlier messages.
    pub(crate) session: Option<Session>,
    /// `None` if it was dropped.
    pub(crate) returned: Option<Result<(), Failed>>,
}

impl Tally {
    pub(crate) fn fault(&self, fault: String) {
        lock(&self.faults).push(fault);
    }

    /// Disturbs all deliveries from this time until now.
    pub(crate) fn disturb(&self, from_us: u64) {
        lock(&self.disturbed).push(Span::since(from_us));
    }
}
