//! When records expire: only an acquire that succeeds renews the retention.

use std::time::Duration;

use futures_util::future::{join, join3, join5};
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Claim, Settled, State, Store, StoredResult};
use tokio::time::sleep;

use super::support::{
    CLEAN, LONG, PERMANENT, SHORT, UNCERTAIN, acquired, assert_answer, assert_settled, attempt, expired, key,
    taken_over, with, with_another_payload,
};

/// Half of a retention: long enough for the calls within it on a slow machine.
const HALF: Duration = Duration::from_millis(400);

/// An attempt at this key whose record is kept for two halves.
fn kept(id: &str, lease: Duration) -> AcquireRequest {
    with!(attempt(lease), key = key(id), retention = HALF * 2)
}

/// A request that would keep the record for long.
fn renewing(id: &str, lease: Duration) -> AcquireRequest {
    with!(attempt(lease), key = key(id))
}

/// Asserts, a half later, that there is no record.
async fn assert_expired(store: &impl Store, id: &str) {
    sleep(HALF + SHORT).await;
    assert_eq!(acquired(store, renewing(id, LONG)).await.attempt(), 1, "the record of {id} has not expired");
}

/// A claim whose record is kept for another half.
async fn half_expired(store: &impl Store, id: &str) -> Claim {
    let claim = acquired(store, kept(id, SHORT)).await;
    sleep(HALF).await;
    claim
}

/// A claim that was taken over, and a failure of the owner that took over, whose record is kept for another half.
async fn half_expired_failure(store: &impl Store, id: &str) -> (Claim, Claim) {
    let late = acquired(store, kept(id, SHORT)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, kept(id, SHORT)).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    sleep(HALF).await;
    (late, claim)
}

/// Repeated acquires, conflicts, duplicates, mismatches and acquires that fail do not renew the retention.
pub async fn an_acquire_that_does_not_get_the_record_does_not_renew_the_retention(store: &impl Store) {
    let repeated = async {
        let claim = half_expired(store, "repeated").await;
        acquired(store, claim.request().clone()).await;
        assert_expired(store, "repeated").await;
    };
    let conflict = async {
        acquired(store, kept("conflict", HALF * 2)).await;
        sleep(HALF).await;
        assert_answer!(store, renewing("conflict", LONG), Acquire::Conflict { .. });
        assert_expired(store, "conflict").await;
    };
    let shortened = async {
        acquired(store, kept("shortened", HALF * 2)).await;
        sleep(HALF / 2).await;
        let shorter = with!(renewing("shortened", SHORT), longest_lease = SHORT);
        assert_answer!(store, shorter, Acquire::Conflict { .. });
        sleep(HALF / 2).await;
        assert_expired(store, "shortened").await;
    };
    let duplicate = async {
        let claim = acquired(store, kept("duplicate", SHORT)).await;
        assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
        sleep(HALF).await;
        assert_answer!(store, renewing("duplicate", LONG), Acquire::Duplicate { .. });
        assert_answer!(store, with!(with_another_payload(LONG), key = key("duplicate")), Acquire::Mismatch);
        assert_expired(store, "duplicate").await;
    };
    let failed = async {
        let claim = acquired(store, kept("failed", SHORT)).await;
        assert_settled(store.fail(&claim, PERMANENT), Settled::Recorded).await;
        sleep(HALF).await;
        assert_answer!(store, renewing("failed", LONG), Acquire::Failed);
        assert_expired(store, "failed").await;
    };
    join5(repeated, conflict, shortened, duplicate, failed).await;
}

/// Settlements, repeated ones and late ones do not renew the retention.
pub async fn a_settlement_does_not_renew_the_retention(store: &impl Store) {
    let complete = async {
        let claim = half_expired(store, "complete").await;
        for _ in 0..2 {
            assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
        }
        assert_expired(store, "complete").await;
    };
    let fail = async {
        let claim = half_expired(store, "fail").await;
        for _ in 0..2 {
            assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
        }
        assert_expired(store, "fail").await;
    };
    let release = async {
        // The attempt that is released does not count, so another one shows whether there is a record.
        let first = acquired(store, kept("release", SHORT)).await;
        assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
        let claim = half_expired(store, "release").await;
        for _ in 0..2 {
            assert_settled(store.release(claim.request(), Some(&claim)), Settled::Recorded).await;
        }
        assert_expired(store, "release").await;
    };
    let late_completion = async {
        let (late, _) = half_expired_failure(store, "late completion").await;
        assert_settled(store.complete(&late, StoredResult::NotKept), Settled::Recorded).await;
        assert_expired(store, "late completion").await;
    };
    let late_failure = async {
        let (late, _) = half_expired_failure(store, "late failure").await;
        assert_settled(store.fail(&late, UNCERTAIN), Settled::Lost(State::Failed)).await;
        assert_expired(store, "late failure").await;
    };
    let late_release = async {
        let (_, recovery) = half_expired_failure(store, "late release").await;
        let failed = acquired(store, kept("late release", SHORT)).await;
        assert_settled(store.fail(&failed, CLEAN), Settled::Recorded).await;
        sleep(HALF).await;
        let released = store.release(recovery.request(), Some(&recovery));
        assert_settled(released, Settled::Lost(State::Failed)).await;
        assert_expired(store, "late release").await;
    };
    join(join3(complete, fail, release), join3(late_completion, late_failure, late_release)).await;
}

/// A record that a settlement creates, because it was lost, is kept for its retention.
pub async fn a_restored_record_expires_with_its_retention(store: &impl Store) {
    let brief = |id: &str| with!(attempt(SHORT), key = key(id), retention = SHORT);
    let complete = async {
        let lost = expired(acquired(store, brief("complete")).await, HALF).await;
        assert_settled(store.complete(&lost, StoredResult::NotKept), Settled::Recorded).await;
        assert_expired(store, "complete").await;
    };
    let fail = async {
        let lost = expired(acquired(store, brief("fail")).await, HALF).await;
        assert_settled(store.fail(&lost, CLEAN), Settled::Recorded).await;
        assert_expired(store, "fail").await;
    };
    let release = async {
        let first = acquired(store, with!(brief("release"), retention = LONG)).await;
        assert_settled(store.fail(&first, UNCERTAIN), Settled::Recorded).await;
        let lost = expired(taken_over(store, brief("release")).await, HALF).await;
        assert_settled(store.release(lost.request(), Some(&lost)), Settled::Recorded).await;
        assert_expired(store, "release").await;
    };
    join3(complete, fail, release).await;
}
