//! Records in this process's memory, for tests of a [`Work`](crate::idempotency::Work) without a server.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::idempotency::protocol::{self, AcquireAnswer, Record};
use crate::idempotency::{Acquire, AcquireRequest, Claim, Failure, Key, Settled, Store, StoreError, StoredResult};

/// A [`Store`] in memory, for tests. Its records are not shared with other processes and are lost when it is dropped.
///
/// It measures leases and retention by tokio's clock, so a test can pause and advance them with [`tokio::time`].
#[derive(Debug)]
pub struct MemoryStore {
    /// By the stored form of their keys.
    records: Mutex<HashMap<String, Record>>,
    /// Time of creation, by tokio's clock and by the wall clock.
    created: (Instant, SystemTime),
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { records: Mutex::default(), created: (Instant::now(), SystemTime::now()) }
    }
}

impl MemoryStore {
    /// The current time, in µs since 1970.
    fn now(&self) -> u64 {
        let (instant, time) = self.created;
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + instant.elapsed();
        u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
    }

    /// Applies one function of [`protocol`] to the record of this key, and returns its answer.
    fn apply<T>(&self, key: &Key, step: impl FnOnce(Option<&Record>, u64) -> (T, Option<Record>)) -> T {
        let key = key.stored();
        let mut records = self.lock();
        let now = self.now();
        let record = records.get(&*key).filter(|record| record.expires_ms > now / 1000);
        let (answer, changed) = step(record, now);
        if let Some(record) = changed {
            records.insert(key.into_owned(), record);
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Record>> {
        // Every change is one insert, so a panic cannot leave an incomplete change behind.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn protocol_claim(claim: &Claim) -> protocol::SettleRequest<'_> {
    protocol::SettleRequest { request: claim.request(), fence: claim.fence(), number: claim.attempt() }
}

impl Store for MemoryStore {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let answer = self.apply(&request.key, |record, now| protocol::acquire(record, &request, now));
        Ok(match answer {
            AcquireAnswer::Acquired { fence, attempts, recovery } => {
                Acquire::claimed(request, fence, attempts, recovery)
            }
            AcquireAnswer::Duplicate { fence, attempts, result } => Acquire::Duplicate { fence, attempts, result },
            // Rounded up to whole milliseconds, as in every store.
            AcquireAnswer::Conflict { remains } => Acquire::Conflict {
                lease_remains: Duration::from_millis(
                    u64::try_from(remains.as_micros().div_ceil(1000)).unwrap_or(u64::MAX),
                ),
            },
            AcquireAnswer::Mismatch => Acquire::Mismatch,
            AcquireAnswer::Failed => Acquire::Failed,
        })
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let result = result.into_owned();
        Ok(self.apply(claim.key(), |record, now| protocol::complete(record, protocol_claim(claim), result, now)))
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        Ok(self.apply(claim.key(), |record, now| protocol::fail(record, protocol_claim(claim), failure, now)))
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        let recovery = claim.filter(|claim| claim.is_recovery()).map(protocol_claim);
        Ok(self.apply(&request.key, |record, now| protocol::release(record, request, recovery, now)))
    }
}
