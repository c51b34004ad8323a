//! Keys of every kind, and concurrent calls.

use futures_util::future::join_all;
use idempotent_sqs::idempotency::{Acquire, Settled, Store, StoredResult};

use super::support::{LONG, acquired, assert_settled, attempt, key, with};

/// Keys with spaces, braces, control characters, non-ASCII text and up to 1,025 bytes have separate records.
pub async fn every_kind_of_key_has_a_record_of_its_own(store: &impl Store) {
    let long = "k".repeat(1024);
    let longer = "k".repeat(1025);
    let kinds = [
        "a",
        "a b",
        "{a}",
        "{}",
        "a\nb",
        "a\0b",
        "a:b",
        "größe",
        "\u{1F4B6}",
        &long,
        &longer,
        &long[..200],
        &long[..201],
    ];
    for kind in kinds {
        let claim = acquired(store, with!(attempt(LONG), key = key(kind))).await;
        assert_settled(store.complete(&claim, StoredResult::Inline(kind.as_bytes())), Settled::Recorded).await;
    }
    for kind in kinds {
        match store.acquire(with!(attempt(LONG), key = key(kind))).await.unwrap() {
            Acquire::Duplicate { result, .. } => assert_eq!(result.as_deref(), StoredResult::Inline(kind.as_bytes())),
            other => panic!("{kind:?}: {other:?}"),
        }
    }
}

/// Of 100 concurrent acquires of one key, one gets the claim and 99 a conflict.
pub async fn one_of_many_concurrent_acquires_succeeds(store: &impl Store) {
    let answers = join_all((0..100).map(|_| store.acquire(attempt(LONG)))).await;
    let acquired = answers.iter().filter(|answer| matches!(answer, Ok(Acquire::Acquired(_)))).count();
    let conflicts = answers.iter().filter(|answer| matches!(answer, Ok(Acquire::Conflict { .. }))).count();
    assert_eq!((acquired, conflicts), (1, 99));
}

/// Each of 300 concurrent acquires of different keys gets the answer of its own key.
pub async fn concurrent_acquires_of_different_keys_are_independent(store: &impl Store) {
    let attempt = |n: u32| with!(attempt(LONG), key = key(&format!("pay_{n}")));
    for n in (0..300).step_by(3) {
        acquired(store, attempt(n)).await;
    }
    let answers = join_all((0..300).map(|n| store.acquire(attempt(n)))).await;
    for (n, answer) in answers.into_iter().enumerate() {
        match answer.unwrap() {
            Acquire::Conflict { .. } => assert_eq!(n % 3, 0),
            Acquire::Acquired(claim) => {
                assert_ne!(n % 3, 0);
                assert_eq!(claim.key().as_str(), format!("pay_{n}"));
            }
            other => panic!("{other:?}"),
        }
    }
}
