//! The arguments and replies of the scripts in `lua/`, which define the layouts.

use std::iter;
use std::sync::LazyLock;
use std::time::Duration;

use redis::Script;
use tokio::sync::oneshot;

use crate::idempotency::{Acquire, AcquireRequest, Claim, Failure, Fence, Settled, State, StoreError, StoredResult};

const ACQUIRE: &str = include_str!("../../../lua/acquire.lua");
const COMPLETE: &str = include_str!("../../../lua/complete.lua");
const FAIL: &str = include_str!("../../../lua/fail.lua");
const RELEASE: &str = include_str!("../../../lua/release.lua");

/// The reply of any script for a value that is not a record.
pub(super) const NOT_A_RECORD: &[u8] = b"NOT_A_RECORD";

/// The reply of a script for a key on another node of the cluster. Nothing was executed for it.
pub(super) const NOT_LOCAL: &[u8] = b"NOT_LOCAL";

/// Makes a script read its keys from its arguments: their number, the keys, then the arguments of the script.
const KEYS_FROM_ARGUMENTS: &str = "local KEYS, ARGV = {unpack(ARGV, 2, 1 + ARGV[1])}, {unpack(ARGV, 2 + ARGV[1])}\n";

/// Version of the record's layout.
pub(super) const FORMAT: u8 = 1;

pub(super) const UNCERTAIN: u8 = 1;
pub(super) const PERMANENT: u8 = 2;
const RESULT_NOT_KEPT: u8 = 4;

/// Set together with `RESULT_NOT_KEPT`, so that a reader without support for objects treats the result as not kept.
const RESULT_IN_OBJECT: u8 = 8;

/// The end of the lease in a record without a lease.
const NO_LEASE: [u8; 8] = [0; 8];

/// One record's part in a script call.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) terms: Terms,
    pub(super) key: String,
    pub(super) argument: Vec<u8>,
}

impl Request {
    /// Bytes of the key and the argument.
    pub(super) fn size(&self) -> usize {
        self.key.len() + self.argument.len()
    }
}

pub(super) type Reply = Result<Vec<u8>, StoreError>;

/// A request, and the channel for its reply.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Reply>,
}

/// One call of a script, for requests with compatible terms.
#[derive(Debug)]
pub(super) struct ScriptCall {
    pub(super) terms: Terms,
    /// The shard of a cluster whose records share the call. `None` if the call declares its keys.
    pub(super) shard: Option<usize>,
    pub(super) requests: Vec<PendingRequest>,
    /// How many tries are left.
    pub(super) tries: u32,
    /// Whether a try may have been executed.
    pub(super) may_have_run: bool,
}

impl ScriptCall {
    /// The call for one record of this call.
    pub(super) fn alone(&self, request: PendingRequest) -> Self {
        let &Self { terms, tries, may_have_run, .. } = self;
        Self { terms, shard: None, requests: vec![request], tries, may_have_run }
    }

    /// Bytes of all records.
    pub(super) fn size(&self) -> usize {
        self.requests.iter().map(|pending| pending.request.size()).sum()
    }

    pub(super) fn keys(&self) -> Keys {
        if self.shard.is_some() { Keys::InArguments } else { Keys::Declared }
    }
}

/// The arguments that all requests in one script call share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Terms {
    transition: Transition,
    /// Lifetime of a record.
    retention_ms: u64,
    /// 0 if nothing is acquired.
    lease_ms: u64,
}

/// The script, with the arguments that only it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Transition {
    Acquire { max_attempts: u8, longest_lease_ms: u64, failed_retention_ms: u64 },
    Complete,
    Fail,
    Release,
}

/// Whether the server supports flags in the first line of a script, `#!lua flags=…`. Supported by Redis 7.0 and newer
/// and by Valkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Flags,
    NoFlags,
}

/// Where a script finds the keys of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Declared as keys of the call: on a cluster they must be of one slot, and the server redirects the call.
    Declared,
    /// Among the arguments: on a cluster they may be of several slots, and the server checks each command of the
    /// script.
    InArguments,
}

/// A script in one of its forms.
pub(super) struct Source {
    /// For EVAL.
    pub(super) text: String,
    /// For EVALSHA.
    pub(super) hash: String,
}

impl Source {
    fn new(text: String) -> Self {
        Self { hash: Script::new(&text).get_hash().to_owned(), text }
    }
}

/// How much longer than requested a lease may be. The leases of a batch are the remaining time of the invocation, so
/// each is shorter than those before it, by the time that it takes to start its messages.
const LEASE_TOLERANCE_MS: u64 = 100;

impl Terms {
    /// Whether the requests acquire records. Otherwise they settle them.
    pub(super) fn is_acquire(&self) -> bool {
        match self.transition {
            Transition::Acquire { .. } => true,
            Transition::Complete | Transition::Fail | Transition::Release => false,
        }
    }

    /// Whether a script call with these terms can also serve a request with the terms `other`.
    pub(super) fn can_serve(&self, other: &Self) -> bool {
        let shorter_by = self.lease_ms.checked_sub(other.lease_ms);
        shorter_by.is_some_and(|ms| ms <= LEASE_TOLERANCE_MS)
            && Self { lease_ms: 0, ..*self } == Self { lease_ms: 0, ..*other }
    }

    /// The script in this form.
    pub(super) fn source(&self, dialect: Dialect, keys: Keys) -> &'static Source {
        static SOURCES: LazyLock<[[[Source; 2]; 2]; 4]> = LazyLock::new(|| {
            [ACQUIRE, COMPLETE, FAIL, RELEASE].map(|script| {
                [script, without_flags(script)]
                    .map(|script| [script.to_owned(), with_keys_from_arguments(script)].map(Source::new))
            })
        });
        let forms = match self.transition {
            Transition::Acquire { .. } => &SOURCES[0],
            Transition::Complete => &SOURCES[1],
            Transition::Fail => &SOURCES[2],
            Transition::Release => &SOURCES[3],
        };
        &forms[dialect as usize][keys as usize]
    }

    /// The arguments that precede those of the records.
    pub(super) fn arguments(&self) -> impl Iterator<Item = u64> {
        let own = match self.transition {
            Transition::Acquire { max_attempts, longest_lease_ms, failed_retention_ms } => {
                Some([max_attempts.into(), self.lease_ms, longest_lease_ms, failed_retention_ms])
            }
            Transition::Complete | Transition::Fail | Transition::Release => None,
        };
        iter::once(self.retention_ms).chain(own.into_iter().flatten())
    }
}

/// The script without its first line, if that line sets flags.
fn without_flags(script: &'static str) -> &'static str {
    script.split_once('\n').filter(|(first, _)| first.starts_with("#!")).map_or(script, |(_, rest)| rest)
}

/// The script, reading its keys from its arguments. A line of flags stays the first line.
fn with_keys_from_arguments(script: &'static str) -> String {
    let body = without_flags(script);
    let flags = &script[..script.len() - body.len()];
    [flags, KEYS_FROM_ARGUMENTS, body].concat()
}

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
