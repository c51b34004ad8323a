//! The work, the store and the objects of batches, which record their steps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use history::Rng;
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Failure, Location, ObjectError, ObjectStore, OwnRecord, RecordedAttempt, Settled,
    StoreError, StoredResult,
};
use idempotent_sqs::sqs::Message;
use idempotent_sqs::{Claim, MemoryStore, Store, Work, WorkError};
use tokio::time::{Instant, sleep};

use crate::lock;

/// The names of the receivers. A message begins with that of its own.
pub(super) const RECEIVERS: [&str; 3] = ["a", "b", "c"];

/// The bucket of payloads.
pub(super) const BUCKET: &str = "payloads";

/// How a receiver responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// It does the work, or fails.
    Works,
    Refuses,
    /// It refuses after a long time.
    Hangs,
    /// It is a database without which no work can be done.
    Unreachable,
}

/// What the end of a call shows of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Available,
    Unavailable,
    /// The same, and it concerns all receivers.
    Unreachable,
    Nothing,
}

/// What happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Its payload is read.
    Fetch,
    Acquire,
    /// The acquire has a reply.
    Reply,
    /// Its receiver is called: by an attempt, or else to read the work's own record.
    Call {
        is_attempt: bool,
    },
    End(Shows),
    Settled,
}

/// A step of a message.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) id: String,
    pub(super) what: What,
    pub(super) at: Instant,
}

/// The work, its store and its objects. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// Whether the work has a record of its own.
    pub(super) has_own_records: bool,
    /// Time of a call of the store.
    latency: Duration,
    records: Arc<MemoryStore>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    answers: [Answers; RECEIVERS.len()],
    steps: Vec<Step>,
}

impl Answers {
    pub(super) fn of(has_own_records: bool, rng: &mut Rng) -> Self {
        match rng.draw(0..10) {
            0..6 => Self::Works,
            6 | 7 => Self::Hangs,
            8 if has_own_records => Self::Unreachable,
            _ => Self::Refuses,
        }
    }
}

impl Scene {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let latency = Duration::from_millis(*rng.pick(&[0, 1, 60, 60]));
        let state = State { rng: rng.fork(), answers: [Answers::Works; RECEIVERS.len()], steps: Vec::new() };
        let (records, state) = (Arc::default(), Arc::new(Mutex::new(state)));
        Self { has_own_records: rng.happens(500), latency, records, state }
    }

    /// Begins a round in which the receivers respond so.
    pub(super) fn begin(&self, answers: [Answers; RECEIVERS.len()]) {
        let mut state = lock(&self.state);
        (state.answers, state.steps) = (answers, Vec::new());
    }

    /// The steps of this round.
    pub(super) fn steps(&self) -> Vec<Step> {
        lock(&self.state).steps.clone()
    }

    fn record(&self, id: &str, what: What) {
        lock(&self.state).steps.push(Step { id: id.to_owned(), what, at: Instant::now() });
    }

    /// Calls the receiver of a message. An attempt that a receiver fails shows nothing of it, and neither does a read
    /// without a row.
    async fn call(&self, id: &str, is_attempt: bool) -> Shows {
        self.record(id, What::Call { is_attempt });
        let (answers, takes, fails) = {
            let mut state = lock(&self.state);
            let at = RECEIVERS.iter().position(|name| id.starts_with(name)).unwrap_or_default();
            (state.answers[at], state.rng.ms(1..100), state.rng.happens(350))
        };
        sleep(if answers == Answers::Hangs { 20 * takes } else { takes }).await;
        let shows = match answers {
            Answers::Works if is_attempt && !fails => Shows::Available,
            Answers::Works => Shows::Nothing,
            Answers::Unreachable if is_attempt => Shows::Unreachable,
            Answers::Refuses | Answers::Hangs | Answers::Unreachable => Shows::Unavailable,
        };
        self.record(id, What::End(shows));
        shows
    }

    async fn settled(&self, request: &AcquireRequest) {
        sleep(self.latency).await;
        self.record(request.key.as_str(), What::Settled);
    }
}

impl Work<Message> for Scene {
    async fn run(&self, _: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        match self.call(&message.id, true).await {
            Shows::Available => Ok(Vec::new()),
            Shows::Nothing => Err(WorkError::retryable("refused")),
            Shows::Unavailable | Shows::Unreachable => Err(WorkError::unavailable("no connection")),
        }
    }

    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        message.id.split('-').next().unwrap_or_default()
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<Message>> {
        if self.has_own_records { Some(self) } else { None }
    }
}

impl OwnRecord<Message> for Scene {
    fn attempt<'a>(&'a self, _: &'a Claim, message: &'a Message) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(async {
            match self.call(&message.id, true).await {
                Shows::Available => Ok(RecordedAttempt::Done(Vec::new())),
                Shows::Nothing => Err(WorkError::retryable("refused")),
                Shows::Unavailable => Err(WorkError::unavailable("no connection")),
                Shows::Unreachable => Ok(RecordedAttempt::Unreachable("no connection".into())),
            }
        })
    }

    fn recorded<'a>(
        &'a self,
        request: &'a AcquireRequest,
        _: Instant,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(async {
            match self.call(request.key.as_str(), false).await {
                Shows::Available | Shows::Nothing => Ok(None),
                Shows::Unavailable | Shows::Unreachable => Err(WorkError::unavailable("no connection")),
            }
        })
    }
}

impl Store for Scene {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let key = request.key.clone();
        self.record(key.as_str(), What::Acquire);
        sleep(self.latency).await;
        self.record(key.as_str(), What::Reply);
        if key.as_str().ends_with("Failed") { Ok(Acquire::Failed) } else { self.records.acquire(request).await }
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.settled(claim.request()).await;
        self.records.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.settled(claim.request()).await;
        self.records.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.settled(request).await;
        self.records.release(request, claim).await
    }
}

impl ObjectStore for Scene {
    fn get<'a>(&'a self, location: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        self.record(&location.name, What::Fetch);
        let is_missing = location.name.ends_with("Missing");
        Box::pin(async move { if is_missing { Err(ObjectError::NotFound) } else { Ok(b"a payment".to_vec()) } })
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        unreachable!("no result is kept")
    }
}
