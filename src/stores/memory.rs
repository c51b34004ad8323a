//! A store in this process's memory: for tests of a [`Work`](crate::work::Work), without a server.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

    /// Replace the record of the claim by `state`, where the record is the claim's own, gives way to it or is
    /// absent.
    fn settle(&self, claim: &Claim, state: State, failure: Failure, result: Kept<Vec<u8>>) -> Settled {
        let asked = claim.asked();
        let mut records = self.records(&asked.key);
        let now = Instant::now();
        let (mut fence, mut expires) = (claim.fence(), after(now, asked.retention));
        let mut fingerprint = asked.fingerprint;
        if let Some(record) = records.get_mut(&asked.key) {
            let owns = record.owner == asked.owner;
            let same_payload = record.fingerprint.agrees_with(&fingerprint);
            match (record.state, state) {
                (before, after) if before == after && owns => return Settled::Recorded,
                (State::Processing, _) if owns => {}
                (State::Failed, State::Completed) if same_payload => {}
                (State::Failed, State::Failed) if same_payload => {
                    record.failure.uncertain |= failure.uncertain;
                    return Settled::Lost(State::Failed);
                }
                (before, _) => return Settled::Lost(before),
            }
            (fence, expires) = (fence.max(record.fence), record.expires);
            if fingerprint == Fingerprint::NONE {
                fingerprint = record.fingerprint;
            }
        }
        let record = Record {
            state,
            owner: asked.owner,
            fence,
            fingerprint,
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

/// A time that is too far away to be told is as good as ten years.
fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or(now + Duration::from_secs(10 * 365 * 24 * 3600))
}

impl Store for MemoryStore {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        let mut records = self.records(&attempt.key);
        let now = Instant::now();
        let (mut attempts, mut fence, mut recovery) = (0, 0, false);
        let mut fingerprint = attempt.fingerprint;
        if let Some(record) = records.get_mut(&attempt.key) {
            let spent = record.failure.permanent || record.attempts >= attempt.max_attempts;
            let same_payload = record.fingerprint.agrees_with(&attempt.fingerprint);
            match record.state {
                State::Completed if !same_payload => return Ok(Acquire::Mismatch),
                State::Completed => {
                    let (fence, attempts, result) = (record.fence, record.attempts, record.result.clone());
                    return Ok(Acquire::Duplicate { fence, attempts, result });
                }
                State::Processing if record.owner == attempt.owner => {
                    return Ok(Acquire::claimed(attempt, record.fence, record.attempts, record.recovery));
                }
                State::Processing if record.lease_end > now => {
                    record.lease_end = record.lease_end.min(after(now, attempt.longest_lease.max(attempt.lease)));
                    return Ok(Acquire::Conflict { lease_remains: record.lease_end - now });
                }
                State::Processing => recovery = true,
                State::Failed => recovery = record.failure.uncertain,
            }
            if recovery && !same_payload {
                return Ok(Acquire::Mismatch);
            }
            let settled_by_this_owner = record.state == State::Failed && record.owner == attempt.owner;
            if settled_by_this_owner || spent && record.message == attempt.message {
                return Ok(Acquire::Failed);
            }
            attempts = if record.attempts < attempt.max_attempts { record.attempts } else { 0 };
            fence = record.fence.0;
            if fingerprint == Fingerprint::NONE {
                fingerprint = record.fingerprint;
            }
        }
        let record = Record {
            state: State::Processing,
            owner: attempt.owner,
            fence: Fence::by_the_clock().max(Fence(fence + 1)),
            fingerprint,
            message: attempt.message,
            attempts: attempts + 1,
            failure: Failure::default(),
            recovery,
            lease_end: after(now, attempt.lease),
            expires: after(now, attempt.retention.max(attempt.lease)),
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

    async fn release(&self, attempt: &Attempt) -> Result<Settled, StoreError> {
        let mut records = self.records(&attempt.key);
        let now = Instant::now();
        let Some(record) = records.get_mut(&attempt.key) else {
            let record = Record {
                state: State::Failed,
                owner: attempt.owner,
                fence: Fence(0),
                fingerprint: attempt.fingerprint,
                message: attempt.message,
                attempts: 0,
                failure: Failure::default(),
                recovery: false,
                lease_end: now,
                expires: after(now, attempt.longest_lease.max(attempt.lease)),
                result: Kept::Nowhere,
            };
            records.insert(attempt.key.clone(), record);
            return Ok(Settled::Recorded);
        };
        match record.state {
            State::Failed | State::Processing if record.owner != attempt.owner => Ok(Settled::Lost(record.state)),
            State::Completed => Ok(Settled::Lost(State::Completed)),
            State::Failed => Ok(Settled::Recorded),
            State::Processing => {
                record.state = State::Failed;
                record.failure = Failure { uncertain: record.recovery, permanent: false };
                record.attempts = record.attempts.saturating_sub(1);
                Ok(Settled::Recorded)
            }
        }
    }
}
