//! A store in this process's memory: for tests of a [`Work`](crate::idempotency::Work), without a server.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::idempotency::protocol::{self, Answer, Record};
use crate::idempotency::{Acquire, Attempt, Claim, Failure, Key, Settled, Store, StoreError, StoredResult};

/// A [`Store`] for tests. It protects nothing beyond this process, and forgets with it.
///
/// Its clock is tokio's, so a test that pauses and advances that clock moves leases and retention.
#[derive(Debug)]
pub struct MemoryStore {
    records: Mutex<HashMap<Key, Record>>,
    /// When the store was made, by both clocks.
    made: (Instant, SystemTime),
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { records: Mutex::default(), made: (Instant::now(), SystemTime::now()) }
    }
}

impl MemoryStore {
    /// µs since 1970.
    fn now(&self) -> u64 {
        let (instant, time) = self.made;
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + instant.elapsed();
        u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
    }

    /// The answer of one step of the state machine on the record of this key.
    fn step<T>(&self, key: &Key, step: impl FnOnce(Option<&Record>, u64) -> (T, Option<Record>)) -> T {
        let mut records = self.records();
        let now = self.now();
        let record = records.get(key).filter(|record| record.expires_ms > now / 1000);
        let (answer, changed) = step(record, now);
        if let Some(record) = changed {
            records.insert(key.clone(), record);
        }
        answer
    }

    fn records(&self) -> MutexGuard<'_, HashMap<Key, Record>> {
        // Every change is one insert, so a panic elsewhere cannot have left half of one.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn as_claimed(claim: &Claim) -> protocol::Claim<'_> {
    protocol::Claim { attempt: claim.asked(), fence: claim.fence(), number: claim.attempt() }
}

impl Store for MemoryStore {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        let answer = self.step(&attempt.key, |record, now| protocol::acquire(record, &attempt, now));
        Ok(match answer {
            Answer::Acquired { fence, attempts, recovery } => Acquire::claimed(attempt, fence, attempts, recovery),
            Answer::Duplicate { fence, attempts, result } => Acquire::Duplicate { fence, attempts, result },
            // Whole milliseconds, as every store counts them.
            Answer::Conflict { remains } => Acquire::Conflict {
                lease_remains: Duration::from_millis(
                    u64::try_from(remains.as_micros().div_ceil(1000)).unwrap_or(u64::MAX),
                ),
            },
            Answer::Mismatch => Acquire::Mismatch,
            Answer::Failed => Acquire::Failed,
        })
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let result = result.into_owned();
        Ok(self.step(claim.key(), |record, now| protocol::complete(record, as_claimed(claim), result, now)))
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        Ok(self.step(claim.key(), |record, now| protocol::fail(record, as_claimed(claim), failure, now)))
    }

    async fn release(&self, attempt: &Attempt, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        let in_doubt = claim.filter(|claim| claim.is_recovery()).map(as_claimed);
        Ok(self.step(&attempt.key, |record, now| protocol::release(record, attempt, in_doubt, now)))
    }
}
