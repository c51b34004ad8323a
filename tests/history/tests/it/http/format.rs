//! A store of two releases of a service, of which the later one stores its responses in another format.

use std::sync::Arc;

use harness::torture::tally::lock;
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Failure, Settled, StoreError, StoredResult};
use idempotent_sqs::{Claim, Store};
use tokio::time::Instant;

use super::logs;
use super::tally::Tally;

/// The next format differs only in its version, the first byte.
const VERSION: u8 = 1;

/// What the store answered to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Duplicate,
    Other,
    Error,
}

/// A store whose results are in this format or, `is_next`, in the next one.
pub(crate) struct Format<S> {
    pub(crate) store: S,
    pub(crate) is_next: bool,
    pub(crate) tally: Arc<Tally>,
}

impl<S: Store> Store for Format<S> {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let acquire = self.store.acquire(request).await;
        if let Some(number) = logs::request() {
            let acquired = match &acquire {
                Ok(Acquire::Duplicate { .. }) => Acquired::Duplicate,
                Ok(_) => Acquired::Other,
                Err(_) => Acquired::Error,
            };
            lock(&self.tally.acquires).push((number, acquired, Instant::now()));
        }
        let mut acquire = acquire?;
        // The later release reads both formats.
        if let Acquire::Duplicate { result: StoredResult::Inline(result), .. } = &mut acquire
            && self.is_next
        {
            result[0] = VERSION;
        }
        Ok(acquire)
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        match result {
            StoredResult::Inline([VERSION, rest @ ..]) if self.is_next => {
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
        self.store.release(request, claim).await
    }
}
