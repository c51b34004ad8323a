//! Removes a record that has not changed since it was read.

use std::time::Duration;

use redis::{ErrorKind, RedisError};

use super::super::scripts::{self, Head, NOT_A_RECORD, marks};
use super::view::failure;
use super::{Records, RecordsError};
use crate::idempotency::{Failure, Fence, Key};

const FORGET: &str = include_str!("../../../../lua/forget.lua");

/// What an operator has seen of a record. A record is removed only if it still matches.
///
/// The fence alone is not enough. It identifies an attempt, and the record of an attempt can still change: its owner
/// can settle it after the lease, and an earlier owner of the same payload can complete it or mark its failure as
/// uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedRecord {
    /// The state.
    pub state: ExpectedState,
    /// The fence.
    pub fence: Fence,
}

/// The state in [`ExpectedRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedState {
    /// An owner holds the record, or held it until its lease ended.
    Processing,
    /// The work is done. If this record is removed, the work runs again.
    Completed,
    /// The last attempt failed, with these flags.
    Failed(Failure),
}

/// Whether to remove a record even while its lease is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Remove it. The work can then run twice concurrently.
    Yes,
    /// Keep it until its lease has ended.
    No,
}

/// Outcome of [`Records::forget`]. Only [`Removed`](Self::Removed) changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forgotten {
    /// The record was removed.
    Removed,
    /// There is no record.
    Absent,
    /// The record has changed since it was read, and was kept.
    Changed {
        /// What it is now.
        now: ExpectedRecord,
    },
    /// The owner holds the lease, so the record was kept.
    Held {
        /// Remaining time of the lease, whole milliseconds.
        lease_remains: Duration,
    },
    /// The value of the key is not a record, and was not changed.
    NotARecord,
}

impl Records {
    /// Removes the record of this key if its state, its failure and its fence are still [those that were
    /// seen](super::RecordView::seen). One script compares and removes it atomically.
    ///
    /// The next delivery of the key then runs its work as a first attempt, unless the work has its own record, such as
    /// the row of an inbox. An owner that is still running writes the record again when it settles, as if Redis had
    /// lost it.
    ///
    /// # Errors
    /// [`RecordsError`]. After [`RecordsError::Unavailable`] the outcome is unknown: call it again. It then returns
    /// [`Forgotten::Absent`] if the record was already removed by the first call.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the outcome is unknown, as after an error.
    pub async fn forget(&self, key: &Key, seen: ExpectedRecord, force: Force) -> Result<Forgotten, RecordsError> {
        let force = match force {
            Force::Yes => 1,
            Force::No => 0,
        };
        let mut command = redis::cmd("EVAL");
        command.arg(FORGET).arg(1).arg(self.redis_key(key)).arg(force).arg(&seen.encode()[..]);
        let replies: Vec<Vec<u8>> = self.send(&command).await?;
        Forgotten::decode(replies.first().map_or(&[], Vec::as_slice))
            .ok_or_else(|| self.records_error(RedisError::from((ErrorKind::Client, "unexpected reply"))))
    }
}

impl ExpectedRecord {
    /// The argument of `forget.lua`.
    fn encode(&self) -> Vec<u8> {
        let (state, marks) = match self.state {
            ExpectedState::Processing => (b'P', 0),
            ExpectedState::Completed => (b'C', 0),
            ExpectedState::Failed(failure) => (b'F', marks(failure)),
        };
        [&[state, marks], &self.fence.0.to_be_bytes()[..]].concat()
    }

    /// Decodes the first bytes of a record.
    fn decode(head: &[u8]) -> Option<Self> {
        let Head { marks, attempts: _, fence } = Head::of(head)?;
        let state = match head[0] {
            b'P' => ExpectedState::Processing,
            b'C' => ExpectedState::Completed,
            b'F' => ExpectedState::Failed(failure(marks)),
            _ => return None,
        };
        Some(Self { state, fence })
    }
}

impl Forgotten {
    /// Decodes a reply of `forget.lua`.
    pub(super) fn decode(reply: &[u8]) -> Option<Self> {
        match reply {
            b"FORGOTTEN" => Some(Self::Removed),
            b"ABSENT" => Some(Self::Absent),
            NOT_A_RECORD => Some(Self::NotARecord),
            _ => {
                if let Some(head) = reply.strip_prefix(b"CHANGED ") {
                    return ExpectedRecord::decode(head).map(|now| Self::Changed { now });
                }
                let ms = scripts::number(reply.strip_prefix(b"HELD ")?)?;
                Some(Self::Held { lease_remains: Duration::from_millis(ms) })
            }
        }
    }
}
