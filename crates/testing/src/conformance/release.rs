//! Release: attempts that are not counted, and uncertainty that is kept.

use idempotent_sqs::idempotency::{Acquire, Fingerprint, Owner, Settled, State, Store, StoredResult};
use tokio::time::sleep;

use super::support::{
    CLEAN, LONG, PERMANENT, SHORT, UNCERTAIN, acquired, assert_answer, assert_settled, attempt, by_another_message,
    lost, overtaken, taken_over, with, with_another_payload,
};

/// After a release the next attempt has the same number, a higher fence and is not a recovery.
pub async fn a_released_attempt_is_not_counted_and_causes_no_recovery(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let released = attempt(LONG);
    let claim = acquired(store, released.clone()).await;
    assert_eq!(claim.attempt(), 2);
    assert_settled(store.release(&released, None), Settled::Recorded).await;
    let next = acquired(store, attempt(LONG)).await;
    assert_eq!(next.attempt(), 2);
    assert!(next.fence() > claim.fence());
}

/// A release after an uncertain failure leaves the record uncertain.
pub async fn a_release_keeps_the_uncertainty_of_earlier_attempts(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, UNCERTAIN), Settled::Recorded).await;
    for _ in 0..2 {
        let released = attempt(LONG);
        taken_over(store, released.clone()).await;
        assert_settled(store.release(&released, None), Settled::Recorded).await;
    }
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 2);
}

/// A release of an attempt that took over an ended lease leaves the record uncertain.
pub async fn the_attempt_after_a_released_takeover_is_a_recovery(store: &impl Store) {
    acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let released = attempt(LONG);
    taken_over(store, released.clone()).await;
    assert_settled(store.release(&released, None), Settled::Recorded).await;
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 2);
}

/// More releases than attempts leave the first attempt available.
pub async fn releases_use_up_no_attempts(store: &impl Store) {
    for _ in 0..5 {
        let released = with!(attempt(LONG), max_attempts = 2);
        assert_eq!(acquired(store, released.clone()).await.attempt(), 1);
        assert_settled(store.release(&released, None), Settled::Recorded).await;
    }
}

/// A release that is sent several times uncounts one attempt.
pub async fn release_is_idempotent(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let released = attempt(LONG);
    acquired(store, released.clone()).await;
    for _ in 0..3 {
        assert_settled(store.release(&released, None), Settled::Recorded).await;
    }
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 2);
}

/// A release without a record is recorded and creates none.
pub async fn a_release_without_an_acquire_changes_nothing(store: &impl Store) {
    assert_settled(store.release(&attempt(LONG), None), Settled::Recorded).await;
    let next = acquired(store, attempt(LONG)).await;
    assert_eq!(next.attempt(), 1);
}

/// A release of a recovery creates an uncertain record if the record was lost.
pub async fn a_release_of_a_recovery_whose_record_was_lost_keeps_the_uncertainty(store: &impl Store) {
    let first = acquired(store, with!(attempt(SHORT), retention = SHORT)).await;
    assert_settled(store.fail(&first, UNCERTAIN), Settled::Recorded).await;
    let recovery = taken_over(store, with!(attempt(SHORT), retention = SHORT)).await;
    sleep(SHORT * 2).await;
    let asked = with!(recovery.request().clone(), retention = LONG);
    assert_settled(store.release(&asked, Some(&recovery)), Settled::Recorded).await;
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 2);
}

/// A release of a recovery marks another owner's clean failure as uncertain.
pub async fn a_release_of_a_recovery_marks_a_later_failure_of_the_same_payload(store: &impl Store) {
    let (_late, recovery) = overtaken(store).await;
    // As after a loss: another attempt has the record, and fails.
    let other = with!(recovery.request().clone(), owner = Owner::random());
    assert_settled(store.fail(&recovery, CLEAN), Settled::Recorded).await;
    let failed = acquired(store, other).await;
    assert_settled(store.fail(&failed, CLEAN), Settled::Recorded).await;
    assert_settled(store.release(recovery.request(), Some(&recovery)), Settled::Lost(State::Failed)).await;
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 4);
}

/// A release of a recovery without a fingerprint marks another owner's clean failure of any payload as uncertain.
pub async fn a_release_of_a_recovery_without_a_fingerprint_marks_a_later_failure(store: &impl Store) {
    let without = |lease| with!(attempt(lease), fingerprint = Fingerprint::NONE);
    acquired(store, without(SHORT)).await;
    sleep(SHORT).await;
    let recovery = taken_over(store, without(LONG)).await;
    assert_settled(store.fail(&recovery, CLEAN), Settled::Recorded).await;
    let failed = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&failed, CLEAN), Settled::Recorded).await;
    assert_settled(store.release(recovery.request(), Some(&recovery)), Settled::Lost(State::Failed)).await;
    taken_over(store, attempt(LONG)).await;
}

/// Late doubt, of a release and of a failure, leaves another owner's permanent failure permanent.
pub async fn late_doubt_leaves_a_permanent_failure_permanent(store: &impl Store) {
    let (late, recovery) = overtaken(store).await;
    assert_settled(store.fail(&recovery, CLEAN), Settled::Recorded).await;
    let failed = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&failed, PERMANENT), Settled::Recorded).await;
    assert_settled(store.release(recovery.request(), Some(&recovery)), Settled::Lost(State::Failed)).await;
    assert_answer!(store, attempt(LONG), Acquire::Failed);

    let again = taken_over(store, by_another_message(LONG)).await;
    assert_settled(store.fail(&again, PERMANENT), Settled::Recorded).await;
    assert_settled(store.fail(&late, UNCERTAIN), Settled::Lost(State::Failed)).await;
    assert_answer!(store, by_another_message(LONG), Acquire::Failed);
    taken_over(store, attempt(LONG)).await;
}

/// A release of a first attempt creates no record if the record was lost.
pub async fn a_release_of_a_first_attempt_whose_record_was_lost_changes_nothing(store: &impl Store) {
    let owner = lost(store).await;
    assert_settled(store.release(&attempt(LONG), None), Settled::Recorded).await;
    assert_settled(store.complete(&owner, StoredResult::Inline(b"done")), Settled::Recorded).await;
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

/// A release of a record that another owner holds or has settled is lost and changes nothing.
pub async fn a_release_of_another_owners_record_is_lost_and_changes_nothing(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.release(&attempt(LONG), None), Settled::Lost(State::Processing)).await;
    assert_answer!(store, attempt(LONG), Acquire::Conflict { .. });
    assert_settled(store.fail(&claim, UNCERTAIN), Settled::Recorded).await;
    assert_settled(store.release(&attempt(LONG), None), Settled::Lost(State::Failed)).await;
    let claim = taken_over(store, attempt(LONG)).await;
    assert_eq!(claim.attempt(), 2);
    assert_settled(store.complete(&claim, StoredResult::Inline(b"done")), Settled::Recorded).await;
    for attempt in [attempt(LONG), claim.request().clone()] {
        assert_settled(store.release(&attempt, None), Settled::Lost(State::Completed)).await;
    }
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

/// An acquire that arrives after its owner has released is rejected and counts no attempt.
pub async fn an_owner_that_released_cannot_acquire_again(store: &impl Store) {
    let released = attempt(LONG);
    acquired(store, released.clone()).await;
    assert_settled(store.release(&released, None), Settled::Recorded).await;
    assert_answer!(store, released, Acquire::Failed);
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 1);
}
