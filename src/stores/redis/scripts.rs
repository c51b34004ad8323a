//! Each verb's script, its arguments and its answers. The layouts are those of `lua/`.

use std::iter;
use std::sync::LazyLock;
use std::time::Duration;

use redis::Script;
use tokio::sync::oneshot;

use crate::idempotency::{Acquire, Attempt, Claim, Failure, Fence, Settled, State, StoreError, StoredResult};

const ACQUIRE: &str = include_str!("../../../lua/acquire.lua");
const COMPLETE: &str = include_str!("../../../lua/complete.lua");
const FAIL: &str = include_str!("../../../lua/fail.lua");
const RELEASE: &str = include_str!("../../../lua/release.lua");

/// What any script answers of a value that is not a record.
pub(super) const NOT_A_RECORD: &[u8] = b"NOT_A_RECORD";

pub(super) const FORMAT: u8 = 1;

pub(super) const UNCERTAIN: u8 = 1;
pub(super) const PERMANENT: u8 = 2;
const RESULT_NOT_KEPT: u8 = 4;

/// The end of the lease in a record that has none.
const NO_LEASE: [u8; 8] = [0; 8];

/// With the mark before it, so that whoever knows no objects takes the result for one that was not kept.
const RESULT_IN_OBJECT: u8 = 8;

/// One record's part in a call of a script.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) terms: Terms,
    pub(super) key: String,
    pub(super) argument: Vec<u8>,
}

pub(super) type Answer = Result<Vec<u8>, StoreError>;

/// A call, and who waits for its answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: Call,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What calls must have in common to share one run of a script.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Terms {
    verb: Verb,
    /// Life of a record, whole milliseconds, as every duration here.
    retention_ms: u64,
    /// 0 where nothing is acquired.
    lease_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Acquire { max_attempts: u8, longest_lease_ms: u64 },
    Complete,
    Fail,
    Release,
}

/// Whether a server knows the first line of a script, `#!lua flags=…`: Redis 7.0 and newer, and Valkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Flags,
    NoFlags,
}

/// How much longer than it was asked for a lease may be. Those of a batch are what is left of one
/// invocation, and differ by the time that it takes to begin so many messages.
const A_LITTLE_MS: u64 = 100;

impl Terms {
    /// Whether claims are taken, and not settled.
    pub(super) fn acquires(&self) -> bool {
        match self.verb {
            Verb::Acquire { .. } => true,
            Verb::Complete | Verb::Fail | Verb::Release => false,
        }
    }

    /// Whether one run can serve both.
    pub(super) fn go_with(&self, other: &Self) -> bool {
        let near = self.lease_ms.abs_diff(other.lease_ms) <= A_LITTLE_MS;
        near && Self { lease_ms: 0, ..*self } == Self { lease_ms: 0, ..*other }
    }

    /// The terms of a run that serves both.
    pub(super) fn of_both(&self, other: &Self) -> Self {
        Self { lease_ms: self.lease_ms.max(other.lease_ms), ..*self }
    }

    /// The script, as EVAL takes it.
    pub(super) fn script(&self, dialect: Dialect) -> &'static str {
        let script = match self.verb {
            Verb::Acquire { .. } => ACQUIRE,
            Verb::Complete => COMPLETE,
            Verb::Fail => FAIL,
            Verb::Release => RELEASE,
        };
        match dialect {
            Dialect::Flags => script,
            Dialect::NoFlags => without_flags(script),
        }
    }

    /// The script's hash, as EVALSHA takes it.
    pub(super) fn hash(&self, dialect: Dialect) -> &'static str {
        static HASHES: LazyLock<[[Script; 2]; 4]> = LazyLock::new(|| {
            [ACQUIRE, COMPLETE, FAIL, RELEASE].map(|script| [script, without_flags(script)].map(Script::new))
        });
        let of_the_verb = match self.verb {
            Verb::Acquire { .. } => &HASHES[0],
            Verb::Complete => &HASHES[1],
            Verb::Fail => &HASHES[2],
            Verb::Release => &HASHES[3],
        };
        of_the_verb[dialect as usize].get_hash()
    }

    /// The arguments before those of the records.
    pub(super) fn arguments(&self) -> impl Iterator<Item = u64> {
        let of_the_verb = match self.verb {
            Verb::Acquire { max_attempts, longest_lease_ms } => {
                Some([max_attempts.into(), self.lease_ms, longest_lease_ms])
            }
            Verb::Complete | Verb::Fail | Verb::Release => None,
        };
        iter::once(self.retention_ms).chain(of_the_verb.into_iter().flatten())
    }
}

/// The script without its first line, where that sets flags.
fn without_flags(script: &'static str) -> &'static str {
    script.split_once('\n').filter(|(first, _)| first.starts_with("#!")).map_or(script, |(_, rest)| rest)
}

pub(super) fn acquire(key: String, attempt: &Attempt) -> Call {
    let verb = Verb::Acquire {
        max_attempts: attempt.max_attempts,
        longest_lease_ms: whole_ms(attempt.longest_lease.max(attempt.lease)),
    };
    let terms = Terms { verb, retention_ms: retention_ms(attempt), lease_ms: whole_ms(attempt.lease) };
    let Attempt { owner, fingerprint, message, .. } = attempt;
    let argument = [owner.as_bytes().as_slice(), fingerprint.as_bytes(), message.as_bytes()].concat();
    Call { terms, key, argument }
}

pub(super) fn release(key: String, attempt: &Attempt, claim: Option<&Claim>) -> Call {
    let marks = if claim.is_some_and(Claim::is_recovery) { UNCERTAIN } else { 0 };
    let number = claim.map_or(0, |claim| claim.attempt().saturating_sub(1));
    let fence = claim.map_or(Fence(0), Claim::fence);
    let rest = [attempt.message.as_bytes().as_slice(), &NO_LEASE].concat();
    let argument = record(b'F', marks, number, fence, attempt, &rest);
    Call { terms: Terms { verb: Verb::Release, retention_ms: retention_ms(attempt), lease_ms: 0 }, key, argument }
}

pub(super) fn complete(key: String, claim: &Claim, result: StoredResult<&[u8]>) -> Call {
    let (marks, rest): (_, &[u8]) = match result {
        StoredResult::Inline(result) => (0, result),
        StoredResult::Object(place) => (RESULT_NOT_KEPT | RESULT_IN_OBJECT, place),
        StoredResult::NotKept => (RESULT_NOT_KEPT, &[]),
    };
    settle(Verb::Complete, key, claim, b'C', marks, rest)
}

pub(super) fn fail(key: String, claim: &Claim, failure: Failure) -> Call {
    let marks = if failure.uncertain { UNCERTAIN } else { 0 } | if failure.permanent { PERMANENT } else { 0 };
    let rest = [claim.asked().message.as_bytes().as_slice(), &NO_LEASE].concat();
    settle(Verb::Fail, key, claim, b'F', marks, &rest)
}

/// The argument is the whole record, as it is to be.
fn settle(verb: Verb, key: String, claim: &Claim, state: u8, marks: u8, rest: &[u8]) -> Call {
    let asked = claim.asked();
    let argument = record(state, marks, claim.attempt(), claim.fence(), asked, rest);
    Call { terms: Terms { verb, retention_ms: retention_ms(asked), lease_ms: 0 }, key, argument }
}

fn record(state: u8, marks: u8, attempts: u8, fence: Fence, attempt: &Attempt, rest: &[u8]) -> Vec<u8> {
    let head = [state, FORMAT, marks, attempts];
    let Attempt { owner, fingerprint, .. } = attempt;
    [head.as_slice(), &fence.0.to_be_bytes(), owner.as_bytes(), fingerprint.as_bytes(), rest].concat()
}

/// At least 1: Redis refuses an expiry of 0.
fn retention_ms(attempt: &Attempt) -> u64 {
    whole_ms(attempt.retention).max(1)
}

pub(super) fn acquired(answer: &[u8], attempt: Attempt) -> Result<Acquire, StoreError> {
    let (word, rest) = answer.split_at(answer.iter().position(|byte| *byte == b' ').map_or(answer.len(), |at| at + 1));
    let acquired = match word {
        b"ACQUIRED " => Head::of(rest).map(|head| Acquire::claimed(attempt, head.fence, head.attempts, false)),
        b"ACQUIRED_STALE " => Head::of(rest).map(|head| Acquire::claimed(attempt, head.fence, head.attempts, true)),
        b"DUPLICATE " => duplicate(rest),
        b"CONFLICT " => whole(rest).map(|ms| Acquire::Conflict { lease_remains: Duration::from_millis(ms) }),
        b"MISMATCH" => Some(Acquire::Mismatch),
        b"FAILED" => Some(Acquire::Failed),
        _ => None,
    };
    acquired.ok_or_else(|| not_understood(answer))
}

/// What a record begins with: its state and its format, which are known from the answer's word, and this.
pub(super) struct Head {
    pub(super) marks: u8,
    pub(super) attempts: u8,
    pub(super) fence: Fence,
}

impl Head {
    pub(super) const LENGTH: usize = 12;

    pub(super) fn of(record: &[u8]) -> Option<Self> {
        let [_state, _format, marks, attempts, fence @ ..] = *record.first_chunk::<{ Self::LENGTH }>()?;
        Some(Self { marks, attempts, fence: Fence(u64::from_be_bytes(fence)) })
    }
}

fn duplicate(record: &[u8]) -> Option<Acquire> {
    let Head { marks, attempts, fence } = Head::of(record)?;
    let (_owner_and_fingerprint, result) = record[Head::LENGTH..].split_first_chunk::<24>()?;
    Some(Acquire::Duplicate { fence, attempts, result: stored_result(marks, result.to_vec()) })
}

/// Where the result of a COMPLETED record is, by its marks. `bytes` are what follows the fingerprint.
pub(super) fn stored_result<B>(marks: u8, bytes: B) -> StoredResult<B> {
    match (marks & RESULT_NOT_KEPT != 0, marks & RESULT_IN_OBJECT != 0) {
        (false, _) => StoredResult::Inline(bytes),
        (true, true) => StoredResult::Object(bytes),
        (true, false) => StoredResult::NotKept,
    }
}

pub(super) fn whole(word: &[u8]) -> Option<u64> {
    str::from_utf8(word).ok()?.parse().ok()
}

pub(super) fn settled(answer: &[u8]) -> Result<Settled, StoreError> {
    match answer {
        b"COMPLETED" | b"FAILED" | b"RELEASED" => Ok(Settled::Recorded),
        b"LOST PROCESSING" => Ok(Settled::Lost(State::Processing)),
        b"LOST COMPLETED" => Ok(Settled::Lost(State::Completed)),
        b"LOST FAILED" => Ok(Settled::Lost(State::Failed)),
        _ => Err(not_understood(answer)),
    }
}

fn not_understood(answer: &[u8]) -> StoreError {
    let start = &answer[..answer.len().min(40)];
    StoreError::unavailable(format!("unexpected reply: {}", start.escape_ascii()))
}

fn whole_ms(duration: Duration) -> u64 {
    /// Ten years. Redis adds its own time, and refuses what is then above 2^63.
    const LONGEST_MS: u64 = 315_360_000_000;
    u64::try_from(duration.as_millis()).map_or(LONGEST_MS, |ms| ms.min(LONGEST_MS))
}
