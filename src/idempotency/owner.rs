//! Owner tokens and fences, which distinguish attempts at the same key.

use std::fmt;
#[cfg(feature = "lambda")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Token of one attempt: 64 random bits, as only attempts at the same key are compared.
///
/// Create it once per attempt, outside any retry loop, so that a repeated call counts as the same attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner([u8; 8]);

impl Owner {
    /// Creates a token from the operating system's random source. No RNG state is kept in the process, because all
    /// copies of a SnapStart snapshot would share it.
    ///
    /// # Panics
    /// If the operating system returns no random bytes.
    #[must_use]
    pub fn random() -> Self {
        let mut token = [0; 8];
        getrandom::fill(&mut token).expect("the operating system returns random bytes");
        Self(token)
    }

    /// Restores a token from its stored bytes.
    #[must_use]
    pub fn from_bytes(token: [u8; 8]) -> Self {
        Self(token)
    }

    /// The bytes that a store keeps.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

/// Formats the token in hexadecimal.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// Generates the tokens of a batch by counting up from a random one, which saves a system call for each
/// message. Two batches collide no more often than two random tokens do.
#[cfg(feature = "lambda")]
#[derive(Debug)]
pub(crate) struct Owners(AtomicU64);

#[cfg(feature = "lambda")]
impl Owners {
    pub(crate) fn random() -> Self {
        Self(AtomicU64::new(u64::from_be_bytes(Owner::random().0)))
    }

    pub(crate) fn next(&self) -> Owner {
        Owner(self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes())
    }
}

/// A number that grows with each claim of a key. A resource that stores the highest fence it has received can reject a
/// late owner.
///
/// The store computes it as `max(stored fence + 1, the store's clock in µs since 1970)`, so it also grows
/// after a record was lost. See Kleppmann, "How to do distributed locking" (2016).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence that a store with this machine's clock would give to a new record.
    #[must_use]
    pub fn from_clock() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(all(test, feature = "lambda"))]
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
