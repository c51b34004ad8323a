//! The arguments and replies of the scripts in `lua/`, which define the layouts.

use std::time::Duration;

use super::script_call::{Request, Terms, Transition};
use crate::idempotency::{Acquire, AcquireRequest, Claim, Failure, Fence, Settled, State, StoreError, StoredResult};

/// The reply of any script for a value that is not a record.
pub(super) const NOT_A_RECORD: &[u8] = b"NOT_A_RECORD";

/// Version of the record's layout.
pub(super) const FORMAT: u8 = 1;

pub(super) const UNCERTAIN: u8 = 1;
pub(super) const PERMANENT: u8 = 2;
const RESULT_NOT_KEPT: u8 = 4;

/// Set together with `RESULT_NOT_KEPT`, so that a reader without support for objects treats the result as not kept.
const RESULT_IN_OBJECT: u8 = 8;

/// The end of the lease in a record without a lease.
const NO_LEASE: [u8; 8] = [0; 8];

pub(super) fn acquire(key: String, request: &AcquireRequest) -> Request {
    let transition = Transition::Acquire {
        max_attempts: request.max_attempts,
        longest_lease_ms: whole_ms(request.longest_lease.max(request.lease)),
        failed_retention_ms: whole_ms(request.failed_retention),
    };
    let terms = Terms { transition, retention_ms: retention_ms(request), lease_ms: whole_ms(request.lease) };
    let AcquireRequest { owner, fingerprint, message, .. } = request;
    let argument = [owner.as_bytes().as_slice(), fingerprint.as_bytes(), message.as_bytes()].concat();
    Request { terms, key, argument }
}

pub(super) fn release(key: String, request: &AcquireRequest, claim: Option<&Claim>) -> Request {
    let marks = if claim.is_some_and(Claim::is_recovery) { UNCERTAIN } else { 0 };
    let number = claim.map_or(0, |claim| claim.attempt().saturating_sub(1));
    let fence = claim.map_or(Fence(0), Claim::fence);
    let rest = [request.message.as_bytes().as_slice(), &NO_LEASE].concat();
    let argument = record(b'F', marks, number, fence, request, &rest);
    Request {
        terms: Terms { transition: Transition::Release, retention_ms: retention_ms(request), lease_ms: 0 },
        key,
        argument,
    }
}

pub(super) fn complete(key: String, claim: &Claim, result: StoredResult<&[u8]>) -> Request {
    let (marks, rest): (_, &[u8]) = match result {
        StoredResult::Inline(result) => (0, result),
        StoredResult::Object(location) => (RESULT_NOT_KEPT | RESULT_IN_OBJECT, location),
        StoredResult::NotKept => (RESULT_NOT_KEPT, &[]),
    };
    settle(Transition::Complete, key, claim, b'C', marks, rest)
}

pub(super) fn fail(key: String, claim: &Claim, failure: Failure) -> Request {
    let rest = [claim.request().message.as_bytes().as_slice(), &NO_LEASE].concat();
    settle(Transition::Fail, key, claim, b'F', marks(failure), &rest)
}

/// The marks of a FAILED record.
pub(super) fn marks(Failure { uncertain, permanent }: Failure) -> u8 {
    let (uncertain, permanent) = (if uncertain { UNCERTAIN } else { 0 }, if permanent { PERMANENT } else { 0 });
    uncertain | permanent
}

/// The argument is the new record.
fn settle(transition: Transition, key: String, claim: &Claim, state: u8, marks: u8, rest: &[u8]) -> Request {
    let request = claim.request();
    let argument = record(state, marks, claim.attempt(), claim.fence(), request, rest);
    Request { terms: Terms { transition, retention_ms: retention_ms(request), lease_ms: 0 }, key, argument }
}

fn record(state: u8, marks: u8, attempts: u8, fence: Fence, request: &AcquireRequest, rest: &[u8]) -> Vec<u8> {
    let head = [state, FORMAT, marks, attempts];
    let AcquireRequest { owner, fingerprint, .. } = request;
    [head.as_slice(), &fence.0.to_be_bytes(), owner.as_bytes(), fingerprint.as_bytes(), rest].concat()
}

/// At least 1, because Redis rejects an expiry of 0.
fn retention_ms(request: &AcquireRequest) -> u64 {
    whole_ms(request.retention).max(1)
}

pub(super) fn acquired(reply: &[u8], request: AcquireRequest) -> Result<Acquire, StoreError> {
    let (word, rest) =
        reply.split_at(reply.iter().position(|byte| *byte == b' ').map_or(reply.len(), |space| space + 1));
    let acquired = match word {
        b"ACQUIRED " => Head::of(rest).map(|head| Acquire::claimed(request, head.fence, head.attempts, false)),
        b"ACQUIRED_STALE " => Head::of(rest).map(|head| Acquire::claimed(request, head.fence, head.attempts, true)),
        b"DUPLICATE " => duplicate(rest),
        b"CONFLICT " => number(rest).map(|ms| Acquire::Conflict { lease_remains: Duration::from_millis(ms) }),
        b"MISMATCH" => Some(Acquire::Mismatch),
        b"FAILED" => Some(Acquire::Failed),
        _ => None,
    };
    acquired.ok_or_else(|| unexpected(reply))
}

/// The first bytes of a record, without its state and format.
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

/// The result of a COMPLETED record with these marks. `bytes` follow the fingerprint.
pub(super) fn stored_result<B>(marks: u8, bytes: B) -> StoredResult<B> {
    match (marks & RESULT_NOT_KEPT != 0, marks & RESULT_IN_OBJECT != 0) {
        (false, _) => StoredResult::Inline(bytes),
        (true, true) => StoredResult::Object(bytes),
        (true, false) => StoredResult::NotKept,
    }
}

pub(super) fn number(decimal: &[u8]) -> Option<u64> {
    str::from_utf8(decimal).ok()?.parse().ok()
}

pub(super) fn settled(reply: &[u8]) -> Result<Settled, StoreError> {
    match reply {
        b"COMPLETED" | b"FAILED" | b"RELEASED" => Ok(Settled::Recorded),
        b"LOST PROCESSING" => Ok(Settled::Lost(State::Processing)),
        b"LOST COMPLETED" => Ok(Settled::Lost(State::Completed)),
        b"LOST FAILED" => Ok(Settled::Lost(State::Failed)),
        _ => Err(unexpected(reply)),
    }
}

fn unexpected(reply: &[u8]) -> StoreError {
    let start = &reply[..reply.len().min(40)];
    StoreError::unavailable(format!("unexpected reply: {}", start.escape_ascii()))
}

/// Whole milliseconds, at most ten years.
fn whole_ms(duration: Duration) -> u64 {
    /// Ten years. Redis adds its own time, and rejects a sum above 2^63.
    const LONGEST_MS: u64 = 315_360_000_000;
    u64::try_from(duration.as_millis()).map_or(LONGEST_MS, |ms| ms.min(LONGEST_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unexpected_reply_is_shortened_in_its_error() {
        let error = format!("{:?}", settled(&[b'x'; 100]).unwrap_err());
        assert!(error.contains(&"x".repeat(40)) && !error.contains(&"x".repeat(41)), "{error}");
    }
}
