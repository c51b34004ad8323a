//! A call of a script: its text, and the records that share it.

use std::iter;
use std::sync::LazyLock;

use redis::Script;
use tokio::sync::oneshot;

use crate::idempotency::StoreError;

const ACQUIRE: &str = include_str!("../../../lua/acquire.lua");
const COMPLETE: &str = include_str!("../../../lua/complete.lua");
const FAIL: &str = include_str!("../../../lua/fail.lua");
const RELEASE: &str = include_str!("../../../lua/release.lua");

/// The reply of a script for a key on another node of the cluster. Nothing was executed for it.
pub(super) const NOT_LOCAL: &[u8] = b"NOT_LOCAL";

/// Makes a script read its keys from its arguments: their number, the keys, then the arguments of the script.
const KEYS_FROM_ARGUMENTS: &str = "local KEYS, ARGV = {unpack(ARGV, 2, 1 + ARGV[1])}, {unpack(ARGV, 2 + ARGV[1])}\n";

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
    pub(super) transition: Transition,
    /// Lifetime of a record.
    pub(super) retention_ms: u64,
    /// 0 if nothing is acquired.
    pub(super) lease_ms: u64,
}

/// The script, with the arguments that only it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Transition {
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
