//! Acquires that do not get the record, and repeated ones: they change nothing.

use std::time::Duration;

use idempotent_sqs::idempotency::{Acquire, Claim, Fingerprint, Settled, Store, StoredResult};
use tokio::time::sleep;

use super::support::{
    LONG, PERMANENT, SHORT, acquired, assert_answer, assert_settled, attempt, by_another_message, key, taken_over,
    with, with_another_payload,
};

/// A lease that ends during a row, and long enough for the calls before its end on a slow machine.
const BRIEF: Duration = Duration::from_millis(200);

/// Asserts that the record is that of this completed claim.
async fn assert_completed_by(store: &impl Store, claim: &Claim) {
    match store.acquire(with!(attempt(LONG), key = claim.key().clone())).await.unwrap() {
        Acquire::Duplicate { fence, attempts, .. } => assert_eq!((fence, attempts), (claim.fence(), claim.attempt())),
        other => panic!("{other:?}"),
    }
}

/// An acquire that its owner repeats does not extend the lease and counts once.
pub async fn a_repeated_acquire_does_not_renew_the_lease(store: &impl Store) {
    let request = attempt(BRIEF);
    let first = acquired(store, request.clone()).await;
    sleep(BRIEF / 2).await;
    acquired(store, request).await;
    sleep(BRIEF / 2 + SHORT).await;
    let recovery = taken_over(store, attempt(LONG)).await;
    assert_eq!(recovery.attempt(), 2);
    assert!(recovery.fence() > first.fence());
}

/// A conflict leaves fence, attempts, payload and message of the record as they are.
pub async fn a_conflict_changes_nothing(store: &impl Store) {
    let other = || with!(with_another_payload(LONG), message = by_another_message(LONG).message);
    let claim = acquired(store, attempt(LONG)).await;
    assert_answer!(store, other(), Acquire::Conflict { .. });
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_completed_by(store, &claim).await;

    let last = |lease| with!(attempt(lease), key = key("pay_2"), max_attempts = 1);
    acquired(store, last(BRIEF)).await;
    assert_answer!(store, with!(other(), key = key("pay_2")), Acquire::Conflict { .. });
    sleep(BRIEF + SHORT).await;
    // Its only attempt is used up, for its message.
    assert_answer!(store, last(LONG), Acquire::Failed);
    assert_answer!(store, with!(other(), key = key("pay_2")), Acquire::Mismatch);
}

/// Duplicates and mismatches leave fence, attempts, payload and result of the record as they are.
pub async fn a_duplicate_changes_nothing(store: &impl Store) {
    let claim = acquired(store, with!(attempt(LONG), fingerprint = Fingerprint::NONE)).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(b"receipt")), Settled::Recorded).await;
    // A record without a fingerprint agrees with each payload, also after a duplicate with one.
    for duplicate in [attempt(LONG), with_another_payload(LONG), by_another_message(LONG), claim.request().clone()] {
        match store.acquire(duplicate).await.unwrap() {
            Acquire::Duplicate { fence, attempts, result } => {
                assert_eq!((fence, attempts), (claim.fence(), 1));
                assert_eq!(result.as_deref(), StoredResult::Inline(b"receipt".as_slice()));
            }
            other => panic!("{other:?}"),
        }
    }
    let claim = acquired(store, with!(attempt(LONG), key = key("pay_2"))).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    for _ in 0..2 {
        assert_answer!(store, with!(with_another_payload(LONG), key = key("pay_2")), Acquire::Mismatch);
        assert_completed_by(store, &claim).await;
    }
}

/// An acquire that fails leaves owner and attempts of the record as they are.
pub async fn a_failed_acquire_changes_nothing(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, PERMANENT), Settled::Recorded).await;
    for _ in 0..2 {
        assert_answer!(store, attempt(LONG), Acquire::Failed);
        // The owner repeats its call.
        assert_settled(store.fail(&claim, PERMANENT), Settled::Recorded).await;
    }
    assert_eq!(acquired(store, by_another_message(LONG)).await.attempt(), 2);
}
