//! The work, and the rows of its database.

use std::collections::BTreeMap;
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use history::Rng;
use http::{Response, StatusCode};
use idempotent_sqs::idempotency::{AcquireRequest, OwnRecord, RecordedAttempt, Work, WorkErrorKind};
use idempotent_sqs::{Claim, Fingerprint, WorkError};
use idempotent_sqs_http::encode_response;
use tokio::time::{Instant, sleep};

use crate::lock;

/// When a busy attempt says that the other one ends.
pub const BUSY: Duration = Duration::from_millis(1234);

/// The rows, by key.
pub(super) type Database = Arc<Mutex<BTreeMap<usize, Row>>>;

/// A row of the database. Nothing changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub payload: u64,
    /// `None` if the work committed by itself, so that what took effect is unknown.
    pub result: Option<Vec<u8>>,
}

/// What an attempt returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returned {
    Done(Vec<u8>),
    DoneBefore(Vec<u8>),
    Busy,
    Mismatch,
    Unreachable,
    Error(WorkErrorKind),
    /// It panicked, or was cancelled.
    Nothing,
}

/// An attempt of the work.
#[derive(Clone, Debug)]
pub struct RowAttempt {
    pub fence: u64,
    pub number: u8,
    pub is_recovery: bool,
    pub returned: Returned,
}

/// What a call found that read the row without an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    Done(Vec<u8>),
    NotDone,
    /// The row does not say what took effect.
    Unfinished,
    /// It could not be read: an error, a panic, or no reply until the deadline.
    Unavailable,
}

/// How an attempt ends that finds no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Commit,
    /// The row commits, and the reply is lost.
    CommitWithoutReply,
    /// The row commits without a result.
    CommitUnfinished,
    Uncertain,
    Busy,
    Unreachable,
    UnavailableError,
    BusyError,
    Retryable,
    Permanent,
    Panic,
    /// It waits for longer than its call has time.
    Wait,
}

/// The work of a call.
pub(super) struct RowWork {
    key: usize,
    pub(super) payload: u64,
    ending: Ending,
    /// How long the attempt takes.
    takes: Duration,
    /// What makes a read of the row fail.
    read_fails: Option<Ending>,
    database: Database,
    pub(super) attempt: Mutex<Option<RowAttempt>>,
    pub(super) read: Mutex<Option<Read>>,
}

impl RowWork {
    pub(super) fn new(key: usize, payload: u64, database: &Database, rng: &mut Rng) -> Self {
        let ending = match rng.draw(0..32) {
            0..8 => Ending::Commit,
            8..11 => Ending::CommitWithoutReply,
            11 => Ending::CommitUnfinished,
            12..15 => Ending::Uncertain,
            15..18 => Ending::Busy,
            18..20 => Ending::Unreachable,
            20..22 => Ending::UnavailableError,
            22..24 => Ending::BusyError,
            24..27 => Ending::Retryable,
            27 | 28 => Ending::Permanent,
            29 | 30 => Ending::Panic,
            _ => Ending::Wait,
        };
        let read_fails = match rng.draw(0..10) {
            0 => Some(Ending::UnavailableError),
            1 => Some(Ending::Panic),
            2 => Some(Ending::Wait),
            3 => Some(Ending::BusyError),
            _ => None,
        };
        let (takes, database) = (rng.ms(0..120), Arc::clone(database));
        Self { key, payload, ending, takes, read_fails, database, attempt: Mutex::default(), read: Mutex::default() }
    }

    pub(super) fn row(&self) -> Option<Row> {
        lock(&self.database).get(&self.key).cloned()
    }

    /// What an attempt returns that finds this row.
    fn found(&self, row: Row) -> Result<RecordedAttempt, WorkError> {
        match row.result {
            _ if row.payload != self.payload => Ok(RecordedAttempt::Mismatch),
            Some(result) => Ok(RecordedAttempt::DoneBefore(result)),
            None => Err(WorkError::uncertain(PLANNED)),
        }
    }

    async fn run_once(&self, claim: &Claim) -> Result<RecordedAttempt, WorkError> {
        if let Some(row) = self.row() {
            return self.found(row);
        }
        sleep(self.takes).await;
        match self.ending {
            Ending::Busy => return Ok(RecordedAttempt::Busy { after: BUSY }),
            Ending::Unreachable => return Ok(RecordedAttempt::Unreachable(PLANNED.into())),
            Ending::UnavailableError => return Err(WorkError::unavailable(PLANNED)),
            Ending::BusyError => return Err(WorkError::busy(PLANNED)),
            Ending::Retryable => return Err(WorkError::retryable(PLANNED)),
            Ending::Permanent => return Err(WorkError::permanent(PLANNED)),
            Ending::Uncertain => return Err(WorkError::uncertain(PLANNED)),
            Ending::Panic => resume_unwind(Box::new(PLANNED)),
            Ending::Wait => pending().await,
            Ending::Commit | Ending::CommitWithoutReply | Ending::CommitUnfinished => {}
        }
        // The first transaction commits, as the key of the row is unique.
        if let Some(row) = self.row() {
            return self.found(row);
        }
        let result = encode_response(&response(claim));
        let kept = (self.ending != Ending::CommitUnfinished).then(|| result.clone());
        lock(&self.database).insert(self.key, Row { payload: self.payload, result: kept });
        if self.ending == Ending::Commit {
            Ok(RecordedAttempt::Done(result))
        } else {
            Err(WorkError::uncertain(PLANNED))
        }
    }
}

/// The result of this claim, an HTTP response.
fn response(claim: &Claim) -> Response<String> {
    let mut response = Response::new(format!("the result of claim {}", claim.fence().0));
    *response.status_mut() = StatusCode::CREATED;
    response
}

impl<T: Sync> Work<T> for RowWork {
    async fn run(&self, _: &Claim, _: &T) -> Result<Vec<u8>, WorkError> {
        unreachable!("the core calls attempt")
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<T>> {
        Some(self)
    }
}

impl<T: Sync> OwnRecord<T> for RowWork {
    fn attempt<'a>(&'a self, claim: &'a Claim, _: &'a T) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(async {
            let (fence, number, is_recovery) = (claim.fence().0, claim.attempt(), claim.is_recovery());
            *lock(&self.attempt) = Some(RowAttempt { fence, number, is_recovery, returned: Returned::Nothing });
            let result = self.run_once(claim).await;
            lock(&self.attempt).as_mut().expect("it began").returned = Returned::of(&result);
            result
        })
    }

    fn recorded<'a>(
        &'a self,
        request: &'a AcquireRequest,
        _: Instant,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(async move {
            *lock(&self.read) = Some(Read::Unavailable);
            sleep(Duration::from_millis(1)).await;
            match self.read_fails {
                None => {}
                Some(Ending::Panic) => resume_unwind(Box::new(PLANNED)),
                Some(Ending::Wait) => pending().await,
                Some(Ending::BusyError) => return Err(WorkError::busy(PLANNED)),
                Some(_) => return Err(WorkError::unavailable(PLANNED)),
            }
            // A message without its payload is compared by its key alone.
            let is_same = |row: &Row| row.payload == self.payload || request.fingerprint == Fingerprint::NONE;
            let row = self.row().filter(is_same);
            let (read, result) = match row.map(|row| row.result) {
                Some(Some(result)) => (Read::Done(result.clone()), Ok(Some(result))),
                Some(None) => (Read::Unfinished, Err(WorkError::uncertain(PLANNED))),
                None => (Read::NotDone, Ok(None)),
            };
            *lock(&self.read) = Some(read);
            result
        })
    }
}

impl Returned {
    fn of(result: &Result<RecordedAttempt, WorkError>) -> Self {
        match result {
            Ok(RecordedAttempt::Done(result)) => Self::Done(result.clone()),
            Ok(RecordedAttempt::DoneBefore(result)) => Self::DoneBefore(result.clone()),
            Ok(RecordedAttempt::Busy { .. }) => Self::Busy,
            Ok(RecordedAttempt::Mismatch) => Self::Mismatch,
            Ok(RecordedAttempt::Unreachable(_)) => Self::Unreachable,
            Err(error) => Self::Error(error.kind()),
        }
    }
}

/// The error of an attempt that fails.
const PLANNED: &str = "planned";
