//! Leases, retentions, and records that were lost.

use std::time::Duration;

use idempotent_sqs::idempotency::{Acquire, Settled, Store, StoredResult};
use tokio::time::sleep;

use super::support::{
    CLEAN, LONG, PERMANENT, SHORT, UNCERTAIN, acquired, assert_answer, assert_settled, attempt, by_another_message,
    lost, taken_over, with, with_another_payload,
};

/// A complete creates the record if it was lost, with fingerprint, fence, attempts and result.
pub async fn completing_a_lost_record_restores_it(store: &impl Store) {
    let claim = lost(store).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(b"healed")), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    match store.acquire(by_another_message(LONG)).await.unwrap() {
        Acquire::Duplicate { fence, attempts, result } => {
            assert_eq!(
                (fence, attempts, result.as_deref()),
                (claim.fence(), 1, StoredResult::Inline(b"healed".as_slice()))
            );
        }
        other => panic!("{other:?}"),
    }
}

/// A fail creates the record if it was lost.
pub async fn failing_a_lost_record_restores_it(store: &impl Store) {
    let claim = lost(store).await;
    assert_settled(store.fail(&claim, UNCERTAIN), Settled::Recorded).await;
    let recovery = taken_over(store, attempt(LONG)).await;
    assert_eq!(recovery.attempt(), 2);
    assert!(recovery.fence() > claim.fence());
}

/// A claim can be completed after the end of its lease if no other owner has taken it over.
pub async fn a_claim_can_be_completed_after_its_lease_until_it_is_taken_over(store: &impl Store) {
    let claim = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
}

/// A record expires with its retention, and the fence still grows.
pub async fn a_record_expires_with_its_retention(store: &impl Store) {
    let brief = || with!(attempt(SHORT), retention = SHORT);
    let first = acquired(store, brief()).await;
    assert_settled(store.complete(&first, StoredResult::NotKept), Settled::Recorded).await;
    sleep(SHORT * 2).await;
    let second = acquired(store, brief()).await;
    assert_eq!(second.attempt(), 1);
    assert!(second.fence() > first.fence(), "a fence grows over the loss of its record");
}

/// A record lives as long as its lease, even if its retention is shorter.
pub async fn a_record_lives_at_least_as_long_as_its_lease(store: &impl Store) {
    let claim = acquired(store, with!(attempt(LONG), retention = Duration::from_millis(1))).await;
    sleep(SHORT).await;
    assert_answer!(store, attempt(LONG), Acquire::Conflict { .. });
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

/// A retention of zero is accepted. A settlement creates a lost record also then.
pub async fn a_retention_of_zero_is_accepted(store: &impl Store) {
    let brief = || with!(attempt(SHORT), retention = Duration::ZERO);
    let claim = acquired(store, brief()).await;
    sleep(SHORT * 2).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    sleep(SHORT).await;
    let claim = acquired(store, brief()).await;
    sleep(SHORT * 2).await;
    assert_settled(store.fail(&claim, UNCERTAIN), Settled::Recorded).await;
}

/// A lease longer than the longest one, taken while the store's clock was ahead, is shortened by the next acquire.
pub async fn a_lease_longer_than_the_longest_is_shortened(store: &impl Store) {
    acquired(store, attempt(Duration::from_secs(1_000_000))).await;
    let shorter = || with!(attempt(SHORT), longest_lease = SHORT * 5);
    for _ in 0..2 {
        match store.acquire(shorter()).await.unwrap() {
            Acquire::Conflict { lease_remains } => assert!(lease_remains <= SHORT * 5, "{lease_remains:?}"),
            other => panic!("{other:?}"),
        }
    }
    sleep(SHORT * 5).await;
    assert_eq!(taken_over(store, shorter()).await.attempt(), 2);
}

/// A lease is not shortened below that of the request, even if that is above its longest one.
pub async fn a_lease_up_to_that_of_the_request_is_not_shortened(store: &impl Store) {
    let above_its_longest = || with!(attempt(LONG), longest_lease = SHORT);
    acquired(store, above_its_longest()).await;
    for conflicting in [attempt(LONG), above_its_longest()] {
        match store.acquire(conflicting).await.unwrap() {
            Acquire::Conflict { lease_remains } => assert!(lease_remains > LONG / 2, "{lease_remains:?}"),
            other => panic!("{other:?}"),
        }
    }
}

/// A lease that was shortened is still that of its owner, and of a recovery if it was one.
pub async fn a_shortened_lease_stays_that_of_its_owner(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, UNCERTAIN), Settled::Recorded).await;
    let request = attempt(Duration::from_secs(1_000_000));
    let recovery = taken_over(store, request.clone()).await;
    assert_answer!(store, with!(attempt(SHORT), longest_lease = LONG), Acquire::Conflict { .. });
    let again = taken_over(store, request).await;
    assert_eq!((again.fence(), again.attempt()), (recovery.fence(), 2));
    assert_settled(store.complete(&recovery, StoredResult::NotKept), Settled::Recorded).await;
}

/// A claim can be failed or released after the end of its lease if no other owner has taken it over.
pub async fn a_claim_can_be_failed_or_released_after_its_lease_until_it_is_taken_over(store: &impl Store) {
    let claim = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    let claim = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    assert_settled(store.release(claim.request(), Some(&claim)), Settled::Recorded).await;
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 2);
}

/// The longest durations are accepted.
pub async fn the_longest_durations_are_accepted(store: &impl Store) {
    let longest = || {
        let max = Duration::MAX;
        with!(attempt(max), longest_lease = max, retention = max, failed_retention = max)
    };
    let claim = acquired(store, longest()).await;
    assert_answer!(store, longest(), Acquire::Conflict { .. });
    assert_settled(store.fail(&claim, PERMANENT), Settled::Recorded).await;
    assert_answer!(store, longest(), Acquire::Failed);
    let claim = acquired(store, with!(longest(), message = by_another_message(LONG).message)).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, longest(), Acquire::Duplicate { .. });
}
