//! What happened to a message, as a word for logs and metrics.

/// What happened to one message, as a word for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MessageOutcome {
    /// The record was acquired. No earlier attempt took effect.
    Acquired,
    /// The record was acquired. An earlier attempt may have taken effect.
    AcquiredStale,
    /// The work was done before.
    Duplicate,
    /// Another owner holds the lease.
    Conflict,
    /// Another payload was completed under the key, or may have taken effect.
    Mismatch,
    /// An earlier attempt failed permanently, or all attempts are used up.
    Failed,
    /// Another owner acquired the record during the work.
    Lost,
    /// Another message of the batch has the same key and payload.
    InBatchDuplicate,
    /// The message has no usable key.
    NoKey,
    /// The message or its payload could not be read.
    Unreadable,
    /// The store did not reply.
    Unavailable,
    /// The value under the key in the store is not an idempotency record.
    NotARecord,
    /// The message was not processed.
    NotProcessed,
}

impl MessageOutcome {
    /// Every outcome.
    pub const ALL: [Self; 13] = [
        Self::Acquired,
        Self::AcquiredStale,
        Self::Duplicate,
        Self::Conflict,
        Self::Mismatch,
        Self::Failed,
        Self::Lost,
        Self::InBatchDuplicate,
        Self::NoKey,
        Self::Unreadable,
        Self::Unavailable,
        Self::NotARecord,
        Self::NotProcessed,
    ];

    /// The outcome in logs: `ACQUIRED_STALE`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// The name of its metric: `AcquiredStale`.
    #[must_use]
    pub fn metric(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Acquired => ("ACQUIRED", "Acquired"),
            Self::AcquiredStale => ("ACQUIRED_STALE", "AcquiredStale"),
            Self::Duplicate => ("DUPLICATE", "Duplicate"),
            Self::Conflict => ("CONFLICT", "Conflict"),
            Self::Mismatch => ("MISMATCH", "Mismatch"),
            Self::Failed => ("FAILED", "Failed"),
            Self::Lost => ("LOST", "Lost"),
            Self::InBatchDuplicate => ("IN_BATCH_DUPLICATE", "InBatchDuplicate"),
            Self::NoKey => ("NO_KEY", "NoKey"),
            Self::Unreadable => ("UNREADABLE", "Unreadable"),
            Self::Unavailable => ("UNAVAILABLE", "Unavailable"),
            Self::NotARecord => ("NOT_A_RECORD", "NotARecord"),
            Self::NotProcessed => ("NOT_PROCESSED", "NotProcessed"),
        }
    }
}
