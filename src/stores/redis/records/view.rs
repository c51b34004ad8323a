//! Decodes a record. `lua/acquire.lua` defines the layout.

use std::time::Duration;

use super::super::scripts::{FORMAT, Head, PERMANENT, UNCERTAIN, stored_result};
use super::forget::{ExpectedRecord, ExpectedState};
use crate::idempotency::{Failure, Fence, Fingerprint, Owner, StoredResult};

/// A record without its key and result, at one moment of Redis's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordView {
    /// State, with its data.
    pub state: RecordStateView,
    /// The attempt that acquired the record last.
    pub owner: Owner,
    /// The fence of that attempt.
    pub fence: Fence,
    /// Number of counted attempts, including that one.
    pub attempts: u8,
    /// Fingerprint of the payload.
    pub fingerprint: Fingerprint,
    /// Time since that attempt acquired the record. Computed from the fence, which is the time of the claim in µs,
    /// unless Redis's clock was moved backwards.
    pub age: Duration,
}

/// State of a record, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStateView {
    /// An owner holds the record, or held it until its lease ended.
    Processing {
        /// Whether an earlier attempt may have taken effect.
        recovery: bool,
        /// Whether the lease has ended.
        lease: Lease,
    },
    /// The work is done.
    Completed {
        /// Where its result is.
        result: StoredResult<()>,
    },
    /// The last attempt failed, with these flags.
    Failed(Failure),
}

/// The lease of a PROCESSING record, by Redis's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The owner holds the lease for this much longer.
    Remains(Duration),
    /// The lease ended this long ago.
    Ended(Duration),
}

impl RecordView {
    /// How many bytes of a value [`decode`](Self::decode) needs: 52 without the result, and one more to detect a longer
    /// value that has a record as its prefix.
    pub(super) const PREFIX_LENGTH: usize = 52 + 1;

    /// Number of bytes before the result.
    const RESULT_OFFSET: usize = Head::LENGTH + 8 + 16;

    /// Decodes a record from its first [`PREFIX_LENGTH`](Self::PREFIX_LENGTH) bytes, or more. `None` if they are not
    /// those of a record. `now` is Redis's clock, in µs since 1970.
    pub(super) fn decode(record: &[u8], now: u64) -> Option<Self> {
        let Head { marks, attempts, fence } = Head::of(record)?;
        let (owner, rest) = record[Head::LENGTH..].split_first_chunk()?;
        let (fingerprint, rest) = rest.split_first_chunk()?;
        let state = match record[..2] {
            [b'P', FORMAT] => {
                let recovery = marks & UNCERTAIN != 0;
                RecordStateView::Processing { recovery, lease: Lease::until(lease_end(rest)?, now) }
            }
            [b'C', FORMAT] => RecordStateView::Completed { result: stored_result(marks, ()) },
            [b'F', FORMAT] => {
                lease_end(rest)?;
                RecordStateView::Failed(failure(marks))
            }
            _ => return None,
        };
        Some(Self {
            state,
            owner: Owner::from_bytes(*owner),
            fence,
            attempts,
            fingerprint: Fingerprint::from_bytes(*fingerprint),
            age: Duration::from_micros(now.saturating_sub(fence.0)),
        })
    }

    /// What [`Records::forget`](super::Records::forget) compares.
    #[must_use]
    pub fn seen(&self) -> ExpectedRecord {
        let state = match self.state {
            RecordStateView::Processing { .. } => ExpectedState::Processing,
            RecordStateView::Completed { .. } => ExpectedState::Completed,
            RecordStateView::Failed(failure) => ExpectedState::Failed(failure),
        };
        ExpectedRecord { state, fence: self.fence }
    }

    /// The result in `record`, the whole record; or the location of the object that contains it.
    pub(super) fn result_in<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        match self.state {
            RecordStateView::Completed { result: _ } => &record[Self::RESULT_OFFSET..],
            RecordStateView::Processing { .. } | RecordStateView::Failed(_) => &[],
        }
    }
}

impl Lease {
    /// The lease that ends at `end_ms`, at the time `now_us`.
    fn until(end_ms: u64, now_us: u64) -> Self {
        let end = Duration::from_millis(end_ms);
        let now = Duration::from_micros(now_us);
        match end.checked_sub(now) {
            Some(remains) if !remains.is_zero() => Self::Remains(remains),
            Some(_) | None => Self::Ended(now.saturating_sub(end)),
        }
    }
}

/// The failure of a FAILED record with these marks.
pub(super) fn failure(marks: u8) -> Failure {
    Failure { uncertain: marks & UNCERTAIN != 0, permanent: marks & PERMANENT != 0 }
}

/// The end of the lease, in ms since 1970. `rest` follows the fingerprint of a record that is not COMPLETED.
fn lease_end(rest: &[u8]) -> Option<u64> {
    let (_message, end) = rest.split_first_chunk::<8>()?;
    Some(u64::from_be_bytes(end.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_ended_at_its_end() {
        let microsecond = Duration::from_micros(1);
        assert_eq!(Lease::until(1_000, 999_999), Lease::Remains(microsecond));
        assert_eq!(Lease::until(1_000, 1_000_000), Lease::Ended(Duration::ZERO));
        assert_eq!(Lease::until(1_000, 1_000_001), Lease::Ended(microsecond));
    }
}
