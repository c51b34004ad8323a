//! Keys of every kind, and concurrent calls.

use futures_util::future::{join, join_all};
use idempotent_sqs::idempotency::{Acquire, Claim, Key, Settled, State, Store, StoredResult};
use tokio::time::sleep;

use super::support::{CLEAN, LONG, SHORT, acquired, assert_settled, attempt, key, with};

/// Keys with spaces, braces, control characters, non-ASCII text and up to 1,025 bytes have separate records. They are
/// compared byte by byte.
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
        "A",
        " a",
        "a ",
        "größe",
        "gro\u{308}ße",
        "ü",
        "u\u{308}",
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

/// A key that is restored from its stored form has the record of the key, also if that is stored as its hash.
pub async fn a_key_restored_from_its_stored_form_has_the_same_record(store: &impl Store) {
    for kind in ["a", "a\0b", "sha256:a", &"k".repeat(201)] {
        let claim = acquired(store, with!(attempt(LONG), key = key(kind))).await;
        assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
        let restored = Key::from_stored(&key(kind).stored()).unwrap();
        let answer = store.acquire(with!(attempt(LONG), key = restored)).await.unwrap();
        assert!(matches!(answer, Acquire::Duplicate { .. }), "{kind:?}: {answer:?}");
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

/// A settlement and a takeover at the same time exclude each other.
pub async fn a_settlement_and_a_takeover_exclude_each_other(store: &impl Store) {
    for settlement in ["complete", "fail", "release"] {
        let request = |n: u32| with!(attempt(LONG), key = key(&format!("{settlement}_{n}")));
        let claims = join_all((0..20).map(|n| acquired(store, with!(request(n), lease = SHORT)))).await;
        sleep(SHORT * 2).await;
        let settle = |claim: Claim| async move {
            match settlement {
                "complete" => store.complete(&claim, StoredResult::NotKept).await,
                "fail" => store.fail(&claim, CLEAN).await,
                _ => store.release(claim.request(), Some(&claim)).await,
            }
        };
        let both = claims.into_iter().zip(0..).map(|(claim, n)| join(settle(claim), store.acquire(request(n))));
        for (settled, next) in join_all(both).await {
            match (settled.unwrap(), next.unwrap()) {
                (Settled::Recorded, Acquire::Duplicate { .. }) => assert_eq!(settlement, "complete"),
                (Settled::Recorded, Acquire::Acquired(_)) => assert_ne!(settlement, "complete"),
                (Settled::Lost(State::Processing), Acquire::AcquiredStale(_)) => {}
                other => panic!("{settlement}: {other:?}"),
            }
        }
    }
}
