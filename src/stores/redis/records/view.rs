//! A record's bytes, read for people. Their layout stands in `lua/acquire.lua`.

use std::time::Duration;

use super::super::scripts::{FORMAT, Head, PERMANENT, UNCERTAIN, stored_result};
use super::forget::{Seen, SeenState};
use crate::idempotency::{Failure, Fence, Fingerprint, Owner, StoredResult};

/// A record at one moment of Redis's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Its state, and what only that state has.
    pub standing: Standing,
    /// Who claimed it last.
    pub owner: Owner,
    /// The fence of that claim.
    pub fence: Fence,
    /// Attempts so far, with that claim's.
    pub attempts: u8,
    /// Hash of the payload.
    pub fingerprint: Fingerprint,
    /// Since that claim. A fence is the claim's time, unless Redis's clock has jumped back.
    pub age: Duration,
}

/// The state of a record, and what only that state has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody is, or was, at work.
    Processing {
        /// Whether an earlier attempt may have taken effect.
        recovery: bool,
        /// Tells "is" from "was".
        lease: Lease,
    },
    /// The work is done.
    Completed {
        /// Where its result is.
        result: StoredResult<()>,
    },
    /// The attempt failed.
    Failed(Failure),
}

/// How long an owner may hold a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// For so much longer.
    Remains(Duration),
    /// No more, since so long.
    Ended(Duration),
}

impl View {
    /// The first bytes of every record, enough to read all of it but its result; and one more, so that
    /// a value that only begins like a record shows itself.
    pub(super) const ENOUGH: usize = 52 + 1;

    /// Bytes before a result.
    const FIXED: usize = Head::LENGTH + 8 + 16;

    /// The record, by its [first bytes](Self::ENOUGH) or all of them; `None` where they are not a
    /// record's. `now` is Redis's clock, in µs.
    pub(super) fn of(record: &[u8], now: u64) -> Option<Self> {
        let Head { marks, attempts, fence } = Head::of(record)?;
        let (owner, rest) = record[Head::LENGTH..].split_first_chunk()?;
        let (fingerprint, rest) = rest.split_first_chunk()?;
        let standing = match record[..2] {
            [b'P', FORMAT] => {
                let recovery = marks & UNCERTAIN != 0;
                Standing::Processing { recovery, lease: Lease::until(lease_end(rest)?, now) }
            }
            [b'C', FORMAT] => Standing::Completed { result: stored_result(marks, ()) },
            [b'F', FORMAT] => {
                lease_end(rest)?;
                Standing::Failed(failure(marks))
            }
            _ => return None,
        };
        Some(Self {
            standing,
            owner: Owner::from_bytes(*owner),
            fence,
            attempts,
            fingerprint: Fingerprint::from_bytes(*fingerprint),
            age: Duration::from_micros(now.saturating_sub(fence.0)),
        })
    }

    /// What has to be the same for its removal.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let state = match self.standing {
            Standing::Processing { .. } => SeenState::Processing,
            Standing::Completed { .. } => SeenState::Completed,
            Standing::Failed(failure) => SeenState::Failed(failure),
        };
        Seen { state, fence: self.fence }
    }

    /// The result in this, its whole record; or the text of its place, where it is in an object.
    pub(super) fn result_in<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        match self.standing {
            Standing::Completed { result: _ } => &record[Self::FIXED..],
            Standing::Processing { .. } | Standing::Failed(_) => &[],
        }
    }
}

impl Lease {
    /// The lease that ends at `end`, in ms, when it is `now`, in µs.
    fn until(end: u64, now: u64) -> Self {
        let end = Duration::from_millis(end);
        let now = Duration::from_micros(now);
        match end.checked_sub(now) {
            Some(remains) if !remains.is_zero() => Self::Remains(remains),
            Some(_) | None => Self::Ended(now.saturating_sub(end)),
        }
    }
}

/// How the attempt of a FAILED record with these marks failed.
pub(super) fn failure(marks: u8) -> Failure {
    Failure { uncertain: marks & UNCERTAIN != 0, permanent: marks & PERMANENT != 0 }
}

/// The end of the lease, in ms, of what follows the fingerprint of a record that is not COMPLETED.
fn lease_end(rest: &[u8]) -> Option<u64> {
    let (_message, end) = rest.split_first_chunk::<8>()?;
    Some(u64::from_be_bytes(end.try_into().ok()?))
}
