//! Hashes that a record stores: of the payload and of the messageId.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};

use super::json;

/// Hash of a payload, which detects a key that is reused for other work: the first 128 bits of SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// No fingerprint; it matches every payload. The probability that the hash of a payload is all zeros is 2⁻¹²⁸, and
    /// finding such a payload takes 2¹²⁸ tries.
    pub const NONE: Self = Self([0; 16]);

    /// The kind of [`of_json_text`](Self::of_json_text). Records store these hashes, so no other kind may have this
    /// number.
    pub(crate) const JSON: u8 = 2;

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

    /// The fingerprint of a JSON text by its value: numbers by their exact decimal value, regardless of the order of
    /// keys, white space and escapes. If an object has a key more than once, each of its values counts.
    ///
    /// Returns `None` if the text is not JSON, is nested more than 128 deep, or has a number with an exponent beyond
    /// 128 bits.
    ///
    /// ```
    /// use idempotent_sqs::Fingerprint;
    ///
    /// let fingerprint = Fingerprint::of_json_text(r#"{"amount": 12.50, "currency": "EUR"}"#);
    /// assert_eq!(fingerprint, Fingerprint::of_json_text(r#"{"currency":"EUR","amount":12.5}"#));
    /// assert_eq!(None, Fingerprint::of_json_text("12.50 EUR"));
    /// ```
    #[must_use]
    pub fn of_json_text(text: &str) -> Option<Self> {
        Some(Self::of_kind(Self::JSON, &json::canonical(text)?))
    }

    /// The fingerprint of a value as JSON. It equals [`of_json_text`](Self::of_json_text) of the text to which the
    /// value is serialized.
    ///
    /// # Errors
    /// If the value cannot be serialized as JSON, for example because a key of a map is not a string, or if the text is
    /// beyond the limits of [`of_json_text`](Self::of_json_text).
    #[cfg(feature = "serde")]
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    pub fn of_json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        let text = serde_json::to_string(value)?;
        let fingerprint = Self::of_json_text(&text);
        fingerprint.ok_or_else(|| serde::ser::Error::custom("the JSON is nested too deep, or an exponent is too large"))
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

    /// Restores a hash from its stored bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
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
