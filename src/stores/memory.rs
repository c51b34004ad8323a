//! A store in this process's memory: for tests of a [`Work`](crate::work::Work), without a server.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::record::{Failure, Fence, Fingerprint, Kept, Key, MessageTag, Owner, State};
use crate::store::{Acquire, Attempt, Claim, Settled, Store, StoreError};

/// A [`Store`] for tests. It protects nothing beyond this process, and forgets with it.
///
/// Its clock is tokio's, so a test that pauses and advances that clock moves leases and retention.
#[derive(Debug, Default)]
pub struct MemoryStore {
    records: Mutex<HashMap<Key, Record>>,
}

#[derive(Debug)]
struct Record {
    state: State,
    owner: Owner,
    fence: Fence,
    fingerprint: Fingerprint,
    message: MessageTag,
    attempts: u8,
    failure: Failure,
    recovery: bool,
    lease_end: Instant,
    expires: Instant,
    result: Kept<Vec<u8>>,
}

impl MemoryStore {
    /// The records, without the one under `key` if it has outlived its retention.
    fn records(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Record>> {
        // Every change below is one insert, so a panic elsewhere cannot have left half of one.
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.get(key).is_some_and(|record| record.expires <= Instant::now()) {
            records.remove(key);
        }
        records
    }

    /// Replace the record of the claim with `state`, where it is the claim's own or gone.
    fn settle(&self, claim: &Claim, state: State, failure: Failure, result: Kept<Vec<u8>>) -> Settled {
        let asked = claim.asked();
        let mut records = self.records(&asked.key);
        let now = Instant::now();
        let (mut fence, mut expires) = (claim.fence(), now + asked.retention);
        if let Some(record) = records.get(&asked.key) {
            if record.owner == asked.owner && record.state == state {
                return Settled::Recorded;
            }
            if record.owner != asked.owner || record.state != State::Processing {
                return Settled::Lost(record.state);
            }
            (fence, expires) = (fence.max(record.fence), record.expires);
        }
        let record = Record {
            state,
            owner: asked.owner,
            fence,
            fingerprint: asked.fingerprint,
            message: asked.message,
            attempts: claim.attempt(),
            failure,
            recovery: claim.is_recovery(),
            lease_end: now,
            expires,
            result,
        };
        records.insert(asked.key.clone(), record);
        Settled::Recorded
    }
}

impl Store for MemoryStore {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        let mut records = self.records(&attempt.key);
        let now = Instant::now();
        let (mut attempts, mut fence, mut recovery) = (0, 0, false);
        if let Some(record) = records.get(&attempt.key) {
            let spent = record.failure.permanent || record.attempts >= attempt.max_attempts;
            let nothing_happened = record.state == State::Failed && !record.failure.uncertain;
            if !record.fingerprint.agrees_with(&attempt.fingerprint) && !nothing_happened {
                return Ok(Acquire::Mismatch);
            }
            match record.state {
                State::Completed => {
                    let (fence, attempts, result) = (record.fence, record.attempts, record.result.clone());
                    return Ok(Acquire::Duplicate { fence, attempts, result });
                }
                State::Processing if record.owner == attempt.owner => {
                    return Ok(Acquire::claimed(attempt, record.fence, record.attempts, record.recovery));
                }
                State::Processing if record.lease_end > now => {
                    return Ok(Acquire::Conflict { lease_remains: record.lease_end - now });
                }
                State::Failed if record.owner == attempt.owner => return Ok(Acquire::Failed),
                State::Processing | State::Failed if spent && record.message == attempt.message => {
                    return Ok(Acquire::Failed);
                }
                State::Processing => recovery = true,
                State::Failed => recovery = record.failure.uncertain,
            }
            attempts = if record.attempts < attempt.max_attempts { record.attempts } else { 0 };
            fence = record.fence.0;
        }
        let record = Record {
            state: State::Processing,
            owner: attempt.owner,
            fence: Fence::by_the_clock().max(Fence(fence + 1)),
            fingerprint: attempt.fingerprint,
            message: attempt.message,
            attempts: attempts + 1,
            failure: Failure::default(),
            recovery,
            lease_end: now + attempt.lease,
            expires: now + attempt.retention,
            result: Kept::Nowhere,
        };
        let (fence, attempts) = (record.fence, record.attempts);
        records.insert(attempt.key.clone(), record);
        Ok(Acquire::claimed(attempt, fence, attempts, recovery))
    }

    async fn complete(&self, claim: &Claim, result: Kept<&[u8]>) -> Result<Settled, StoreError> {
        Ok(self.settle(claim, State::Completed, Failure::default(), result.into_owned()))
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        Ok(self.settle(claim, State::Failed, failure, Kept::Nowhere))
    }
}
