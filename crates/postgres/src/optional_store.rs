//! A store whose outage is tolerated.

use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Claim, Failure, Fence, Settled, StoreError, StoredResult};
use idempotent_sqs::{Key, Store};

/// A store for work that keeps its own record, such as an [`Inbox`](crate::Inbox). Do not use it with other work:
/// without the store nothing would prevent that work from running twice.
#[derive(Clone, Debug)]
pub struct OptionalStore<S> {
    store: S,
    outage: OutagePolicy,
}

/// What to do while the store is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutagePolicy {
    /// Run nothing, and return the error of the store.
    #[default]
    Refuse,
    /// Run the work as a recovery. Its own record alone prevents duplicates.
    Proceed,
}

impl<S> OptionalStore<S> {
    /// Wraps a store.
    pub fn new(store: S, outage: OutagePolicy) -> Self {
        Self { store, outage }
    }
}

impl<S: Store> Store for OptionalStore<S> {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        match self.store.acquire(request.clone()).await {
            Err(error) if error.is_unavailable() && self.outage == OutagePolicy::Proceed => {
                tracing::warn!(%error, key = request.key.as_str(), "the work runs without the idempotency store");
                // A store computes its fences from its clock, and continues after one computed from this machine's
                // clock.
                Ok(Acquire::claimed_without_store(request, Fence::from_clock()))
            }
            answer => answer,
        }
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.store.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.store.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.store.release(request, claim).await
    }

    fn part(&self, key: &Key) -> usize {
        self.store.part(key)
    }
}
