//! A store that can be done without for a while.

use crate::record::{Failure, Fence, Kept};
use crate::store::{Acquire, Attempt, Claim, Settled, Store, StoreError};

/// A store in front of a work that [keeps a record of its own](crate::work::Work::keeps_record), such as an
/// inbox. Any other work needs its store, and must not be given this one.
#[derive(Clone, Debug)]
pub struct Dispensable<S> {
    store: S,
    outage: Outage,
}

/// What is done while the store is out of reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// Nothing runs.
    #[default]
    Refuse,
    /// The work runs, and its own record alone decides.
    Proceed,
}

impl<S> Dispensable<S> {
    /// This store, and what is done without it.
    pub fn new(store: S, outage: Outage) -> Self {
        Self { store, outage }
    }
}

impl<S: Store> Store for Dispensable<S> {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        match self.store.acquire(attempt.clone()).await {
            Err(error) if error.is_unavailable() && self.outage == Outage::Proceed => {
                tracing::warn!(%error, key = attempt.key.as_str(), "the work goes on without the idempotency store");
                // Nobody knows of earlier attempts, so this one is a recovery. Its fence is as good as
                // this machine's clock, by which a store's clock would count on.
                Ok(Acquire::claimed(attempt, Fence::by_the_clock(), 1, true))
            }
            answer => answer,
        }
    }

    async fn complete(&self, claim: &Claim, result: Kept<&[u8]>) -> Result<Settled, StoreError> {
        self.store.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.store.fail(claim, failure).await
    }

    async fn release(&self, attempt: &Attempt, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.store.release(attempt, claim).await
    }
}
