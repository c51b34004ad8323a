//! The lines of a history file: one JSON object for each event, in the order in which one process wrote them.

use std::fmt::Write;
use std::time::Duration;

use idempotent_sqs::idempotency::{
    AcquireRequest, EmptyKeyError, Fingerprint, Key, MessageIdHash, Owner, State, StoredResult,
};
use serde::{Deserialize, Serialize};

/// One line of a history file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The first line: two clocks of the machine, read at the same time, µs.
    Clocks {
        /// Since the machine was started. All processes of a machine share it.
        monotonic_us: u64,
        /// Since 1970.
        unix_us: u64,
    },
    /// A call is about to be made.
    Invoked {
        /// By the monotonic clock, µs.
        at_us: u64,
        /// Number of the call in its process.
        number: u64,
        /// The call.
        call: Call,
    },
    /// A call has returned. A call without this event was cut off.
    Returned {
        /// By the monotonic clock, µs.
        at_us: u64,
        /// Number of the call in its process.
        number: u64,
        /// Its answer.
        answer: Answer,
    },
}

/// A call of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the contract is `Store`")]
pub enum Call {
    Acquire { request: Request },
    Complete { claim: Claim, result: StoredBytes },
    Fail { claim: Claim, uncertain: bool, permanent: bool },
    Release { request: Request, claim: Option<Claim> },
}

/// The arguments of an acquire. Bytes are in hexadecimal, times in ms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `AcquireRequest`")]
pub struct Request {
    pub key: String,
    pub owner: Hex<8>,
    pub fingerprint: Hex<16>,
    pub message: Hex<8>,
    pub lease_ms: u64,
    pub longest_lease_ms: u64,
    pub retention_ms: u64,
    pub max_attempts: u8,
    pub failed_retention_ms: u64,
}

/// A claim that is settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `Claim`")]
pub struct Claim {
    pub request: Request,
    pub fence: u64,
    pub attempt: u8,
    pub recovery: bool,
}

/// The result of a completed record. Its bytes are in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "as in `StoredResult`")]
pub enum StoredBytes {
    Inline(String),
    Object(String),
    NotKept,
}

impl StoredBytes {
    /// The result as a store keeps it. Text that is not hexadecimal stands for no bytes.
    #[must_use]
    pub fn to_stored(&self) -> StoredResult<Vec<u8>> {
        match self {
            Self::Inline(result) => StoredResult::Inline(bytes(result).unwrap_or_default()),
            Self::Object(location) => StoredResult::Object(bytes(location).unwrap_or_default()),
            Self::NotKept => StoredResult::NotKept,
        }
    }
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "as in `Acquire` and `Settled`")]
pub enum Answer {
    Acquired {
        fence: u64,
        attempt: u8,
        recovery: bool,
    },
    Duplicate {
        fence: u64,
        attempts: u8,
        result: StoredBytes,
    },
    Conflict {
        remains_ms: u64,
    },
    Mismatch,
    Failed,
    Recorded,
    Lost(LostTo),
    /// The value under the key is not a record.
    NotARecord,
    /// The store was out of reach: the call was not executed.
    NotExecuted,
    /// An error: the call may have been executed, or may be executed later.
    Unknown,
}

/// The state of a record that an owner no longer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "as in `State`")]
pub enum LostTo {
    Processing,
    Completed,
    Failed,
}

/// Bytes in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> From<Hex<N>> for String {
    fn from(Hex(bytes): Hex<N>) -> Self {
        hexadecimal(&bytes)
    }
}

impl<const N: usize> TryFrom<String> for Hex<N> {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = bytes(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("this is not hexadecimal, or has another length")
    }
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let at = (0..hexadecimal.len()).step_by(2);
    at.map(|at| u8::from_str_radix(hexadecimal.get(at..at + 2)?, 16).ok()).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl From<&AcquireRequest> for Request {
    fn from(request: &AcquireRequest) -> Self {
        Self {
            key: request.key.stored().into_owned(),
            owner: Hex(*request.owner.as_bytes()),
            fingerprint: Hex(*request.fingerprint.as_bytes()),
            message: Hex(*request.message.as_bytes()),
            lease_ms: ms(request.lease),
            longest_lease_ms: ms(request.longest_lease),
            retention_ms: ms(request.retention),
            max_attempts: request.max_attempts,
            failed_retention_ms: ms(request.failed_retention),
        }
    }
}

impl TryFrom<&Request> for AcquireRequest {
    type Error = EmptyKeyError;

    fn try_from(request: &Request) -> Result<Self, Self::Error> {
        let mut restored = Self::new(Key::from_stored(&request.key)?);
        restored.owner = Owner::from_bytes(request.owner.0);
        restored.fingerprint = Fingerprint::from_bytes(request.fingerprint.0);
        restored.message = MessageIdHash::from_bytes(request.message.0);
        restored.lease = Duration::from_millis(request.lease_ms);
        restored.longest_lease = Duration::from_millis(request.longest_lease_ms);
        restored.retention = Duration::from_millis(request.retention_ms);
        restored.max_attempts = request.max_attempts;
        restored.failed_retention = Duration::from_millis(request.failed_retention_ms);
        Ok(restored)
    }
}

impl From<&idempotent_sqs::Claim> for Claim {
    fn from(claim: &idempotent_sqs::Claim) -> Self {
        let (fence, attempt, recovery) = (claim.fence().0, claim.attempt(), claim.is_recovery());
        Self { request: claim.request().into(), fence, attempt, recovery }
    }
}

impl<B: AsRef<[u8]>> From<StoredResult<B>> for StoredBytes {
    fn from(result: StoredResult<B>) -> Self {
        match result {
            StoredResult::Inline(bytes) => Self::Inline(hexadecimal(bytes.as_ref())),
            StoredResult::Object(location) => Self::Object(hexadecimal(location.as_ref())),
            StoredResult::NotKept => Self::NotKept,
        }
    }
}

impl From<State> for LostTo {
    fn from(state: State) -> Self {
        match state {
            State::Processing => Self::Processing,
            State::Completed => Self::Completed,
            State::Failed => Self::Failed,
        }
    }
}

impl Call {
    /// The stored form of its key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.request().key
    }

    /// The acquire that it is or belongs to.
    #[must_use]
    pub fn request(&self) -> &Request {
        match self {
            Self::Acquire { request } | Self::Release { request, .. } => request,
            Self::Complete { claim, .. } | Self::Fail { claim, .. } => &claim.request,
        }
    }
}
