//! Doubt that arrives after another owner has failed: of late uncertain failures, and of recoveries that are released.

use idempotent_sqs::idempotency::{Acquire, Claim, Fingerprint, Settled, State, Store};
use tokio::time::sleep;

use super::support::{
    CLEAN, LONG, PARKED, PERMANENT, SHORT, UNCERTAIN, acquired, assert_answer, assert_settled, attempt,
    by_another_message, expired, key, lost, overtaken, taken_over, with, with_another_payload,
};

/// The claim of a recovery whose record was lost.
async fn lost_recovery(store: &impl Store) -> Claim {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, UNCERTAIN), Settled::Recorded).await;
    expired(taken_over(store, with!(attempt(SHORT), retention = SHORT)).await, LONG).await
}

/// A late uncertain failure, or the release of a recovery, does not mark a failure of another payload as uncertain.
pub async fn late_doubt_does_not_concern_another_payload(store: &impl Store) {
    let late = lost_recovery(store).await;
    let other = acquired(store, with_another_payload(LONG)).await;
    assert_settled(store.fail(&other, CLEAN), Settled::Recorded).await;
    assert_settled(store.fail(&late, UNCERTAIN), Settled::Lost(State::Failed)).await;
    assert_settled(store.release(late.request(), Some(&late)), Settled::Lost(State::Failed)).await;
    assert_eq!(acquired(store, with_another_payload(LONG)).await.attempt(), 2);
}

/// A late uncertain failure without a fingerprint marks a failure of any payload as uncertain.
pub async fn late_doubt_without_a_fingerprint_concerns_every_payload(store: &impl Store) {
    let without = |lease| with!(attempt(lease), fingerprint = Fingerprint::NONE);
    let late = acquired(store, without(SHORT)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, attempt(SHORT)).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_settled(store.fail(&late, UNCERTAIN), Settled::Lost(State::Failed)).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    taken_over(store, attempt(LONG)).await;
}

/// A late uncertain failure, or the release of a recovery, marks a failure without a fingerprint.
pub async fn late_doubt_concerns_a_failure_without_a_fingerprint(store: &impl Store) {
    for is_released in [false, true] {
        let late = lost_recovery(store).await;
        let claim = acquired(store, with!(attempt(LONG), fingerprint = Fingerprint::NONE)).await;
        assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
        let doubt = async {
            if is_released {
                store.release(late.request(), Some(&late)).await
            } else {
                store.fail(&late, UNCERTAIN).await
            }
        };
        assert_settled(doubt, Settled::Lost(State::Failed)).await;
        let recovery = taken_over(store, attempt(SHORT)).await;
        assert_settled(store.fail(&recovery, CLEAN), Settled::Recorded).await;
    }
}

/// The claims of an owner that was taken over, of the recovery that took over and failed, and of a third attempt that
/// failed.
async fn third_failure(store: &impl Store) -> (Claim, Claim, Claim) {
    let (late, recovery) = overtaken(store).await;
    assert_settled(store.fail(&recovery, CLEAN), Settled::Recorded).await;
    let failed = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&failed, CLEAN), Settled::Recorded).await;
    (late, recovery, failed)
}

/// A late uncertain failure that is sent twice marks the record once, and changes neither its attempts nor its owner.
pub async fn late_doubt_is_idempotent(store: &impl Store) {
    let (late, _, failed) = third_failure(store).await;
    for _ in 0..2 {
        assert_settled(store.fail(&late, UNCERTAIN), Settled::Lost(State::Failed)).await;
        // The owner of the record repeats its call.
        assert_settled(store.fail(&failed, CLEAN), Settled::Recorded).await;
    }
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 4);
}

/// The release of a recovery that is sent twice marks another owner's failure once, and changes neither attempts nor
/// owner.
pub async fn the_doubt_of_a_released_recovery_is_idempotent(store: &impl Store) {
    let (_, recovery, failed) = third_failure(store).await;
    for _ in 0..2 {
        assert_settled(store.release(recovery.request(), Some(&recovery)), Settled::Lost(State::Failed)).await;
        assert_settled(store.fail(&failed, CLEAN), Settled::Recorded).await;
    }
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 4);
}

/// A late failure that is permanent does not make another owner's failure permanent.
pub async fn a_late_permanent_failure_is_lost(store: &impl Store) {
    for failure in [PERMANENT, PARKED] {
        let request = |lease| with!(attempt(lease), key = key(&format!("{failure:?}")));
        let late = acquired(store, request(SHORT)).await;
        sleep(SHORT).await;
        let claim = taken_over(store, request(LONG)).await;
        assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
        assert_settled(store.fail(&late, failure), Settled::Lost(State::Failed)).await;
        let next = store.acquire(request(LONG)).await.unwrap();
        let (Acquire::Acquired(claim) | Acquire::AcquiredStale(claim)) = next else { panic!("{next:?}") };
        assert_eq!((claim.attempt(), claim.is_recovery()), (3, failure.uncertain));
    }
}

/// A release of a first attempt leaves no doubt: neither if its record was lost, nor in another owner's failure.
pub async fn a_release_of_a_first_attempt_leaves_no_doubt(store: &impl Store) {
    let claim = lost(store).await;
    assert_settled(store.release(claim.request(), Some(&claim)), Settled::Recorded).await;
    let other = acquired(store, attempt(LONG)).await;
    assert_eq!(other.attempt(), 1, "the release wrote no record");
    assert_settled(store.fail(&other, CLEAN), Settled::Recorded).await;
    assert_settled(store.release(claim.request(), Some(&claim)), Settled::Lost(State::Failed)).await;
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 2);
}

/// The release of a recovery whose record was lost restores its message, and the attempts before it.
pub async fn a_released_recovery_whose_record_was_lost_restores_its_message(store: &impl Store) {
    let recovery = lost_recovery(store).await;
    assert_settled(store.release(recovery.request(), Some(&recovery)), Settled::Recorded).await;
    assert_answer!(store, with!(attempt(LONG), max_attempts = 1), Acquire::Failed);
    assert_eq!(taken_over(store, with!(by_another_message(LONG), max_attempts = 1)).await.attempt(), 1);
}
