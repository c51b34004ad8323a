//! Hashes that a record stores: of the payload and of the messageId.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};

/// Hash of a payload, which detects a key that is reused for other work: the first 128 bits of SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

/// The kind of [`Fingerprint::of_json`]. Records store these hashes, so no other kind may have this number.
#[cfg(feature = "serde")]
const VALUE: u8 = 16;

impl Fingerprint {
    /// No fingerprint; it matches every payload. The probability that the hash of a payload is all zeros is 2⁻¹²⁸, and
    /// finding such a payload takes 2¹²⁸ tries.
    pub const NONE: Self = Self([0; 16]);

    /// The fingerprint of these bytes.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        Self(sha256_prefix(&[payload]))
    }

    /// The fingerprint of `content` with a leading byte `kind`, so that content of different kinds has different
    /// fingerprints.
    #[must_use]
    pub fn of_kind(kind: u8, content: &[u8]) -> Self {
        Self(sha256_prefix(&[&[kind], content]))
    }

    /// The fingerprint of a value as JSON: its fields and the keys of its maps in any order.
    ///
    /// ```
    /// use idempotent_sqs::Fingerprint;
    /// use serde_json::json;
    ///
    /// let fingerprint = Fingerprint::of_json(&json!({ "amount": 1250, "currency": "EUR" }))?;
    /// assert_eq!(fingerprint, Fingerprint::of_json(&json!({ "currency": "EUR", "amount": 1250 }))?);
    /// # Ok::<_, serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the value cannot be a [`serde_json::Value`], for example because a key of a map is not a string.
    #[cfg(feature = "serde")]
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    pub fn of_json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        let mut json = serde_json::to_value(value)?;
        // Maps keep their order if another crate enables serde_json's feature `preserve_order`.
        json.sort_all_objects();
        Ok(Self::of_kind(VALUE, json.to_string().as_bytes()))
    }

    /// Restores a fingerprint from its stored bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Whether both stand for the same payload. [`NONE`](Self::NONE) agrees with every fingerprint.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        self == other || *self == Self::NONE || *other == Self::NONE
    }

    /// The bytes that a store keeps.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Formats the fingerprint in hexadecimal.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Hash of the messageId of a delivery: the first 64 bits of SHA-256. A permanent failure applies to the message that
/// failed; the same key in another message (a redrive or a new send) may run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageIdHash([u8; 8]);

impl MessageIdHash {
    /// The hash of this messageId.
    #[must_use]
    pub fn of(message_id: &str) -> Self {
        Self(sha256_prefix(&[message_id.as_bytes()]))
    }

    /// The bytes that a store keeps.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

fn sha256_prefix<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        hash.update(part);
    }
    let mut prefix = [0; N];
    prefix.copy_from_slice(&hash.finish().as_ref()[..N]);
    prefix
}
