//! Acquire: absent, leased, completed and failed records.

use std::time::Duration;

use idempotent_sqs::idempotency::{Acquire, Settled, Store, StoredResult};
use tokio::time::sleep;

use super::support::{
    CLEAN, LONG, PARKED, PERMANENT, SHORT, UNCERTAIN, acquired, assert_answer, assert_settled, attempt,
    by_another_message, taken_over, with,
};

/// An acquire without a record gets a claim for attempt 1, whose fence is at least the clock in µs.
pub async fn an_absent_record_is_acquired(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_eq!((claim.key().as_str(), claim.attempt()), ("pay_1", 1));
    assert!(claim.fence().0 > 1_700_000_000_000_000, "a fence starts at the clock in µs: {}", claim.fence());
}

/// An acquire during another owner's lease is a conflict with the remaining time of the lease.
pub async fn a_live_lease_is_a_conflict_with_its_remaining_time(store: &impl Store) {
    acquired(store, attempt(LONG)).await;
    match store.acquire(by_another_message(LONG)).await.unwrap() {
        Acquire::Conflict { lease_remains } => {
            assert!(lease_remains <= LONG && lease_remains + Duration::from_secs(10) > LONG, "{lease_remains:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// An acquire after the end of a lease is a recovery with a higher fence.
pub async fn an_ended_lease_is_taken_over_as_a_recovery_under_a_higher_fence(store: &impl Store) {
    let first = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let second = taken_over(store, attempt(LONG)).await;
    assert!(second.fence() > first.fence());
    assert_eq!(second.attempt(), 2);
}

/// An acquire that is sent twice by its owner gets the same claim and counts once.
pub async fn a_repeated_acquire_of_the_same_owner_gets_the_same_answer(store: &impl Store) {
    let attempt = attempt(LONG);
    let first = acquired(store, attempt.clone()).await;
    let again = acquired(store, attempt).await;
    assert_eq!((again.fence(), again.attempt()), (first.fence(), first.attempt()));
}

/// An acquire of a recovery that is sent twice by its owner gets the same claim and counts once.
pub async fn a_repeated_acquire_of_a_recovery_gets_the_same_answer(store: &impl Store) {
    acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let attempt = attempt(LONG);
    let first = taken_over(store, attempt.clone()).await;
    let again = taken_over(store, attempt).await;
    assert_eq!((again.fence(), again.attempt()), (first.fence(), 2));
}

/// An acquire of a completed record is a duplicate with the fence, the attempts and the result.
pub async fn a_completed_record_is_a_duplicate_with_its_result(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(b"receipt 7")), Settled::Recorded).await;
    match store.acquire(by_another_message(LONG)).await.unwrap() {
        Acquire::Duplicate { fence, attempts, result } => {
            assert_eq!(
                (fence, attempts, result.as_deref()),
                (claim.fence(), 1, StoredResult::Inline(b"receipt 7".as_slice()))
            );
        }
        other => panic!("{other:?}"),
    }
}

/// An acquire after a clean failure is the next attempt, not a recovery, with a higher fence.
pub async fn a_clean_failure_is_acquired_again_and_keeps_its_attempts(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let second = acquired(store, attempt(LONG)).await;
    assert_eq!(second.attempt(), 2);
    assert!(second.fence() > first.fence());
}

/// An acquire after an uncertain failure is a recovery with a higher fence.
pub async fn an_uncertain_failure_is_acquired_as_a_recovery(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, UNCERTAIN), Settled::Recorded).await;
    let second = taken_over(store, attempt(LONG)).await;
    assert_eq!(second.attempt(), 2);
    assert!(second.fence() > first.fence());
}

/// After a permanent failure an acquire fails for the same message and succeeds for another.
pub async fn a_permanent_failure_applies_to_its_message_only(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, PERMANENT), Settled::Recorded).await;
    assert_answer!(store, attempt(LONG), Acquire::Failed);
    let redriven = acquired(store, by_another_message(LONG)).await;
    assert_eq!(redriven.attempt(), 2);
    assert!(redriven.fence() > first.fence());
}

/// After a permanent, uncertain failure an acquire for another message is a recovery.
pub async fn a_parked_failure_is_a_recovery_for_another_message(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, PARKED), Settled::Recorded).await;
    assert_answer!(store, attempt(LONG), Acquire::Failed);
    taken_over(store, by_another_message(LONG)).await;
}

/// An acquire that arrives after its owner has failed is rejected and changes nothing.
pub async fn an_owner_that_failed_cannot_acquire_again(store: &impl Store) {
    let attempt = attempt(LONG);
    let claim = acquired(store, attempt.clone()).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_answer!(store, attempt, Acquire::Failed);
    // It changed nothing: the next attempt finds no lease.
    acquired(store, by_another_message(LONG)).await;
}

/// When attempts are used up an acquire fails, until another message restarts the count at 1.
pub async fn used_up_attempts_fail_until_another_message(store: &impl Store) {
    for number in 1..=3 {
        let claim = acquired(store, with!(attempt(LONG), max_attempts = 3)).await;
        assert_eq!(claim.attempt(), number);
        assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    }
    assert_answer!(store, with!(attempt(LONG), max_attempts = 3), Acquire::Failed);
    let redriven = acquired(store, with!(by_another_message(LONG), max_attempts = 3)).await;
    assert_eq!(redriven.attempt(), 1);
}

/// A permanent failure and used-up attempts apply for the failed retention. Then the same message runs again, as a
/// recovery if an attempt may have taken effect.
pub async fn a_spent_failure_applies_for_its_failed_retention(store: &impl Store) {
    let spent = |failed_retention| with!(attempt(LONG), max_attempts = 1, failed_retention = failed_retention);
    let claim = acquired(store, spent(LONG)).await;
    assert_settled(store.fail(&claim, PARKED), Settled::Recorded).await;
    assert_answer!(store, spent(LONG), Acquire::Failed);
    // Longer than `LONG` is if its milliseconds are taken for microseconds.
    sleep(LONG / 500).await;
    assert_answer!(store, spent(LONG), Acquire::Failed);
    let recovery = taken_over(store, spent(SHORT)).await;
    assert_eq!(recovery.attempt(), 1);
    assert!(recovery.fence() > claim.fence());
}

/// Attempts whose lease ended without a settlement are counted.
pub async fn attempts_that_never_settled_are_counted(store: &impl Store) {
    acquired(store, with!(attempt(SHORT), max_attempts = 2)).await;
    sleep(SHORT).await;
    taken_over(store, with!(attempt(SHORT), max_attempts = 2)).await;
    sleep(SHORT).await;
    assert_answer!(store, with!(attempt(LONG), max_attempts = 2), Acquire::Failed);
    let redriven = taken_over(store, with!(by_another_message(LONG), max_attempts = 2)).await;
    assert_eq!(redriven.attempt(), 1);
}

/// A conflict has the time that remains of the lease, not its whole time.
pub async fn a_conflict_has_the_time_that_remains_of_the_lease(store: &impl Store) {
    acquired(store, attempt(LONG)).await;
    sleep(SHORT * 5).await;
    match store.acquire(attempt(LONG)).await.unwrap() {
        // Some stores have whole milliseconds.
        Acquire::Conflict { lease_remains } => assert!(lease_remains + SHORT * 4 < LONG, "{lease_remains:?}"),
        other => panic!("{other:?}"),
    }
}

/// After a takeover, used-up attempts apply to the message that took over, for the failed retention.
pub async fn used_up_attempts_of_an_ended_lease_apply_to_its_message_for_the_failed_retention(store: &impl Store) {
    let last = |lease| with!(attempt(lease), max_attempts = 2, failed_retention = LONG);
    acquired(store, with!(last(SHORT), message = by_another_message(SHORT).message)).await;
    sleep(SHORT).await;
    taken_over(store, last(SHORT)).await;
    sleep(SHORT).await;
    assert_answer!(store, last(LONG), Acquire::Failed);
    let recovery = taken_over(store, with!(last(SHORT), failed_retention = SHORT)).await;
    assert_eq!(recovery.attempt(), 1);
    // The message of the first attempt is another one.
    sleep(SHORT).await;
    taken_over(store, last(SHORT)).await;
    sleep(SHORT).await;
    assert_answer!(store, last(LONG), Acquire::Failed);
    taken_over(store, with!(last(LONG), message = by_another_message(LONG).message)).await;
}

/// More attempts than the maximum, which may have been lowered since, are used up too.
pub async fn attempts_above_a_lower_maximum_are_used_up(store: &impl Store) {
    for _ in 0..3 {
        let claim = acquired(store, attempt(LONG)).await;
        assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    }
    assert_answer!(store, with!(attempt(LONG), max_attempts = 2), Acquire::Failed);
    assert_eq!(acquired(store, with!(by_another_message(LONG), max_attempts = 2)).await.attempt(), 1);
}

/// The failed retention counts from the acquire of the attempt that failed, not from its failure.
pub async fn a_failed_retention_counts_from_the_acquire(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    sleep(SHORT * 2).await;
    assert_settled(store.fail(&claim, PERMANENT), Settled::Recorded).await;
    acquired(store, with!(attempt(LONG), failed_retention = SHORT * 2)).await;
}
