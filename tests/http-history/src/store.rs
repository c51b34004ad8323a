//! The store of a service: what it answers to each request, the results of a later release, and releases that fail.

use std::sync::Arc;
use std::time::Duration;

use harness::torture::tally::lock;
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Failure, Settled, StoreError, StoredResult};
use idempotent_sqs::{Claim, Key, Store};
use tokio::time::Instant;

use crate::kind::Kind;
use crate::logs;
use crate::tally::Tally;

/// The next format differs only in its version, the first byte.
const VERSION: u8 = 1;

/// Each acquire of this number finds a value that is not a record.
const ACQUIRES_PER_OTHER_VALUE: usize = 20;

/// An acquire for a request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Number of the request.
    pub(crate) request: usize,
    pub(crate) keeping: Keeping,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    pub(crate) told: Told,
}

/// How the record of a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keeping {
    pub(crate) retention: Duration,
    pub(crate) max_attempts: u8,
    pub(crate) failed_retention: Duration,
}

/// What the store answered to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Acquired {
        fence: u64,
        attempt: u8,
        is_recovery: bool,
    },
    Duplicate {
        fence: u64,
        attempts: u8,
        is_object: bool,
    },
    Conflict {
        lease_remains: Duration,
    },
    Mismatch,
    Failed,
    /// Out of reach.
    Unavailable,
    /// The value under the key is not a record.
    OtherValue,
}

impl Told {
    fn of(acquire: &Result<Acquire, StoreError>) -> Self {
        match acquire {
            Ok(Acquire::Acquired(claim) | Acquire::AcquiredStale(claim)) => {
                Self::Acquired { fence: claim.fence().0, attempt: claim.attempt(), is_recovery: claim.is_recovery() }
            }
            Ok(Acquire::Duplicate { fence, attempts, result }) => {
                let is_object = matches!(result, StoredResult::Object(_));
                Self::Duplicate { fence: fence.0, attempts: *attempts, is_object }
            }
            Ok(Acquire::Conflict { lease_remains }) => Self::Conflict { lease_remains: *lease_remains },
            Ok(Acquire::Mismatch) => Self::Mismatch,
            Ok(Acquire::Failed) => Self::Failed,
            Err(StoreError::NotARecord(_)) => Self::OtherValue,
            Err(_) => Self::Unavailable,
        }
    }
}

/// The store of a service of this kind, whose answers are noted. It has results in this format or in the next one, and
/// does not send some releases.
pub(crate) struct Watched<S> {
    pub(crate) store: S,
    pub(crate) kind: Kind,
    pub(crate) tally: Arc<Tally>,
}

impl<S: Store> Watched<S> {
    async fn answer(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        if self.tally.next_acquire().is_multiple_of(ACQUIRES_PER_OTHER_VALUE) {
            return Err(StoreError::NotARecord(request.key.stored().into_owned()));
        }
        self.store.acquire(self.with_its_key(request)).await
    }

    /// The request, with another key if its record has expired.
    fn with_its_key(&self, mut request: AcquireRequest) -> AcquireRequest {
        if logs::request().is_some_and(|number| self.has_expired_before_its_object_is_read(number)) {
            request.key = Key::new(&format!("expired {}", request.key.as_str())).expect("it is not empty");
        }
        request
    }

    /// Whether this request, which was told the object of its result, finds that its record has expired.
    fn has_expired_before_its_object_is_read(&self, number: usize) -> bool {
        let is_object =
            |asked: &Asked| asked.request == number && matches!(asked.told, Told::Duplicate { is_object: true, .. });
        number.is_multiple_of(3) && lock(&self.tally.asked).iter().any(is_object)
    }
}

impl<S: Store> Store for Watched<S> {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let AcquireRequest { retention, max_attempts, failed_retention, .. } = request;
        let keeping = Keeping { retention, max_attempts, failed_retention };
        let from = Instant::now();
        let acquire = self.answer(request).await;
        if let Some(request) = logs::request() {
            let (to, told) = (Instant::now(), Told::of(&acquire));
            lock(&self.tally.asked).push(Asked { request, keeping, from, to, told });
        }
        let mut acquire = acquire?;
        // The later release reads both formats.
        if let Acquire::Duplicate { result: StoredResult::Inline(result), .. } = &mut acquire
            && self.kind.is_next_release
        {
            result[0] = VERSION;
        }
        Ok(acquire)
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        match result {
            StoredResult::Inline([VERSION, rest @ ..]) if self.kind.is_next_release => {
                let next = [&[VERSION + 1], rest].concat();
                self.store.complete(claim, StoredResult::Inline(&next)).await
            }
            result => self.store.complete(claim, result).await,
        }
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.store.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        if claim.is_some_and(|claim| self.kind.holds(claim.fence().0)) {
            return Err(StoreError::unreachable("planned"));
        }
        if claim.is_none() {
            // Of an acquire without a reply.
            return self.store.release(&self.with_its_key(request.clone()), None).await;
        }
        self.store.release(request, claim).await
    }
}
