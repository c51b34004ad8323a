//! Complete and fail: results, repeated calls, and calls by owners that were taken over.

use idempotent_sqs::idempotency::{Acquire, Settled, State, Store, StoredResult};
use tokio::time::sleep;

use super::support::{
    CLEAN, LONG, PARKED, PERMANENT, SHORT, UNCERTAIN, acquired, assert_answer, assert_settled, attempt,
    by_another_message, key, lost, overtaken, taken_over, with, with_another_payload,
};

/// An empty result, a result in an object and a result that was not kept are read back as such.
pub async fn empty_results_objects_and_results_not_kept_are_distinguished(store: &impl Store) {
    let location = b"s3://results/payments/pay_1/1".as_slice();
    let results = [
        StoredResult::Inline(b"".as_slice()),
        StoredResult::Inline(location),
        StoredResult::Object(location),
        StoredResult::NotKept,
    ];
    for (id, result) in ["empty", "like a location", "in an object", "not kept"].into_iter().zip(results) {
        let attempt = with!(attempt(LONG), key = key(id));
        let claim = acquired(store, attempt.clone()).await;
        assert_settled(store.complete(&claim, result), Settled::Recorded).await;
        match store.acquire(attempt).await.unwrap() {
            Acquire::Duplicate { result: kept, .. } => assert_eq!(kept.as_deref(), result),
            other => panic!("{other:?}"),
        }
    }
}

/// A result of 100,000 bytes of every value is read back unchanged.
pub async fn a_result_may_hold_any_bytes(store: &impl Store) {
    let result: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(&result)), Settled::Recorded).await;
    match store.acquire(attempt(LONG)).await.unwrap() {
        Acquire::Duplicate { result: kept, .. } => assert!(kept == StoredResult::Inline(result)),
        other => panic!("{other:?}"),
    }
}

/// A complete that is sent twice is recorded twice.
pub async fn complete_is_idempotent(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(b"once")), Settled::Recorded).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(b"once")), Settled::Recorded).await;
}

/// A fail that is sent twice is recorded twice and counts one attempt.
pub async fn fail_is_idempotent(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 2);
}

/// Complete and fail by an owner that was taken over do not change a completed record.
pub async fn a_late_owner_does_not_change_a_completed_record(store: &impl Store) {
    let late = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, attempt(SHORT)).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(b"right")), Settled::Recorded).await;
    sleep(SHORT).await;
    for failure in [CLEAN, UNCERTAIN, PERMANENT] {
        assert_settled(store.fail(&late, failure), Settled::Lost(State::Completed)).await;
    }
    assert_settled(store.complete(&late, StoredResult::Inline(b"wrong")), Settled::Lost(State::Completed)).await;
    match store.acquire(attempt(LONG)).await.unwrap() {
        Acquire::Duplicate { result, .. } => assert_eq!(result.as_deref(), StoredResult::Inline(b"right".as_slice())),
        other => panic!("{other:?}"),
    }
}

/// A complete by an owner that was taken over replaces a failure of the same payload, without lowering the fence.
pub async fn a_late_completion_replaces_a_failure_of_the_same_payload(store: &impl Store) {
    for failure in [CLEAN, UNCERTAIN, PERMANENT, PARKED] {
        let key = || key(&format!("{failure:?}"));
        let late = acquired(store, with!(attempt(SHORT), key = key())).await;
        sleep(SHORT).await;
        let claim = taken_over(store, with!(attempt(LONG), key = key())).await;
        assert_settled(store.fail(&claim, failure), Settled::Recorded).await;
        assert_settled(store.complete(&late, StoredResult::Inline(b"done")), Settled::Recorded).await;
        match store.acquire(with!(attempt(LONG), key = key())).await.unwrap() {
            Acquire::Duplicate { fence, attempts, result } => {
                assert_eq!((attempts, result.as_deref()), (1, StoredResult::Inline(b"done".as_slice())));
                assert!(fence >= claim.fence(), "a fence never falls");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A complete by an owner that was taken over is lost if the failure is of another payload.
pub async fn a_late_completion_does_not_replace_a_failure_of_another_payload(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let corrected = acquired(store, with_another_payload(LONG)).await;
    assert_settled(store.fail(&corrected, CLEAN), Settled::Recorded).await;
    assert_settled(store.complete(&first, StoredResult::NotKept), Settled::Lost(State::Failed)).await;
    assert_eq!(acquired(store, with_another_payload(LONG)).await.attempt(), 3);
}

/// An uncertain failure of an owner that was taken over marks a later clean failure as uncertain.
pub async fn a_late_uncertain_failure_marks_a_later_failure_of_the_same_payload(store: &impl Store) {
    let (late, claim) = overtaken(store).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_settled(store.fail(&late, CLEAN), Settled::Lost(State::Failed)).await;
    let third = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&third, CLEAN), Settled::Recorded).await;
    assert_settled(store.fail(&late, UNCERTAIN), Settled::Lost(State::Failed)).await;
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 4);
}

/// A complete by an owner that was taken over is lost while the new owner holds the record.
pub async fn a_late_completion_of_a_taken_over_claim_is_lost_and_changes_nothing(store: &impl Store) {
    let late = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, attempt(LONG)).await;
    assert_settled(store.complete(&late, StoredResult::Inline(b"late")), Settled::Lost(State::Processing)).await;
    assert_answer!(store, by_another_message(LONG), Acquire::Conflict { .. });
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 3);
}

/// A clean failure of an owner that was taken over is lost and clears no uncertainty.
pub async fn a_late_failure_of_a_taken_over_claim_is_lost_and_changes_nothing(store: &impl Store) {
    let late = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, attempt(LONG)).await;
    assert_settled(store.fail(&late, CLEAN), Settled::Lost(State::Processing)).await;
    assert_answer!(store, by_another_message(LONG), Acquire::Conflict { .. });
    assert_settled(store.fail(&claim, UNCERTAIN), Settled::Recorded).await;
    assert_settled(store.fail(&late, CLEAN), Settled::Lost(State::Failed)).await;
    taken_over(store, attempt(LONG)).await;
}

/// A fail after a complete of the same claim is lost.
pub async fn a_late_failure_of_a_completed_claim_is_lost_and_changes_nothing(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Lost(State::Completed)).await;
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

/// A completion after a failure or a release of the same claim replaces it.
pub async fn a_completion_replaces_a_failure_of_its_own_claim(store: &impl Store) {
    for (id, is_released) in [("failed", false), ("released", true)] {
        let request = || with!(attempt(LONG), key = key(id));
        let claim = acquired(store, request()).await;
        let failed = async {
            if is_released {
                store.release(claim.request(), Some(&claim)).await
            } else {
                store.fail(&claim, PERMANENT).await
            }
        };
        assert_settled(failed, Settled::Recorded).await;
        assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
        assert_answer!(store, request(), Acquire::Duplicate { .. });
    }
}

/// A failure keeps the higher fence, if a late acquire of its owner created the record anew after it was lost.
pub async fn a_failure_does_not_lower_the_fence(store: &impl Store) {
    let first = lost(store).await;
    let again = acquired(store, first.request().clone()).await;
    assert!(again.fence() > first.fence());
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    assert!(acquired(store, attempt(SHORT)).await.fence() > again.fence());
}

/// A completion keeps the higher fence, if a late acquire of its owner created the record anew after it was lost.
pub async fn a_completion_does_not_lower_the_fence(store: &impl Store) {
    let first = lost(store).await;
    let again = acquired(store, first.request().clone()).await;
    assert_settled(store.complete(&first, StoredResult::NotKept), Settled::Recorded).await;
    match store.acquire(attempt(LONG)).await.unwrap() {
        Acquire::Duplicate { fence, .. } => assert_eq!(fence, again.fence()),
        other => panic!("{other:?}"),
    }
}

/// A settlement of a lost record that is sent twice is recorded twice, and its owner cannot acquire again.
pub async fn a_settlement_of_a_lost_record_is_idempotent(store: &impl Store) {
    let lost = lost(store).await;
    for _ in 0..2 {
        assert_settled(store.fail(&lost, CLEAN), Settled::Recorded).await;
    }
    assert_answer!(store, lost.request().clone(), Acquire::Failed);
    for _ in 0..2 {
        assert_settled(store.complete(&lost, StoredResult::NotKept), Settled::Recorded).await;
    }
}

/// A completion has the number of the attempt that did it.
pub async fn a_completion_has_the_number_of_its_attempt(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let second = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&second, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { attempts: 2, .. });
}
