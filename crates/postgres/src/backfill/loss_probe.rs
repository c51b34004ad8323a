//! Records of no work, by which a store shows that it has lost nothing since they were written.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use idempotent_sqs::idempotency::{
    Acquire, Attempt, Key, Owner, Store, StoreError, StoredResult,
};

/// Many records, so that of a cluster that loses a node one is gone: of fifteen nodes, in 99 cases of 100. On one
/// server they go in one run of a script.
const RECORDS: u8 = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LossProbe {
    name: String,
}

impl LossProbe {
    /// One that no store knows.
    pub(super) fn new() -> Self {
        Self { name: format!("{}{}", Owner::random(), Owner::random()) }
    }

    pub(super) fn named(name: String) -> Self {
        Self { name }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Write its records.
    pub(super) async fn release<S: Store>(&self, store: &S, retention: Duration) -> Result<(), StoreError> {
        let records = self.attempts(retention).map(|attempt| async {
            match store.acquire(attempt).await? {
                Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => {
                    store.complete(&claim, StoredResult::NotKept).await.map(drop)
                }
                // Nobody else knows its name. Whatever it is, a look at it will tell.
                Acquire::Duplicate { .. } | Acquire::Conflict { .. } | Acquire::Mismatch | Acquire::Failed => Ok(()),
            }
        });
        try_join_all(records).await.map(drop)
    }

    /// Whether all its records are there. To look is to acquire, under a lease that is over at once: one
    /// that was lost is not COMPLETED by being looked for, so that it stays lost for whoever looks next.
    pub(super) async fn lives<S: Store>(&self, store: &S, retention: Duration) -> Result<bool, StoreError> {
        let mut lives = true;
        for answer in join_all(self.attempts(retention).map(|attempt| store.acquire(attempt))).await {
            lives &= matches!(answer?, Acquire::Duplicate { .. });
        }
        Ok(lives)
    }

    fn attempts(&self, retention: Duration) -> impl Iterator<Item = Attempt> {
        (0..RECORDS).filter_map(move |number| {
            let mut attempt = Attempt::new(Key::new(&format!("loss-probe:{}:{number}", self.name)).ok()?);
            attempt.lease = Duration::ZERO;
            attempt.longest_lease = Duration::ZERO;
            attempt.retention = retention;
            attempt.max_attempts = u8::MAX;
            Some(attempt)
        })
    }
}
