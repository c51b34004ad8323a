//! Records by which a run detects that the store has lost records since they were written.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use idempotent_sqs::Store;
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Key, Owner, StoreError, StoredResult};

/// Number of records. If a cluster of 15 nodes loses a node, one of these records is lost in 99 of 100 cases. On a
/// single server one execution of a script handles all of them.
const RECORDS: u8 = 64;

/// COMPLETED records without any work, under keys that contain a random name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LossProbe {
    name: String,
}

impl LossProbe {
    /// A probe with a new name. Its records are not written yet.
    pub(super) fn new() -> Self {
        Self { name: format!("{}{}", Owner::random(), Owner::random()) }
    }

    pub(super) fn named(name: String) -> Self {
        Self { name }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Writes the records.
    pub(super) async fn write<S: Store>(&self, store: &S, retention: Duration) -> Result<(), StoreError> {
        let records = self.attempts(retention).map(|attempt| async {
            match store.acquire(attempt).await? {
                Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => {
                    store.complete(&claim, StoredResult::NotKept).await.map(drop)
                }
                // Only this run uses this name. If the record exists, regardless of its state, the next check detects
                // whether it is intact.
                Acquire::Duplicate { .. } | Acquire::Conflict { .. } | Acquire::Mismatch | Acquire::Failed => Ok(()),
            }
        });
        try_join_all(records).await.map(drop)
    }

    /// Whether all records exist. Each is checked by an acquire whose lease ends immediately. A lost record is released
    /// again, because a PROCESSING one would count as work that died. That does not make it COMPLETED, so the next check
    /// detects the loss too.
    pub(super) async fn is_intact<S: Store>(&self, store: &S, retention: Duration) -> Result<bool, StoreError> {
        let checks = self.attempts(retention).map(|attempt| async {
            let answer = store.acquire(attempt).await?;
            if let Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) = &answer {
                // The loss is known, whether or not the record is released.
                let _released = store.release(claim.request(), Some(claim)).await;
            }
            Ok(matches!(answer, Acquire::Duplicate { .. }))
        });
        let mut is_intact = true;
        for is_kept in join_all(checks).await {
            is_intact &= is_kept?;
        }
        Ok(is_intact)
    }

    fn attempts(&self, retention: Duration) -> impl Iterator<Item = AcquireRequest> {
        (0..RECORDS).filter_map(move |number| {
            let mut attempt = AcquireRequest::new(Key::new(&format!("loss-probe:{}:{number}", self.name)).ok()?);
            attempt.lease = Duration::ZERO;
            attempt.longest_lease = Duration::ZERO;
            attempt.retention = retention;
            attempt.max_attempts = u8::MAX;
            Some(attempt)
        })
    }
}
