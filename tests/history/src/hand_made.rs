//! Histories made by hand, for tests of verdicts.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only tests use it"
)]

use std::path::Path;
use std::{fs, io};

use idempotent_sqs::idempotency::MessageIdHash;

use crate::{Answer, Call, Claim, Event, Hex, History, Operation, Request, StoredBytes};

pub const KEY: &str = "pay-1";

/// The messageId of all calls.
pub const MESSAGE: &str = "m1";

/// The wall clock when the monotonic clock was 0, µs.
const UNIX_US: u64 = 1_700_000_000_000_000;

/// The calls of one process on one key. Times are in ms.
#[derive(Clone, Debug)]
pub struct Calls(pub Vec<Event>);

pub fn calls() -> Calls {
    Calls(vec![Event::Clocks { monotonic_us: 0, unix_us: UNIX_US }])
}

impl Calls {
    /// A call that got this answer.
    #[must_use]
    pub fn answered(mut self, from_ms: u64, to_ms: u64, call: Call, answer: Answer) -> Self {
        let number = self.0.len() as u64;
        self.0.push(Event::Invoked { at_us: from_ms * 1000, number, call });
        self.0.push(Event::Returned { at_us: to_ms * 1000, number, answer });
        self
    }

    /// A call that was cut off.
    #[must_use]
    pub fn cut_off(mut self, from_ms: u64, call: Call) -> Self {
        let number = self.0.len() as u64;
        self.0.push(Event::Invoked { at_us: from_ms * 1000, number, call });
        self
    }

    pub fn history(self) -> History {
        self.read().expect("the calls are those of a process")
    }

    /// The history of these calls.
    pub fn read(&self) -> io::Result<History> {
        let directory = tempfile::tempdir()?;
        self.write(directory.path(), "1")?;
        History::read(directory.path())
    }

    /// Writes the history file of this process.
    pub fn write(&self, directory: &Path, process: &str) -> io::Result<()> {
        let lines: Vec<_> = self.0.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        fs::write(directory.join(format!("{process}.jsonl")), lines.join("\n"))
    }

    /// Those of the key.
    pub fn operations(self) -> Vec<Operation> {
        self.history().keys.remove(KEY).expect("there is a call of the key")
    }
}

pub fn request(owner: u8) -> Request {
    Request {
        key: KEY.to_owned(),
        owner: Hex([owner; 8]),
        fingerprint: Hex([1; 16]),
        message: Hex(*MessageIdHash::of(MESSAGE).as_bytes()),
        lease_ms: 1000,
        longest_lease_ms: 10_000,
        retention_ms: 3_600_000,
        max_attempts: 5,
        failed_retention_ms: u64::MAX,
    }
}

/// The fence of a claim that was acquired at this time.
pub fn fence(at_ms: u64) -> u64 {
    UNIX_US + at_ms * 1000
}

pub fn claim(owner: u8, at_ms: u64) -> Claim {
    Claim { request: request(owner), fence: fence(at_ms), attempt: 1, recovery: false }
}

pub fn acquire(owner: u8) -> Call {
    Call::Acquire { request: request(owner) }
}

pub fn acquired(at_ms: u64, attempt: u8, recovery: bool) -> Answer {
    Answer::Acquired { fence: fence(at_ms), attempt, recovery }
}

/// The completion of a first attempt that was acquired at this time.
pub fn complete(owner: u8, at_ms: u64) -> Call {
    Call::Complete { claim: claim(owner, at_ms), result: StoredBytes::NotKept }
}

/// The completion of a second attempt, which is a recovery.
pub fn complete_recovery(owner: u8, at_ms: u64) -> Call {
    let claim = Claim { attempt: 2, recovery: true, ..claim(owner, at_ms) };
    Call::Complete { claim, result: StoredBytes::NotKept }
}

/// The clean failure of attempt number `attempt`.
pub fn fail(owner: u8, at_ms: u64, attempt: u8) -> Call {
    Call::Fail { claim: Claim { attempt, ..claim(owner, at_ms) }, uncertain: false, permanent: false }
}

pub fn release(owner: u8, at_ms: u64) -> Call {
    Call::Release { request: request(owner), claim: Some(claim(owner, at_ms)) }
}

pub fn duplicate(at_ms: u64) -> Answer {
    Answer::Duplicate { fence: fence(at_ms), attempts: 1, result: StoredBytes::NotKept }
}

pub fn conflict(remains_ms: u64) -> Answer {
    Answer::Conflict { remains_ms }
}
