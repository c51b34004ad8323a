//! A store of two releases of a service, of which the later one stores its responses in another format.

use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Failure, Settled, StoreError, StoredResult};
use idempotent_sqs::{Claim, Store};

/// The next format differs only in its version, the first byte.
const VERSION: u8 = 1;

/// A store whose results are in this format or, `is_next`, in the next one.
pub(crate) struct Format<S> {
    pub(crate) store: S,
    pub(crate) is_next: bool,
}

impl<S: Store> Store for Format<S> {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let mut acquire = self.store.acquire(request).await?;
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
