//! What the core needs to know of a delivery.

use std::sync::LazyLock;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::record::{Fingerprint, Key, MessageTag, Owner};

/// The tag of no messageId. Every delivery begins with it, so it is hashed once.
static NO_MESSAGE: LazyLock<MessageTag> = LazyLock::new(|| MessageTag::of(""));

/// One delivery of a key: what the core needs to know of it.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub(super) key: Key,
    pub(super) fingerprint: Fingerprint,
    pub(super) message: MessageTag,
    pub(super) deadline: Deadline,
    pub(super) result_is_read: bool,
    /// `None` for a new one at each run.
    pub(super) owner: Option<Owner>,
}

impl Delivery {
    /// A delivery of `key`, with no fingerprint, under no messageId, and within a minute.
    ///
    /// All deliveries without a [`message_id`](Self::message_id) count as the same message. So a permanent
    /// failure, or attempts that are used up, fail every later one too, until the record's retention ends or a
    /// delivery comes with a messageId.
    #[must_use]
    pub fn new(key: Key) -> Self {
        let deadline = Deadline::within(Duration::from_mins(1));
        let (fingerprint, message) = (Fingerprint::NONE, *NO_MESSAGE);
        Self { key, fingerprint, message, deadline, result_is_read: true, owner: None }
    }

    /// The payload's fingerprint.
    #[must_use]
    pub fn fingerprint(self, fingerprint: Fingerprint) -> Self {
        Self { fingerprint, ..self }
    }

    /// What the broker calls this message. A permanent failure, and attempts that are used up, hold until the key
    /// comes under another id: by a redrive or by another send.
    #[must_use]
    pub fn message_id(self, id: &str) -> Self {
        Self { message: MessageTag::of(id), ..self }
    }

    /// The result of a duplicate is not needed: one that is in an object is not fetched.
    #[must_use]
    pub fn without_result(self) -> Self {
        Self { result_is_read: false, ..self }
    }

    /// The token of the attempt. The delivery can be run once, as a second run would count as the same attempt.
    #[must_use]
    pub(crate) fn owner(self, owner: Owner) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// When it has to be over.
    #[must_use]
    pub fn deadline(self, deadline: Deadline) -> Self {
        Self { deadline, ..self }
    }
}
