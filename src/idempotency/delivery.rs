//! One delivery of a key.

use std::sync::LazyLock;
use std::time::Duration;

use super::deadline::Deadline;
use super::fingerprint::{Fingerprint, MessageIdHash};
use super::key::Key;
use super::owner::Owner;

/// The hash of an absent messageId. Hashed once, because every delivery starts with it.
static NO_MESSAGE: LazyLock<MessageIdHash> = LazyLock::new(|| MessageIdHash::of(""));

/// One delivery of a key: the input of [`Idempotency::run`](super::Idempotency::run) besides the work.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub(super) key: Key,
    pub(super) fingerprint: Fingerprint,
    pub(super) message: MessageIdHash,
    pub(super) deadline: Deadline,
    pub(super) reads_result: bool,
    /// `None` creates a token at each run.
    pub(super) owner: Option<Owner>,
}

/// A delivery of the key, as [`Delivery::new`] makes it.
impl From<Key> for Delivery {
    fn from(key: Key) -> Self {
        Self::new(key)
    }
}

impl Delivery {
    /// A delivery of `key` with no fingerprint, no messageId and a deadline in one minute.
    ///
    /// All deliveries without a [`message_id`](Self::message_id) count as the same message. So a permanent failure or
    /// exhausted attempts also fail every later one, until
    /// [`Policy::failed_retention`](super::Policy::failed_retention) or the record's retention ends, or a delivery has
    /// a messageId.
    #[must_use]
    pub fn new(key: Key) -> Self {
        let deadline = Deadline::within(Duration::from_mins(1));
        let (fingerprint, message) = (Fingerprint::NONE, *NO_MESSAGE);
        Self { key, fingerprint, message, deadline, reads_result: true, owner: None }
    }

    /// Sets the fingerprint of the payload.
    #[must_use]
    pub fn fingerprint(self, fingerprint: Fingerprint) -> Self {
        Self { fingerprint, ..self }
    }

    /// Sets the broker's id of this message. A permanent failure and exhausted attempts apply until the key is
    /// delivered with another id: by a redrive or by another send.
    #[must_use]
    pub fn message_id(self, id: &str) -> Self {
        Self { message: MessageIdHash::of(id), ..self }
    }

    /// Sets the deadline of the whole run. The default is one minute after [`new`](Self::new).
    #[must_use]
    pub fn deadline(self, deadline: Deadline) -> Self {
        Self { deadline, ..self }
    }

    /// Skips fetching the result of a duplicate from the object store.
    #[must_use]
    pub fn without_result(self) -> Self {
        Self { reads_result: false, ..self }
    }

    /// Sets the owner token. The delivery can then be run only once: a second run would count as the same attempt.
    #[cfg(feature = "lambda")]
    #[must_use]
    pub(crate) fn owner(self, owner: Owner) -> Self {
        Self { owner: Some(owner), ..self }
    }
}
