//! What the heart has to know of a delivery.

use std::sync::LazyLock;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::record::{Fingerprint, Key, MessageTag, Owner};

/// The tag of no messageId. Every delivery begins with it, so it is hashed once.
static NO_MESSAGE: LazyLock<MessageTag> = LazyLock::new(|| MessageTag::of(""));

/// One delivery of a key: what the heart has to know of it.
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

    /// What the broker calls this delivery. A permanent failure holds until the key comes under
    /// another id.
    #[must_use]
    pub fn message_id(self, id: &str) -> Self {
        Self { message: MessageTag::of(id), ..self }
    }

    /// Nobody will read the result of a duplicate: one that is in an object is left there.
    #[must_use]
    pub fn without_result(self) -> Self {
        Self { result_is_read: false, ..self }
    }

    /// The token of the attempt. It makes the delivery good for one run, as another would be taken for the same.
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
