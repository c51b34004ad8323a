//! A work that follows a plan and records its runs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_sqs::idempotency::{Claim, Work, WorkError};
#[cfg(feature = "lambda")]
use idempotent_sqs::sqs::Message;

/// What a run of the work does.
#[derive(Clone, Copy, Debug)]
pub enum Do {
    Return(&'static [u8]),
    Refuse,
    RefuseFor(Duration),
    BeUncertain,
    BeUnavailable,
    FailForGood,
    Panic,
    Hang,
    Take(Duration),
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
pub struct Told {
    plan: Box<dyn Fn(&Run) -> Do + Send + Sync>,
    runs: Mutex<Vec<Run>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Told {
    /// A work that does the same in every run.
    pub fn to(what: Do) -> Self {
        Self::by(move |_| what)
    }

    /// A work that does what `plan` returns for the run.
    pub fn by(plan: impl Fn(&Run) -> Do + Send + Sync + 'static) -> Self {
        Self {
            plan: Box::new(plan),
            runs: Mutex::default(),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        }
    }

    /// All runs, in order of their starts.
    pub fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    /// The messageIds of all runs, in order of their starts.
    pub fn ran(&self) -> Vec<String> {
        self.runs().into_iter().map(|run| run.message_id).collect()
    }

    /// Largest number of concurrent runs so far.
    pub fn most_at_once(&self) -> usize {
        self.most_at_once.load(Ordering::SeqCst)
    }

    async fn execute<T: Input + ?Sized>(&self, claim: &Claim, input: &T, recovery: bool) -> Result<Vec<u8>, WorkError> {
        let run = Run {
            message_id: input.id().to_owned(),
            key: claim.key().to_string(),
            fence: claim.fence().0,
            attempt: claim.attempt(),
            recovery,
        };
        let what = (self.plan)(&run);
        self.runs.lock().unwrap().push(run);
        let _running = Running::start(self);
        match what {
            Do::Return(result) => Ok(result.to_vec()),
            Do::Refuse => Err(WorkError::retryable("refused")),
            Do::RefuseFor(after) => Err(WorkError::retryable_after("refused for a while", after)),
            Do::BeUncertain => Err(WorkError::uncertain("no answer")),
            Do::BeUnavailable => Err(WorkError::unavailable("no connection")),
            Do::FailForGood => Err(WorkError::permanent("no such account")),
            Do::Panic => panic!("planned"),
            Do::Hang => std::future::pending().await,
            Do::Take(time) => {
                tokio::time::sleep(time).await;
                Ok(Vec::new())
            }
        }
    }
}

impl<T: Input + ?Sized> Work<T> for Told {
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
struct Running<'a>(&'a Told);

impl<'a> Running<'a> {
    fn start(told: &'a Told) -> Self {
        let now = told.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        told.most_at_once.fetch_max(now, Ordering::SeqCst);
        Self(told)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Ordering::SeqCst);
    }
}
