//! A store whose calls are made together with those of another record.

use futures_util::join;
use harness::with;
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Key, Owner, Settled, Store, StoreError, StoredResult,
};

/// Each call is made together with the same call for a new record.
pub(super) struct Accompanied<S>(pub(super) S);

/// The same request for a new record.
fn another(request: &AcquireRequest) -> AcquireRequest {
    let key = Key::new(&format!("another-{:016x}", getrandom::u64().unwrap())).unwrap();
    with!(request.clone(), key = key, owner = Owner::random())
}

impl<S: Store> Accompanied<S> {
    /// A claim of a new record, with the terms of this one.
    async fn claim(&self, like: &AcquireRequest) -> Claim {
        match self.0.acquire(another(like)).await.unwrap() {
            Acquire::Acquired(claim) => claim,
            other => panic!("not acquired: {other:?}"),
        }
    }
}

impl<S: Store> Store for Accompanied<S> {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let other = self.0.acquire(another(&request));
        let (answer, other) = join!(self.0.acquire(request), other);
        assert!(matches!(other, Ok(Acquire::Acquired(_))), "{other:?}");
        answer
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let other = self.claim(claim.request()).await;
        let (answer, other) = join!(self.0.complete(claim, result), self.0.complete(&other, StoredResult::NotKept));
        assert!(matches!(other, Ok(Settled::Recorded)), "{other:?}");
        answer
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        let other = self.claim(claim.request()).await;
        let (answer, other) = join!(self.0.fail(claim, failure), self.0.fail(&other, Failure::default()));
        assert!(matches!(other, Ok(Settled::Recorded)), "{other:?}");
        answer
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        let other = another(request);
        let (answer, other) = join!(self.0.release(request, claim), self.0.release(&other, None));
        assert!(matches!(other, Ok(Settled::Recorded)), "{other:?}");
        answer
    }
}
