//! The states of an idempotency record and what it stores with them.

/// State of a record. The fourth state is absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// An owner holds the record, or held it until its lease ended.
    /// - (complete, by the owner) becomes Completed
    /// - (fail, by the owner) becomes Failed
    /// - (acquire by another owner after the lease) stays Processing, with the new owner
    Processing,
    /// The work is done.
    /// - (end of the retention) becomes absent; there is no other transition
    Completed,
    /// The last attempt failed.
    /// - (acquire; if the failure is permanent, only with another message) becomes Processing
    Failed,
}

/// Where the result of a COMPLETED record is. `B` is its bytes, owned or borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredResult<B> {
    /// In the record.
    Inline(B),
    /// In an object, because it is too large for the record. The bytes are the text of the object's
    /// [`Location`](super::Location).
    Object(B),
    /// The result was not kept.
    NotKept,
}

impl StoredResult<Vec<u8>> {
    /// Borrows the bytes.
    #[must_use]
    pub fn as_deref(&self) -> StoredResult<&[u8]> {
        match self {
            Self::Inline(result) => StoredResult::Inline(result),
            Self::Object(location) => StoredResult::Object(location),
            Self::NotKept => StoredResult::NotKept,
        }
    }
}

impl StoredResult<&[u8]> {
    /// Copies the bytes.
    #[must_use]
    pub fn into_owned(self) -> StoredResult<Vec<u8>> {
        match self {
            Self::Inline(result) => StoredResult::Inline(result.to_vec()),
            Self::Object(location) => StoredResult::Object(location.to_vec()),
            Self::NotKept => StoredResult::NotKept,
        }
    }
}

/// The two marks of a FAILED record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The work may have taken effect, wholly or in part. The next attempt is a recovery.
    pub uncertain: bool,
    /// No further attempt is made until the key is delivered with another messageId: the work reported a permanent
    /// error, or this was the last attempt.
    pub permanent: bool,
}
