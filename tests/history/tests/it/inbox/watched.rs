//! A store that remembers what one delivery asked it, and what it answered.

use std::sync::{Arc, Mutex};

use harness::torture::tally::lock;
use history::{Hex, RecordedStore};
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Failure, Settled, StoreError, StoredResult};
use idempotent_sqs::{Claim, RedisStore, Store};

/// A call of the store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Called {
    Acquire {
        owner: Hex<8>,
        answer: Option<Acquired>,
    },
    Complete {
        result: Option<Vec<u8>>,
        answer: Option<Answer>,
    },
    Fail {
        failure: Failure,
        answer: Option<Answer>,
    },
    /// `has_claim` says whether the acquire was answered.
    Release {
        has_claim: bool,
        answer: Option<Answer>,
    },
}

/// The answer to an acquire. `None` in its place: it was not awaited.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Acquired {
    Claim { fence: u64, attempt: u8, is_recovery: bool },
    Duplicate { fence: u64, attempts: u8, result: Option<Vec<u8>> },
    Conflict,
    Mismatch,
    Failed,
    Unavailable,
    NotARecord,
}

/// The answer to another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Recorded,
    Lost,
    Error,
}

/// The store of one delivery.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) store: Arc<RecordedStore<RedisStore>>,
    pub(crate) calls: Arc<Mutex<Vec<Called>>>,
}

impl Watched {
    /// Adds a call whose answer is not known yet. Returns its number.
    fn called(&self, call: Called) -> usize {
        let mut calls = lock(&self.calls);
        calls.push(call);
        calls.len() - 1
    }

    fn settled(&self, number: usize, settled: &Result<Settled, StoreError>) {
        let known = Some(match settled {
            Ok(Settled::Recorded) => Answer::Recorded,
            Ok(Settled::Lost(_)) => Answer::Lost,
            Err(_) => Answer::Error,
        });
        match &mut lock(&self.calls)[number] {
            Called::Complete { answer, .. } | Called::Fail { answer, .. } | Called::Release { answer, .. } => {
                *answer = known;
            }
            Called::Acquire { .. } => {}
        }
    }
}

impl Store for Watched {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let number = self.called(Called::Acquire { owner: Hex(*request.owner.as_bytes()), answer: None });
        let acquire = self.store.acquire(request).await;
        if let Called::Acquire { answer, .. } = &mut lock(&self.calls)[number] {
            *answer = Some(Acquired::of(&acquire));
        }
        acquire
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let number = self.called(Called::Complete { result: kept(result.into_owned()), answer: None });
        let settled = self.store.complete(claim, result).await;
        self.settled(number, &settled);
        settled
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        let number = self.called(Called::Fail { failure, answer: None });
        let settled = self.store.fail(claim, failure).await;
        self.settled(number, &settled);
        settled
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        let number = self.called(Called::Release { has_claim: claim.is_some(), answer: None });
        let settled = self.store.release(request, claim).await;
        self.settled(number, &settled);
        settled
    }
}

impl Acquired {
    fn of(acquire: &Result<Acquire, StoreError>) -> Self {
        match acquire {
            Ok(Acquire::Acquired(claim) | Acquire::AcquiredStale(claim)) => {
                let (fence, attempt, is_recovery) = (claim.fence().0, claim.attempt(), claim.is_recovery());
                Self::Claim { fence, attempt, is_recovery }
            }
            Ok(Acquire::Duplicate { fence, attempts, result }) => {
                Self::Duplicate { fence: fence.0, attempts: *attempts, result: kept(result.clone()) }
            }
            Ok(Acquire::Conflict { .. }) => Self::Conflict,
            Ok(Acquire::Mismatch) => Self::Mismatch,
            Ok(Acquire::Failed) => Self::Failed,
            Err(StoreError::NotARecord(_)) => Self::NotARecord,
            Err(_) => Self::Unavailable,
        }
    }
}

/// The result in a record, if it is there.
fn kept(result: StoredResult<Vec<u8>>) -> Option<Vec<u8>> {
    match result {
        StoredResult::Inline(result) => Some(result),
        StoredResult::Object(_) | StoredResult::NotKept => None,
    }
}
