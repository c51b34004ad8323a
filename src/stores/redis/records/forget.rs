//! The removal of a record, which is still as it was seen.

use std::time::Duration;

use redis::{ErrorKind, RedisError};

use super::super::scripts::{self, Head, NOT_A_RECORD, PERMANENT, UNCERTAIN};
use super::view::failure;
use super::{Records, RecordsError};
use crate::idempotency::{Failure, Fence, Key};

const FORGET: &str = include_str!("../../../../lua/forget.lua");

/// What was seen of a record, and has to be the same for its removal.
///
/// The fence alone is not enough. It names an attempt, and the record of an attempt can still change: its owner
/// settles it after the lease too, an earlier owner of the same payload completes it, or marks its failure as
/// uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its state.
    pub state: SeenState,
    /// Its fence.
    pub fence: Fence,
}

/// The state of a record that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenState {
    /// An owner is, or was, at work.
    Processing,
    /// The work is done. Once this is forgotten, the work runs again.
    Completed,
    /// The attempt failed, in this way.
    Failed(Failure),
}

/// Whether a record may be forgotten while its owner is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvenInWork {
    /// It may: its work can then run twice at once.
    Yes,
    /// It may not, until its lease has ended.
    No,
}

/// Outcome of a forget. Only the first has changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// The record is removed.
    Removed,
    /// There is no record, or no longer.
    Absent,
    /// The record is not as it was seen.
    Changed {
        /// What it is now.
        now: Seen,
    },
    /// Its owner is at work.
    Held {
        /// How long the lease lasts.
        lease_remains: Duration,
    },
    /// The value under the key is not a record.
    NotARecord,
}

impl Records {
    /// Remove the record of this key, if its state, its marks and its fence are still those that were
    /// [seen](super::View::seen). Otherwise it stays.
    ///
    /// The next delivery of the key then runs its work. An owner who is still at work settles the
    /// record again, as if it had been lost.
    ///
    /// # Errors
    /// [`RecordsError`], with the outcome unknown where Redis is unavailable. Asking again finds out,
    /// and then [`Forgotten::Absent`] may be this very call's doing.
    ///
    /// ## Cancel safety
    /// A dropped future leaves the outcome unknown.
    pub async fn forget(&self, key: &Key, seen: Seen, even: EvenInWork) -> Result<Forgotten, RecordsError> {
        let even_in_work = match even {
            EvenInWork::Yes => 1,
            EvenInWork::No => 0,
        };
        let mut command = redis::cmd("EVAL");
        command.arg(FORGET).arg(1).arg(self.redis_key(key)).arg(even_in_work).arg(&seen.bytes()[..]);
        let answers: Vec<Vec<u8>> = self.ask(&command).await?;
        Forgotten::of(answers.first().map_or(&[], Vec::as_slice))
            .ok_or_else(|| self.explained(RedisError::from((ErrorKind::Client, "unexpected reply"))))
    }
}

impl Seen {
    /// As `forget.lua` takes it.
    fn bytes(&self) -> Vec<u8> {
        let (state, marks) = match self.state {
            SeenState::Processing => (b'P', 0),
            SeenState::Completed => (b'C', 0),
            SeenState::Failed(Failure { uncertain, permanent }) => {
                (b'F', u8::from(uncertain) * UNCERTAIN + u8::from(permanent) * PERMANENT)
            }
        };
        [&[state, marks], &self.fence.0.to_be_bytes()[..]].concat()
    }

    /// Of the start of a record.
    fn of(head: &[u8]) -> Option<Self> {
        let Head { marks, attempts: _, fence } = Head::of(head)?;
        let state = match head[0] {
            b'P' => SeenState::Processing,
            b'C' => SeenState::Completed,
            b'F' => SeenState::Failed(failure(marks)),
            _ => return None,
        };
        Some(Self { state, fence })
    }
}

impl Forgotten {
    /// The answer of `forget.lua`.
    pub(super) fn of(answer: &[u8]) -> Option<Self> {
        match answer {
            b"FORGOTTEN" => Some(Self::Removed),
            b"ABSENT" => Some(Self::Absent),
            NOT_A_RECORD => Some(Self::NotARecord),
            _ => {
                if let Some(head) = answer.strip_prefix(b"CHANGED ") {
                    return Seen::of(head).map(|now| Self::Changed { now });
                }
                let ms = scripts::whole(answer.strip_prefix(b"HELD ")?)?;
                Some(Self::Held { lease_remains: Duration::from_millis(ms) })
            }
        }
    }
}
