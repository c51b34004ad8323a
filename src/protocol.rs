//! The state machine of an idempotency record as pure functions: record, request and time give an answer and the
//! record as it is from then on.
//!
//! [`MemoryStore`](crate::stores::MemoryStore) runs them. The scripts in `lua/` are the same rules for Redis, and
//! are tested against these at random. [`Store`](crate::store::Store) has the table of them.

use std::time::Duration;

use crate::record::{self, Failure, Fence, Fingerprint, Kept, MessageTag, Owner};
use crate::store::{Attempt, Settled};

/// An idempotency record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The attempt that acquired it last.
    pub owner: Owner,
    /// The payload that the key stands for.
    pub fingerprint: Fingerprint,
    /// The delivery that brought the key last.
    pub message: MessageTag,
    /// The highest fence that was given out under the key.
    pub fence: Fence,
    /// Attempts that count so far.
    pub attempts: u8,
    /// What is known of the work.
    pub state: State,
    /// End of the record's life, ms since 1970.
    pub expires_ms: u64,
}

/// What a record knows of its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// An owner is at work, or was when its lease ended.
    Processing {
        /// Whether an earlier attempt may have taken effect.
        recovery: bool,
        /// End of the lease, ms since 1970.
        lease_end_ms: u64,
    },
    /// The work is done.
    Completed {
        /// What it returned, or where that is.
        result: Kept<Vec<u8>>,
    },
    /// The last attempt failed.
    Failed(Failure),
}

impl State {
    /// The state by its name.
    #[must_use]
    pub fn name(&self) -> record::State {
        match self {
            Self::Processing { .. } => record::State::Processing,
            Self::Completed { .. } => record::State::Completed,
            Self::Failed(_) => record::State::Failed,
        }
    }
}

/// Answer to an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The record is the caller's.
    Acquired {
        /// The claim's fence.
        fence: Fence,
        /// Attempts that count, with this one.
        attempts: u8,
        /// Whether an earlier attempt may have taken effect.
        recovery: bool,
    },
    /// Done before.
    Duplicate {
        /// Fence of the claim that did it.
        fence: Fence,
        /// Attempts that it took.
        attempts: u8,
        /// What it returned, or where that is.
        result: Kept<Vec<u8>>,
    },
    /// Another owner holds the lease.
    Conflict {
        /// For so much longer.
        remains: Duration,
    },
    /// Another payload was completed under the key, or may have taken effect.
    Mismatch,
    /// Permanent, or attempts used up, until another message brings the key.
    Failed,
}

/// A claim, as it is settled.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The attempt that acquired it.
    pub attempt: &'a Attempt,
    /// Its fence.
    pub fence: Fence,
    /// Which attempt it was.
    pub number: u8,
}

/// Acquire the record for this attempt. With the answer comes the record where it changes.
#[must_use]
pub fn acquire(record: Option<&Record>, attempt: &Attempt, now_us: u64) -> (Answer, Option<Record>) {
    let (mut attempts, mut fence, mut recovery) = (0, 0, false);
    let mut fingerprint = attempt.fingerprint;
    if let Some(record) = record {
        let same_payload = record.fingerprint.agrees_with(&fingerprint);
        let owns = record.owner == attempt.owner;
        let mut permanent = false;
        match record.state {
            State::Completed { .. } if !same_payload => return (Answer::Mismatch, None),
            State::Completed { ref result } => {
                let (fence, attempts, result) = (record.fence, record.attempts, result.clone());
                return (Answer::Duplicate { fence, attempts, result }, None);
            }
            // The same owner asks again: its first reply was lost.
            State::Processing { recovery, .. } if owns => {
                return (Answer::Acquired { fence: record.fence, attempts: record.attempts, recovery }, None);
            }
            State::Processing { recovery, lease_end_ms } if lease_end_ms.saturating_mul(1000) > now_us => {
                return conflict(record, recovery, lease_end_ms, attempt, now_us);
            }
            State::Processing { .. } => recovery = true,
            State::Failed(failure) => (recovery, permanent) = (failure.uncertain, failure.permanent),
        }
        if recovery && !same_payload {
            return (Answer::Mismatch, None);
        }
        let settled_by_this_owner = owns && record.state.name() == record::State::Failed;
        let used_up = record.attempts >= attempt.max_attempts;
        if settled_by_this_owner || (permanent || used_up) && record.message == attempt.message {
            return (Answer::Failed, None);
        }
        attempts = if used_up { 0 } else { record.attempts };
        fence = record.fence.0;
        if fingerprint == Fingerprint::NONE {
            fingerprint = record.fingerprint;
        }
    }
    let record = Record {
        owner: attempt.owner,
        fingerprint,
        message: attempt.message,
        fence: Fence(now_us.max(fence + 1)),
        attempts: attempts + 1,
        state: State::Processing { recovery, lease_end_ms: after(now_us, attempt.lease) },
        expires_ms: after(now_us, attempt.retention.max(attempt.lease)),
    };
    (Answer::Acquired { fence: record.fence, attempts: record.attempts, recovery }, Some(record))
}

/// A lease that is longer than any was taken under a clock that ran ahead. It is shortened once, and counts as any
/// other from then on.
fn conflict(
    record: &Record,
    recovery: bool,
    lease_end_ms: u64,
    attempt: &Attempt,
    now_us: u64,
) -> (Answer, Option<Record>) {
    let longest = attempt.longest_lease.max(attempt.lease);
    let remains = Duration::from_micros(lease_end_ms.saturating_mul(1000) - now_us);
    if remains <= longest {
        return (Answer::Conflict { remains }, None);
    }
    let state = State::Processing { recovery, lease_end_ms: after(now_us, longest) };
    (Answer::Conflict { remains: longest }, Some(Record { state, ..record.clone() }))
}

/// Record that the claim's work is done.
#[must_use]
pub fn complete(
    record: Option<&Record>,
    claim: Claim<'_>,
    result: Kept<Vec<u8>>,
    now_us: u64,
) -> (Settled, Option<Record>) {
    let completed = claim.settled(State::Completed { result }, now_us);
    let Some(record) = record else { return (Settled::Recorded, Some(completed)) };
    let owns = record.owner == completed.owner;
    match record.state {
        State::Completed { .. } if owns => (Settled::Recorded, None),
        State::Processing { .. } if owns => (Settled::Recorded, Some(completed.over(record))),
        // What is done is done: a failure of the same payload gives way to it.
        State::Failed(_) if record.fingerprint.agrees_with(&completed.fingerprint) => {
            (Settled::Recorded, Some(completed.over(record)))
        }
        State::Processing { .. } | State::Completed { .. } | State::Failed(_) => {
            (Settled::Lost(record.state.name()), None)
        }
    }
}

/// Record that the claim's attempt failed.
#[must_use]
pub fn fail(record: Option<&Record>, claim: Claim<'_>, failure: Failure, now_us: u64) -> (Settled, Option<Record>) {
    let failed = claim.settled(State::Failed(failure), now_us);
    let Some(record) = record else { return (Settled::Recorded, Some(failed)) };
    let owns = record.owner == failed.owner;
    match record.state {
        State::Failed(_) if owns => (Settled::Recorded, None),
        State::Processing { .. } if owns => (Settled::Recorded, Some(failed.over(record))),
        // The next attempt is told of what this one may have done.
        State::Failed(known)
            if failure.uncertain && !known.uncertain && record.fingerprint.agrees_with(&failed.fingerprint) =>
        {
            let state = State::Failed(Failure { uncertain: true, ..known });
            (Settled::Lost(record::State::Failed), Some(Record { state, ..record.clone() }))
        }
        State::Processing { .. } | State::Completed { .. } | State::Failed(_) => {
            (Settled::Lost(record.state.name()), None)
        }
    }
}

/// Give the record back as if this attempt had not been made. `in_doubt` is its claim, where that is a recovery.
#[must_use]
pub fn release(
    record: Option<&Record>,
    attempt: &Attempt,
    in_doubt: Option<Claim<'_>>,
    now_us: u64,
) -> (Settled, Option<Record>) {
    let Some(record) = record else {
        // A doubt that the claim came with is not lost with the record. There is nothing else to give back.
        let failure = Failure { uncertain: true, permanent: false };
        let in_doubt = in_doubt.map(|claim| Claim { number: claim.number.saturating_sub(1), ..claim });
        return (Settled::Recorded, in_doubt.map(|claim| claim.settled(State::Failed(failure), now_us)));
    };
    match record.state {
        State::Failed(_) if record.owner == attempt.owner => (Settled::Recorded, None),
        State::Processing { recovery, .. } if record.owner == attempt.owner => {
            let state = State::Failed(Failure { uncertain: recovery, permanent: false });
            let attempts = record.attempts.saturating_sub(1);
            (Settled::Recorded, Some(Record { attempts, state, ..record.clone() }))
        }
        // The next attempt is told of what an earlier one may have done.
        State::Failed(known)
            if in_doubt.is_some() && !known.uncertain && record.fingerprint.agrees_with(&attempt.fingerprint) =>
        {
            let state = State::Failed(Failure { uncertain: true, ..known });
            (Settled::Lost(record::State::Failed), Some(Record { state, ..record.clone() }))
        }
        State::Processing { .. } | State::Completed { .. } | State::Failed(_) => {
            (Settled::Lost(record.state.name()), None)
        }
    }
}

impl Claim<'_> {
    fn settled(&self, state: State, now_us: u64) -> Record {
        let Attempt { owner, fingerprint, message, retention, .. } = *self.attempt;
        let expires_ms = after(now_us, retention);
        Record { owner, fingerprint, message, fence: self.fence, attempts: self.number, state, expires_ms }
    }
}

impl Record {
    /// In the place of this record: a fence never falls, a stored fingerprint is not erased, and the record's life
    /// ends when it would have.
    fn over(self, record: &Self) -> Self {
        let known = self.fingerprint != Fingerprint::NONE;
        Self {
            fence: self.fence.max(record.fence),
            fingerprint: if known { self.fingerprint } else { record.fingerprint },
            expires_ms: record.expires_ms,
            ..self
        }
    }
}

/// The whole millisecond so long after this time.
fn after(now_us: u64, time: Duration) -> u64 {
    (now_us / 1000).saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
