//! The state machine of an idempotency record as pure functions: each takes the record, a request and the time, and
//! returns an answer and the changed record.
//!
//! [`MemoryStore`](crate::MemoryStore) runs these functions. The scripts in `lua/` implement the same rules for Redis
//! and are compared with these functions by random tests. [`Store`](super::Store) has the table of the rules.

use std::time::Duration;

use super::claim::AcquireRequest;
use super::fingerprint::{Fingerprint, MessageIdHash};
use super::owner::{Fence, Owner};
use super::record::{self, Failure, StoredResult};
use super::store::Settled;

/// An idempotency record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The attempt that acquired it last.
    pub owner: Owner,
    /// Fingerprint of the payload.
    pub fingerprint: Fingerprint,
    /// Hash of the messageId of the last delivery.
    pub message: MessageIdHash,
    /// The highest fence of any claim of the key.
    pub fence: Fence,
    /// Number of counted attempts.
    pub attempts: u8,
    /// State, with its data.
    pub state: RecordState,
    /// When the record expires, ms since 1970.
    pub expires_ms: u64,
}

/// State of a record, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// An owner holds the record, or held it until its lease ended.
    Processing {
        /// Whether an earlier attempt may have taken effect.
        recovery: bool,
        /// End of the lease, ms since 1970.
        lease_end_ms: u64,
    },
    /// The work is done.
    Completed {
        /// Its result, or where the result is.
        result: StoredResult<Vec<u8>>,
    },
    /// The last attempt failed.
    Failed(Failure),
}

impl RecordState {
    /// The state without its data.
    #[must_use]
    pub fn name(&self) -> record::State {
        match self {
            Self::Processing { .. } => record::State::Processing,
            Self::Completed { .. } => record::State::Completed,
            Self::Failed(_) => record::State::Failed,
        }
    }
}

/// Answer to [`acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireAnswer {
    /// The caller owns the record.
    Acquired {
        /// The claim's fence.
        fence: Fence,
        /// Number of counted attempts, including this one.
        attempts: u8,
        /// Whether an earlier attempt may have taken effect.
        recovery: bool,
    },
    /// The work was done before.
    Duplicate {
        /// Fence of the claim that did it.
        fence: Fence,
        /// Number of attempts that it took.
        attempts: u8,
        /// Its result, or where the result is.
        result: StoredResult<Vec<u8>>,
    },
    /// Another owner holds the lease.
    Conflict {
        /// Remaining time of that lease.
        remains: Duration,
    },
    /// Another payload was completed under this key, or may have taken effect.
    Mismatch,
    /// An earlier attempt failed permanently, or all attempts are used up. Applies for the `failed_retention`, or until
    /// the key is delivered with another messageId.
    Failed,
}

/// A claim that is being settled.
#[derive(Clone, Copy, Debug)]
pub struct SettleRequest<'a> {
    /// The attempt that acquired it.
    pub request: &'a AcquireRequest,
    /// Its fence.
    pub fence: Fence,
    /// Number of the attempt.
    pub number: u8,
}

/// Acquires the record for this attempt. Returns the answer, and the record if it changes.
#[must_use]
pub fn acquire(record: Option<&Record>, request: &AcquireRequest, now_us: u64) -> (AcquireAnswer, Option<Record>) {
    let (mut attempts, mut fence, mut recovery) = (0, 0, false);
    let mut fingerprint = request.fingerprint;
    if let Some(record) = record {
        let same_payload = record.fingerprint.agrees_with(&fingerprint);
        let owns = record.owner == request.owner;
        let mut permanent = false;
        match record.state {
            RecordState::Completed { .. } if !same_payload => return (AcquireAnswer::Mismatch, None),
            RecordState::Completed { ref result } => {
                let (fence, attempts, result) = (record.fence, record.attempts, result.clone());
                return (AcquireAnswer::Duplicate { fence, attempts, result }, None);
            }
            // The same owner repeats its acquire because the first reply was lost.
            RecordState::Processing { recovery, .. } if owns => {
                return (AcquireAnswer::Acquired { fence: record.fence, attempts: record.attempts, recovery }, None);
            }
            RecordState::Processing { recovery, lease_end_ms } if lease_end_ms.saturating_mul(1000) > now_us => {
                return conflict(record, recovery, lease_end_ms, request, now_us);
            }
            RecordState::Processing { .. } => recovery = true,
            RecordState::Failed(failure) => (recovery, permanent) = (failure.uncertain, failure.permanent),
        }
        if recovery && !same_payload {
            return (AcquireAnswer::Mismatch, None);
        }
        let settled_by_this_owner = owns && record.state.name() == record::State::Failed;
        let used_up = record.attempts >= request.max_attempts;
        let failed_retention_us = u64::try_from(request.failed_retention.as_micros()).unwrap_or(u64::MAX);
        // The fence is the time of the last acquire.
        let applies = record.message == request.message && now_us < record.fence.0.saturating_add(failed_retention_us);
        if settled_by_this_owner || (permanent || used_up) && applies {
            return (AcquireAnswer::Failed, None);
        }
        attempts = if used_up { 0 } else { record.attempts };
        fence = record.fence.0;
        if fingerprint == Fingerprint::NONE {
            fingerprint = record.fingerprint;
        }
    }
    let record = Record {
        owner: request.owner,
        fingerprint,
        message: request.message,
        fence: Fence(now_us.max(fence + 1)),
        attempts: attempts + 1,
        state: RecordState::Processing { recovery, lease_end_ms: after(now_us, request.lease) },
        expires_ms: after(now_us, request.retention.max(request.lease)),
    };
    (AcquireAnswer::Acquired { fence: record.fence, attempts: record.attempts, recovery }, Some(record))
}

/// The answer to an acquire during a lease. A lease that is longer than the maximum was acquired while the clock was
/// ahead; it is shortened.
fn conflict(
    record: &Record,
    recovery: bool,
    lease_end_ms: u64,
    request: &AcquireRequest,
    now_us: u64,
) -> (AcquireAnswer, Option<Record>) {
    let longest = request.longest_lease.max(request.lease);
    let remains = Duration::from_micros(lease_end_ms.saturating_mul(1000) - now_us);
    if remains <= longest {
        return (AcquireAnswer::Conflict { remains }, None);
    }
    let state = RecordState::Processing { recovery, lease_end_ms: after(now_us, longest) };
    (AcquireAnswer::Conflict { remains: longest }, Some(Record { state, ..record.clone() }))
}

/// Records that the work of the claim is done.
#[must_use]
pub fn complete(
    record: Option<&Record>,
    claim: SettleRequest<'_>,
    result: StoredResult<Vec<u8>>,
    now_us: u64,
) -> (Settled, Option<Record>) {
    let completed = claim.settled(RecordState::Completed { result }, now_us);
    let Some(record) = record else { return (Settled::Recorded, Some(completed)) };
    let owns = record.owner == completed.owner;
    match record.state {
        RecordState::Completed { .. } if owns => (Settled::Recorded, None),
        RecordState::Processing { .. } if owns => (Settled::Recorded, Some(completed.replacing(record))),
        // Completed work stays completed: it replaces a failure of the same payload.
        RecordState::Failed(_) if record.fingerprint.agrees_with(&completed.fingerprint) => {
            (Settled::Recorded, Some(completed.replacing(record)))
        }
        RecordState::Processing { .. } | RecordState::Completed { .. } | RecordState::Failed(_) => {
            (Settled::Lost(record.state.name()), None)
        }
    }
}

/// Records that the attempt of the claim failed.
#[must_use]
pub fn fail(
    record: Option<&Record>,
    claim: SettleRequest<'_>,
    failure: Failure,
    now_us: u64,
) -> (Settled, Option<Record>) {
    let failed = claim.settled(RecordState::Failed(failure), now_us);
    let Some(record) = record else { return (Settled::Recorded, Some(failed)) };
    let owns = record.owner == failed.owner;
    match record.state {
        RecordState::Failed(_) if owns => (Settled::Recorded, None),
        RecordState::Processing { .. } if owns => (Settled::Recorded, Some(failed.replacing(record))),
        // The next attempt must be a recovery.
        RecordState::Failed(known)
            if failure.uncertain && !known.uncertain && record.fingerprint.agrees_with(&failed.fingerprint) =>
        {
            let state = RecordState::Failed(Failure { uncertain: true, ..known });
            (Settled::Lost(record::State::Failed), Some(Record { state, ..record.clone() }))
        }
        RecordState::Processing { .. } | RecordState::Completed { .. } | RecordState::Failed(_) => {
            (Settled::Lost(record.state.name()), None)
        }
    }
}

/// Undoes the acquire: the attempt is not counted. `recovery` is its claim if that is a recovery.
#[must_use]
pub fn release(
    record: Option<&Record>,
    request: &AcquireRequest,
    recovery: Option<SettleRequest<'_>>,
    now_us: u64,
) -> (Settled, Option<Record>) {
    let Some(record) = record else {
        // The record was lost. The uncertainty of a recovery must not be lost with it.
        let failure = Failure { uncertain: true, permanent: false };
        let recovery = recovery.map(|claim| SettleRequest { number: claim.number.saturating_sub(1), ..claim });
        return (Settled::Recorded, recovery.map(|claim| claim.settled(RecordState::Failed(failure), now_us)));
    };
    match record.state {
        RecordState::Failed(_) if record.owner == request.owner => (Settled::Recorded, None),
        RecordState::Processing { recovery: uncertain, .. } if record.owner == request.owner => {
            let state = RecordState::Failed(Failure { uncertain, permanent: false });
            let attempts = record.attempts.saturating_sub(1);
            (Settled::Recorded, Some(Record { attempts, state, ..record.clone() }))
        }
        // The next attempt must be a recovery.
        RecordState::Failed(known)
            if recovery.is_some() && !known.uncertain && record.fingerprint.agrees_with(&request.fingerprint) =>
        {
            let state = RecordState::Failed(Failure { uncertain: true, ..known });
            (Settled::Lost(record::State::Failed), Some(Record { state, ..record.clone() }))
        }
        RecordState::Processing { .. } | RecordState::Completed { .. } | RecordState::Failed(_) => {
            (Settled::Lost(record.state.name()), None)
        }
    }
}

impl SettleRequest<'_> {
    fn settled(&self, state: RecordState, now_us: u64) -> Record {
        let AcquireRequest { owner, fingerprint, message, retention, .. } = *self.request;
        let expires_ms = after(now_us, retention);
        Record { owner, fingerprint, message, fence: self.fence, attempts: self.number, state, expires_ms }
    }
}

impl Record {
    /// Replaces `record`: the fence never decreases, a stored fingerprint is not erased, and the expiry stays.
    fn replacing(self, record: &Self) -> Self {
        let known = self.fingerprint != Fingerprint::NONE;
        Self {
            fence: self.fence.max(record.fence),
            fingerprint: if known { self.fingerprint } else { record.fingerprint },
            expires_ms: record.expires_ms,
            ..self
        }
    }
}

/// The time `time` after `now_us`, in whole ms.
fn after(now_us: u64, time: Duration) -> u64 {
    (now_us / 1000).saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
