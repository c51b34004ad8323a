//! The idempotency key.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};

/// Identifies a unit of work: two messages with the same key are the same work. Never empty.
///
/// The store adds its namespace, so consumers with different namespaces have different records for the same key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    text: Arc<str>,
    /// Whether `text` is the stored form of a key whose original text is unknown.
    is_stored: bool,
}

/// An idempotency key was empty. An empty key would make every message the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key must not be empty")]
#[non_exhaustive]
pub struct EmptyKeyError;

impl Key {
    /// Creates a key.
    ///
    /// # Errors
    /// [`EmptyKeyError`] if `key` is empty.
    pub fn new(key: &str) -> Result<Self, EmptyKeyError> {
        if key.is_empty() { Err(EmptyKeyError) } else { Ok(Self { text: key.into(), is_stored: false }) }
    }

    /// Restores a key from its [stored](Self::stored) form, as read from a record.
    ///
    /// # Errors
    /// [`EmptyKeyError`] if `key` is empty.
    pub fn from_stored(key: &str) -> Result<Self, EmptyKeyError> {
        Self::new(key).map(|restored| Self { is_stored: is_reserved(key), ..restored })
    }

    /// The key of the record that a message was sent to the dead-letter queue. No key of a producer has its stored
    /// form.
    #[cfg(feature = "lambda")]
    pub(crate) fn of_dead_letter(message_id: &str) -> Self {
        Self { text: format!("{DEAD_LETTER_PREFIX}{message_id}").into(), is_stored: true }
    }

    /// The key as the producer sent it, or its stored form if it was restored [from that](Self::from_stored).
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The form under which stores keep the record: the key itself, so that an operator can read it, or
    /// `sha256:` followed by its SHA-256 in hexadecimal.
    ///
    /// These keys are hashed: keys longer than 200 bytes, which would take more memory than their record;
    /// keys with a NUL, which PostgreSQL text cannot hold; and keys that start with `sha256:` or `dead-letter:`, so
    /// that no two keys have the same stored form.
    #[must_use]
    pub fn stored(&self) -> Cow<'_, str> {
        let plain = self.text.len() <= MAX_PLAIN_LENGTH && !self.text.contains('\0') && !is_reserved(&self.text);
        if plain || self.is_stored { Cow::Borrowed(&self.text) } else { Cow::Owned(self.hashed()) }
    }

    /// `sha256:` followed by the SHA-256 of the key.
    pub(crate) fn hashed(&self) -> String {
        let mut hashed = String::from(HASH_PREFIX);
        for byte in digest(&SHA256, self.text.as_bytes()).as_ref() {
            // Writing to a String cannot fail.
            let _ = write!(hashed, "{byte:02x}");
        }
        hashed
    }
}

/// Start of the stored form of a hashed key.
const HASH_PREFIX: &str = "sha256:";

/// Start of the key of the record that a message was sent to the dead-letter queue.
const DEAD_LETTER_PREFIX: &str = "dead-letter:";

/// Whether a key that starts like this is in a stored form.
fn is_reserved(key: &str) -> bool {
    [HASH_PREFIX, DEAD_LETTER_PREFIX].iter().any(|prefix| key.starts_with(prefix))
}

/// Length of the longest key that is stored unchanged, in bytes. Common ids are much shorter.
const MAX_PLAIN_LENGTH: usize = 200;

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
