//! A work that follows a plan and records its runs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_sqs::idempotency::{Claim, Work, WorkError};
#[cfg(feature = "lambda")]
use idempotent_sqs::sqs::Message;

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
