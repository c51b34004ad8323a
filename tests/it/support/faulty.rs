//! A store whose faults the test switches on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use idempotent_sqs::record::Failure;
use idempotent_sqs::store::{Acquire, Attempt, Claim, Settled, Store, StoreError};
use idempotent_sqs::stores::MemoryStore;

/// What befalls a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// It is not executed.
    Refused,
    /// It is executed, and the answer is lost.
    ReplyLost,
    /// It waits for ever.
    Silent,
}

/// A memory store, and the faults that its verbs have for the time being.
#[derive(Default)]
pub(crate) struct Faulty {
    pub(crate) inner: MemoryStore,
    pub(crate) acquire: Mutex<Option<Fault>>,
    pub(crate) settle: Mutex<Option<Fault>>,
    acquires: AtomicUsize,
    settles: AtomicUsize,
}

impl Faulty {
    pub(crate) fn acquires(&self) -> usize {
        self.acquires.load(Ordering::SeqCst)
    }

    pub(crate) fn settles(&self) -> usize {
        self.settles.load(Ordering::SeqCst)
    }
}

async fn befall<T>(fault: Option<Fault>, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let lost = || Err(StoreError::unavailable("as told"));
    match fault {
        None => call.await,
        Some(Fault::Refused) => lost(),
        Some(Fault::ReplyLost) => call.await.and_then(|_| lost()),
        Some(Fault::Silent) => std::future::pending().await,
    }
}

impl Store for Faulty {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        self.acquires.fetch_add(1, Ordering::SeqCst);
        let fault = *self.acquire.lock().unwrap();
        befall(fault, self.inner.acquire(attempt)).await
    }

    async fn complete(&self, claim: &Claim, result: Option<&[u8]>) -> Result<Settled, StoreError> {
        self.settles.fetch_add(1, Ordering::SeqCst);
        let fault = *self.settle.lock().unwrap();
        befall(fault, self.inner.complete(claim, result)).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.settles.fetch_add(1, Ordering::SeqCst);
        let fault = *self.settle.lock().unwrap();
        befall(fault, self.inner.fail(claim, failure)).await
    }
}
