//! Attempts and claims for unit tests.

use std::time::Duration;

use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Claim, Fence, Fingerprint, Key, MessageIdHash};

/// An attempt at this key by a new owner: with a lease of 60 seconds, a retention of 10 minutes and 5 attempts.
///
/// # Panics
/// If the key is empty.
#[must_use]
pub fn attempt(key: &str) -> AcquireRequest {
    let mut attempt = AcquireRequest::new(Key::new(key).expect("the key is not empty"));
    attempt.fingerprint = Fingerprint::of(b"payload");
    attempt.message = MessageIdHash::of("message");
    attempt.longest_lease = Duration::from_secs(901);
    attempt.retention = Duration::from_secs(600);
    attempt.max_attempts = 5;
    attempt
}

/// The claim of a first attempt at this key, for unit tests of a [`Work`](idempotent_sqs::Work).
///
/// # Panics
/// If the key is empty.
#[must_use]
pub fn claim(key: &str) -> Claim {
    claimed(key, 1, false)
}

/// The claim of a second attempt after one that may have taken effect, for unit tests of a
/// [`Work`](idempotent_sqs::Work).
///
/// # Panics
/// If the key is empty.
#[must_use]
pub fn recovery(key: &str) -> Claim {
    claimed(key, 2, true)
}

fn claimed(key: &str, number: u8, recovery: bool) -> Claim {
    match Acquire::claimed(attempt(key), Fence::from_clock(), number, recovery) {
        Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => claim,
        Acquire::Duplicate { .. } | Acquire::Conflict { .. } | Acquire::Mismatch | Acquire::Failed => {
            unreachable!("`claimed` returns a claim")
        }
    }
}
