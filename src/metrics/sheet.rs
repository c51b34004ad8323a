//! What an invocation's calls took, measured around the store and the work. Each invocation has a
//! sheet of its own, as several may share a process.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::deadline::Deadline;
use crate::record::{Failure, Kept};
use crate::store::{Acquire, Attempt, Claim, Settled, Store, StoreError};
use crate::work::{Work, WorkError, Worked};

/// What an invocation's calls took.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    /// Each call of the store, whatever came of it.
    pub(super) store: Times,
    /// Each run of the work, whatever came of it.
    pub(super) work: Times,
    /// What was left of the lease when its claim was settled.
    pub(super) lease_remaining: Times,
    /// When the leases end. The heart gives all claims of an invocation the same end.
    leases_end: OnceLock<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Times(Mutex<Vec<Duration>>);

impl Times {
    fn add(&self, time: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(time);
    }

    /// Until it is dropped: what is cut off at a deadline took time as well.
    fn measure(&self) -> Measure<'_> {
        Measure { begun: Instant::now(), times: self }
    }

    pub(super) fn all(&self) -> Vec<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Measure<'a> {
    begun: Instant,
    times: &'a Times,
}

impl Drop for Measure<'_> {
    fn drop(&mut self) {
        self.times.add(self.begun.elapsed());
    }
}

impl Sheet {
    /// A store, or a work, that does as this one does, and is measured.
    pub(crate) fn measured<'a, T>(&'a self, inner: &'a T) -> Measured<'a, T> {
        Measured { inner, sheet: self }
    }

    fn settled(&self) {
        if let Some(end) = self.leases_end.get() {
            self.lease_remaining.add(end.saturating_duration_since(Instant::now()));
        }
    }
}

/// A store or a work whose calls are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured<'a, T> {
    inner: &'a T,
    sheet: &'a Sheet,
}

impl<S: Store> Store for Measured<'_, S> {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        let _measure = self.sheet.store.measure();
        self.sheet.leases_end.get_or_init(|| Deadline::within(attempt.lease).end);
        self.inner.acquire(attempt).await
    }

    async fn complete(&self, claim: &Claim, result: Kept<&[u8]>) -> Result<Settled, StoreError> {
        let _measure = self.sheet.store.measure();
        self.inner.complete(claim, result).await.inspect(|_settled| self.sheet.settled())
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        let _measure = self.sheet.store.measure();
        self.inner.fail(claim, failure).await.inspect(|_settled| self.sheet.settled())
    }

    async fn release(&self, attempt: &Attempt) -> Result<Settled, StoreError> {
        let _measure = self.sheet.store.measure();
        self.inner.release(attempt).await
    }
}

impl<T: ?Sized + Sync, W: Work<T>> Work<T> for Measured<'_, W> {
    async fn run(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        self.inner.run(claim, input).await
    }

    async fn recover(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        self.inner.recover(claim, input).await
    }

    async fn attempt(&self, claim: &Claim, input: &T) -> Result<Worked, WorkError> {
        let _measure = self.sheet.work.measure();
        self.inner.attempt(claim, input).await
    }

    async fn recorded(&self, attempt: &Attempt, until: Instant) -> Result<Option<Vec<u8>>, WorkError> {
        self.inner.recorded(attempt, until).await
    }

    fn keeps_record(&self) -> bool {
        self.inner.keeps_record()
    }
}
