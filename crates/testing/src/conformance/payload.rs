//! Fingerprints: acquires with another payload, or without a fingerprint.

use idempotent_sqs::idempotency::{Acquire, Fingerprint, Settled, Store, StoredResult};
use tokio::time::sleep;

use super::support::{
    CLEAN, LONG, PARKED, PERMANENT, SHORT, UNCERTAIN, acquired, assert_answer, assert_settled, attempt,
    by_another_message, key, lost, taken_over, with, with_another_payload,
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

/// A permanent failure and used-up attempts apply to their message also with another payload.
pub async fn another_payload_of_a_message_that_failed_permanently_fails(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, PERMANENT), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Failed);
    let other_message = with!(with_another_payload(LONG), message = by_another_message(LONG).message);
    let claim = acquired(store, other_message.clone()).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    let used_up = with!(attempt(LONG), message = other_message.message, max_attempts = 2);
    assert_answer!(store, used_up, Acquire::Failed);
}

/// Another payload is a mismatch after a permanent failure that may have taken effect, whatever its message.
pub async fn another_payload_mismatches_a_permanent_uncertain_failure(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, PARKED), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    let other_message = with!(with_another_payload(LONG), message = by_another_message(LONG).message);
    assert_answer!(store, other_message, Acquire::Mismatch);
    assert_answer!(store, attempt(LONG), Acquire::Failed);
}

/// A late completion without a fingerprint replaces a failure of any payload, and keeps the fingerprint of the record.
pub async fn a_late_completion_without_a_fingerprint_keeps_the_stored_one(store: &impl Store) {
    let late = acquired(store, with!(attempt(SHORT), fingerprint = Fingerprint::NONE)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_settled(store.complete(&late, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

/// A late completion replaces a failure without a fingerprint. The record then has the fingerprint of the completion.
pub async fn a_late_completion_replaces_a_failure_without_a_fingerprint(store: &impl Store) {
    let late = lost(store).await;
    let other = acquired(store, with!(attempt(LONG), fingerprint = Fingerprint::NONE)).await;
    assert_settled(store.fail(&other, CLEAN), Settled::Recorded).await;
    assert_settled(store.complete(&late, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}
