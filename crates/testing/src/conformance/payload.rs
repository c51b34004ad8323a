//! Fingerprints: acquires with another payload, or without a fingerprint.

use idempotent_sqs::idempotency::{Acquire, Fingerprint, Settled, Store, StoredResult};
use tokio::time::sleep;

use super::support::{
    CLEAN, LONG, PERMANENT, SHORT, UNCERTAIN, acquired, assert_answer, assert_settled, attempt, by_another_message,
    key, taken_over, with, with_another_payload,
};

/// Another payload is a conflict during a lease and a mismatch after its end.
pub async fn another_payload_is_a_conflict_during_a_lease_and_a_mismatch_after_it(store: &impl Store) {
    let claim = acquired(store, attempt(SHORT * 10)).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Conflict { .. });
    sleep(SHORT * 10).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
}

/// Another payload is a mismatch of a completed record.
pub async fn another_payload_mismatches_a_completed_record(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

/// Another payload may run after a clean failure, and a permanent one, and replaces the fingerprint.
pub async fn another_payload_is_acquired_after_a_clean_failure(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    let corrected = acquired(store, with_another_payload(LONG)).await;
    assert_eq!(corrected.attempt(), 2);
    assert_answer!(store, attempt(LONG), Acquire::Conflict { .. });
    assert_settled(store.fail(&corrected, PERMANENT), Settled::Recorded).await;
    acquired(store, by_another_message(LONG)).await;
}

/// Another payload is a mismatch after an uncertain failure.
pub async fn another_payload_mismatches_an_uncertain_failure(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, UNCERTAIN), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    taken_over(store, attempt(LONG)).await;
}

/// An attempt without a fingerprint matches every record, and a record without one every attempt.
pub async fn no_fingerprint_matches_every_payload(store: &impl Store) {
    let none = || with!(attempt(LONG), fingerprint = Fingerprint::NONE);
    let claim = acquired(store, attempt(LONG)).await;
    assert_answer!(store, none(), Acquire::Conflict { .. });
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, none(), Acquire::Duplicate { .. });

    let claim = acquired(store, with!(none(), key = key("pay_2"))).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, with!(attempt(LONG), key = key("pay_2")), Acquire::Duplicate { .. });
}

/// Attempts without a fingerprint keep the fingerprint of the record.
pub async fn no_fingerprint_does_not_erase_the_stored_one(store: &impl Store) {
    let none = |lease| with!(attempt(lease), fingerprint = Fingerprint::NONE);
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let second = acquired(store, none(LONG)).await;
    assert_settled(store.fail(&second, UNCERTAIN), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    let third = taken_over(store, none(LONG)).await;
    assert_settled(store.complete(&third, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}
