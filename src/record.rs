//! What an idempotency record is made of. A record itself lives in the store; the scripts in `lua/`
//! are the only ones to write it.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Context, SHA256, digest};

/// What makes two messages the same work. Never empty.
///
/// It is namespaced by the store, so the same key of two consumers is two records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    text: Arc<str>,
    /// Whether the text is the stored form of a key that is not known.
    is_stored: bool,
}

impl Key {
    /// The key, or `None` where it is empty: an empty key would make every message the same work.
    #[must_use]
    pub fn new(key: &str) -> Option<Self> {
        (!key.is_empty()).then(|| Self { text: key.into(), is_stored: false })
    }

    /// The key whose [stored](Self::stored) form this is, as a record or a row has it; `None` where it is empty.
    #[must_use]
    pub fn from_stored(key: &str) -> Option<Self> {
        (!key.is_empty()).then(|| Self { text: key.into(), is_stored: key.starts_with(HASHED) })
    }

    /// The key as the producer gave it; of one [from its stored form](Self::from_stored) that form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The key as records are kept under it: as it is, so that an operator can read it, or as
    /// `sha256:` and its SHA-256. That stands for a key above 200 bytes, which would cost more memory
    /// than its record, and no id in common use is as long; for one with a NUL, which is no text to PostgreSQL; and
    /// for one that begins with `sha256:` itself, so that no two keys are stored alike.
    #[must_use]
    pub fn stored(&self) -> Cow<'_, str> {
        let plain = self.is_short() && !self.text.contains('\0') && !self.text.starts_with(HASHED);
        if plain || self.is_stored { Cow::Borrowed(&self.text) } else { Cow::Owned(self.hashed()) }
    }

    /// Whether it is short enough to be kept as it is.
    pub(crate) fn is_short(&self) -> bool {
        self.text.len() <= LONGEST_KEY
    }

    /// `sha256:` and its SHA-256.
    pub(crate) fn hashed(&self) -> String {
        let mut hashed = String::from(HASHED);
        for byte in digest(&SHA256, self.text.as_bytes()).as_ref() {
            // Writing to a String cannot fail.
            let _ = write!(hashed, "{byte:02x}");
        }
        hashed
    }
}

/// What the stored form of a hashed key begins with.
const HASHED: &str = "sha256:";

/// The longest key that is kept as it is, bytes.
const LONGEST_KEY: usize = 200;

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Token of one attempt. Made once by the caller, outside any retry loop, so that a call which is
/// sent again is known as the same attempt.
///
/// 64 random bits: only the attempts at one key are ever compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner([u8; 8]);

impl Owner {
    /// A new token from the operating system's random source. It keeps no state in the process,
    /// which a snapshot of a Lambda environment would hand to every copy.
    ///
    /// # Panics
    /// Where the operating system has no random bytes to give.
    #[must_use]
    pub fn random() -> Self {
        let mut token = [0; 8];
        getrandom::fill(&mut token).expect("the operating system gives random bytes");
        Self(token)
    }

    /// The token of these bytes, as the store keeps them.
    #[must_use]
    pub fn from_bytes(token: [u8; 8]) -> Self {
        Self(token)
    }

    /// The token's bytes, as the store keeps them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

/// The tokens of a batch's attempts. They count up from a random one, as each look at the random source is
/// a system call, and tokens of two batches meet no more often than any two random ones do.
#[derive(Debug)]
pub(crate) struct Owners(AtomicU64);

impl Owners {
    pub(crate) fn random() -> Self {
        Self(AtomicU64::new(u64::from_be_bytes(Owner::random().0)))
    }

    pub(crate) fn next(&self) -> Owner {
        Owner(self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes())
    }
}

/// In hexadecimal.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A number that only grows, per key, with each claim: a resource that remembers the highest fence
/// it has seen can refuse a late owner.
///
/// It is `max(stored + 1, the store's clock in µs)`, and so keeps growing over a record that was
/// lost. See Kleppmann, "How to do distributed locking" (2016).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl Fence {
    /// The one that this machine's clock would give a record without history.
    pub(crate) fn by_the_clock() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Hash of a payload: catches a key that is used again for other work.
///
/// The first 128 bits of SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// No fingerprint: compared with nothing, equal to everything. The hash of a payload is all zeros with a
    /// probability of 2⁻¹²⁸, and to find a payload with that hash takes 2¹²⁸ tries.
    pub const NONE: Self = Self([0; 16]);

    /// The fingerprint of these bytes.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        Self(start_of_sha256(&[payload]))
    }

    /// The fingerprint of these bytes as content of this kind.
    pub(crate) fn of_kind(kind: ContentKind, content: &[u8]) -> Self {
        Self(start_of_sha256(&[&[kind as u8], content]))
    }

    /// The fingerprint that a store kept.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Whether both stand for the same payload, or one of them for any.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        self == other || *self == Self::NONE || *other == Self::NONE
    }

    /// The hash's bytes, as the store keeps them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// What the fingerprint of a message is taken of. Its number is hashed before the content, so that content of
/// two kinds never has the same fingerprint. Records keep these hashes: a number never changes its meaning.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum ContentKind {
    /// A payload that is not JSON.
    Text = 1,
    /// A payload that is JSON, in its canonical form.
    Json = 2,
    /// The values at some pointers of such a payload.
    Pointers = 3,
    /// What is the same of an EventBridge event whenever it is put.
    EventBridge = 4,
    /// What is the same of an S3 notification whenever it is sent.
    S3 = 5,
}

/// In hexadecimal.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Which delivery brought a key: a hash of SQS's messageId. A permanent failure holds for the
/// message that met it; the same key under another messageId (a redrive, a new send) may try again.
///
/// The first 64 bits of SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTag([u8; 8]);

impl MessageTag {
    /// The tag of this messageId.
    #[must_use]
    pub fn of(message_id: &str) -> Self {
        Self(start_of_sha256(&[message_id.as_bytes()]))
    }

    /// The hash's bytes, as the store keeps them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

fn start_of_sha256<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        hash.update(part);
    }
    let mut start = [0; N];
    start.copy_from_slice(&hash.finish().as_ref()[..N]);
    start
}

/// State of a record. Absence is the fourth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Somebody is, or was, at work; only the lease says which.
    /// - (complete, by the owner) becomes Completed
    /// - (fail, by the owner) becomes Failed
    /// - (acquire by another, after the lease) stays Processing, under the new owner
    Processing,
    /// The work is done.
    /// - (end of the retention) becomes absent; there is no other exit
    Completed,
    /// The attempt failed.
    /// - (acquire, not permanent or by another message) becomes Processing
    Failed,
}

/// Where the result of a COMPLETED record is. `B` is its bytes, owned or borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept<B> {
    /// In the record: these bytes.
    Inline(B),
    /// In an object, as it is too large for the record: the text of its
    /// [`Place`](crate::object::Place).
    Object(B),
    /// Nowhere.
    Nowhere,
}

impl Kept<Vec<u8>> {
    /// The same, borrowed.
    #[must_use]
    pub fn as_deref(&self) -> Kept<&[u8]> {
        match self {
            Self::Inline(result) => Kept::Inline(result),
            Self::Object(place) => Kept::Object(place),
            Self::Nowhere => Kept::Nowhere,
        }
    }
}

impl Kept<&[u8]> {
    /// The same, with bytes of its own.
    #[must_use]
    pub fn into_owned(self) -> Kept<Vec<u8>> {
        match self {
            Self::Inline(result) => Kept::Inline(result.to_vec()),
            Self::Object(place) => Kept::Object(place.to_vec()),
            Self::Nowhere => Kept::Nowhere,
        }
    }
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The work may have taken effect, wholly or in part: the next attempt is a recovery.
    pub uncertain: bool,
    /// Trying again is of no use, until another message brings the key.
    pub permanent: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_attempts_have_the_same_token() {
        let (one, other) = (Owners::random(), Owners::random());
        let tokens: HashSet<_> = (0..100).flat_map(|_| [one.next(), other.next()]).map(|owner| owner.0).collect();
        assert_eq!(tokens.len(), 200);
    }
}
