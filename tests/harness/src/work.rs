//! A work that follows a plan and records its runs, and one with a record of its own.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use idempotent_sqs::idempotency::{AcquireRequest, Claim, OwnRecord, RecordedAttempt, Work, WorkError};
#[cfg(feature = "lambda")]
use idempotent_sqs::sqs::Message;
use tokio::time::Instant;

/// What a run of the work does.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Return(&'static [u8]),
    FailRetryable,
    FailRetryableAfter(Duration),
    FailUncertain,
    FailUnavailable,
    FailBusy,
    FailPermanently,
    Panic,
    Hang,
    Sleep(Duration),
}

/// One run of a work.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub message_id: String,
    pub key: String,
    pub fence: u64,
    pub attempt: u8,
    pub recovery: bool,
}

/// A work that follows a plan and records its runs.
pub struct ScriptedWork {
    plan: Box<dyn Fn(&Run) -> Action + Send + Sync>,
    takes: Duration,
    runs: Mutex<Vec<Run>>,
    concurrent: AtomicUsize,
    max_concurrent: AtomicUsize,
}

impl ScriptedWork {
    /// A work that does the same in every run.
    pub fn always(action: Action) -> Self {
        Self::new(move |_| action)
    }

    /// A work that does what `plan` returns for the run.
    pub fn new(plan: impl Fn(&Run) -> Action + Send + Sync + 'static) -> Self {
        Self {
            plan: Box::new(plan),
            takes: Duration::ZERO,
            runs: Mutex::default(),
            concurrent: AtomicUsize::new(0),
            max_concurrent: AtomicUsize::new(0),
        }
    }

    /// Each run takes this time before it ends.
    pub fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    /// All runs, in order of their starts.
    pub fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    /// The messageIds of all runs, in order of their starts.
    pub fn message_ids(&self) -> Vec<String> {
        self.runs().into_iter().map(|run| run.message_id).collect()
    }

    /// Largest number of concurrent runs so far.
    pub fn max_concurrent(&self) -> usize {
        self.max_concurrent.load(Ordering::SeqCst)
    }

    async fn execute<T: Input + ?Sized>(&self, claim: &Claim, input: &T, recovery: bool) -> Result<Vec<u8>, WorkError> {
        let run = Run {
            message_id: input.id().to_owned(),
            key: claim.key().to_string(),
            fence: claim.fence().0,
            attempt: claim.attempt(),
            recovery,
        };
        let action = (self.plan)(&run);
        self.runs.lock().unwrap().push(run);
        let _running = Running::start(self);
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        match action {
            Action::Return(result) => Ok(result.to_vec()),
            Action::FailRetryable => Err(WorkError::retryable("refused")),
            Action::FailRetryableAfter(after) => Err(WorkError::retryable_after("refused for a while", after)),
            Action::FailUncertain => Err(WorkError::uncertain("no answer")),
            Action::FailUnavailable => Err(WorkError::unavailable("no connection")),
            Action::FailBusy => Err(WorkError::busy("in use")),
            Action::FailPermanently => Err(WorkError::permanent("no such account")),
            Action::Panic => panic!("planned"),
            Action::Hang => std::future::pending().await,
            Action::Sleep(time) => {
                tokio::time::sleep(time).await;
                Ok(Vec::new())
            }
        }
    }
}

impl<T: Input + ?Sized> Work<T> for ScriptedWork {
    async fn run(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        self.execute(claim, input, false).await
    }

    async fn recover(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        self.execute(claim, input, true).await
    }
}

/// An input of the work. [`Run`] records its id.
pub trait Input: Sync {
    fn id(&self) -> &str;
}

impl Input for str {
    fn id(&self) -> &str {
        self
    }
}

#[cfg(feature = "lambda")]
impl Input for Message {
    fn id(&self) -> &str {
        &self.id
    }
}

/// Counts a run as active until it ends or is dropped.
struct Running<'a>(&'a ScriptedWork);

impl<'a> Running<'a> {
    fn start(work: &'a ScriptedWork) -> Self {
        let now = work.concurrent.fetch_add(1, Ordering::SeqCst) + 1;
        work.max_concurrent.fetch_max(now, Ordering::SeqCst);
        Self(work)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.concurrent.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What an attempt of a [`RecordingWork`] returns.
type Answer = Result<RecordedAttempt, WorkError>;

/// The reply to a read of a work's own record.
pub type Recorded = Result<Option<Vec<u8>>, fn() -> WorkError>;

/// A work with a record of its own, which shows nothing at first.
pub struct RecordingWork {
    /// What its next attempts return.
    pub answers: Mutex<VecDeque<Answer>>,
    /// What the attempts after these return.
    then: Box<dyn Fn() -> Answer + Send + Sync>,
    record: Mutex<Recorded>,
    reads: AtomicUsize,
}

impl RecordingWork {
    /// Its attempts return `answers`, and then that the work is done.
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let done = Self::always(|| Ok(RecordedAttempt::Done(b"receipt".to_vec())));
        Self { answers: Mutex::new(answers.into_iter().collect()), ..done }
    }

    /// Each attempt returns this.
    pub fn always(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        let (then, record) = (Box::new(answer), Mutex::new(Ok(None)));
        Self { answers: Mutex::default(), then, record, reads: AtomicUsize::new(0) }
    }

    pub fn set_record(&self, record: Recorded) {
        *self.record.lock().unwrap() = record;
    }

    /// Number of reads of the record since the last call.
    pub fn take_reads(&self) -> usize {
        self.reads.swap(0, Ordering::SeqCst)
    }
}

impl<T: ?Sized + Sync> Work<T> for RecordingWork {
    async fn run(&self, _: &Claim, _: &T) -> Result<Vec<u8>, WorkError> {
        unreachable!("the core calls attempt")
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<T>> {
        Some(self)
    }
}

impl<T: ?Sized + Sync> OwnRecord<T> for RecordingWork {
    fn attempt<'a>(&'a self, _: &'a Claim, _: &'a T) -> BoxFuture<'a, Answer> {
        let answer = self.answers.lock().unwrap().pop_front();
        Box::pin(ready(answer.unwrap_or_else(|| (self.then)())))
    }

    fn recorded<'a>(&'a self, _: &'a AcquireRequest, _: Instant) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Box::pin(ready(self.record.lock().unwrap().clone().map_err(|error| error())))
    }
}
