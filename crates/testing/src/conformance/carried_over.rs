//! What a later claim and a restored record carry over: payload, message, attempts, retention.

use std::time::Duration;

use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Fingerprint, MessageIdHash, Settled, Store, StoredResult,
};
use tokio::time::sleep;

use super::support::{
    CLEAN, LONG, PERMANENT, SHORT, UNCERTAIN, acquired, assert_answer, assert_settled, attempt, expired, lost,
    taken_over, with,
};

/// A retention that ends during a test, and long enough for the calls before its end on a slow machine.
const BRIEF: Duration = Duration::from_millis(200);

/// An attempt with payload A and the first message.
fn payload_a(lease: Duration) -> AcquireRequest {
    attempt(lease)
}

/// An attempt with payload B and a second message.
fn payload_b(lease: Duration) -> AcquireRequest {
    with!(attempt(lease), fingerprint = Fingerprint::of(b"99.00 EUR"), message = MessageIdHash::of("second"))
}

/// The second attempt, whose record was lost.
async fn lost_second_attempt(store: &impl Store) -> Claim {
    let first = acquired(store, payload_a(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    expired(acquired(store, with!(payload_a(SHORT), retention = SHORT)).await, LONG).await
}

/// An acquire that the same owner repeats after its lease returns the same claim, not a recovery.
pub async fn a_repeated_acquire_after_the_lease_gets_the_same_answer(store: &impl Store) {
    let request = payload_a(SHORT);
    let first = acquired(store, request.clone()).await;
    sleep(SHORT * 2).await;
    let again = acquired(store, request).await;
    assert_eq!((again.fence(), again.attempt()), (first.fence(), 1));
}

/// An acquire after an ended lease restarts the retention.
pub async fn a_takeover_renews_the_retention(store: &impl Store) {
    acquired(store, with!(payload_a(SHORT), retention = BRIEF)).await;
    sleep(SHORT * 2).await;
    taken_over(store, payload_a(LONG)).await;
    sleep(BRIEF).await;
    assert_answer!(store, payload_a(LONG), Acquire::Conflict { .. });
}

/// An acquire after a failure restarts the retention.
pub async fn an_acquire_after_a_failure_renews_the_retention(store: &impl Store) {
    let first = acquired(store, with!(payload_a(SHORT), retention = BRIEF)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    acquired(store, payload_a(LONG)).await;
    sleep(BRIEF + SHORT).await;
    assert_answer!(store, payload_a(LONG), Acquire::Conflict { .. });
}

/// After another message made the key run again, a permanent failure applies to that message.
pub async fn a_permanent_failure_of_a_second_message_applies_to_it(store: &impl Store) {
    for message in ["first", "second"] {
        let request = || with!(payload_a(LONG), message = MessageIdHash::of(message));
        let claim = acquired(store, request()).await;
        assert_settled(store.fail(&claim, PERMANENT), Settled::Recorded).await;
        assert_answer!(store, request(), Acquire::Failed);
    }
}

/// The payload that runs after a clean failure of another one becomes that of the record when it completes.
pub async fn a_payload_that_completes_after_a_failed_one_replaces_it(store: &impl Store) {
    let first = acquired(store, payload_a(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let second = acquired(store, payload_b(LONG)).await;
    assert_settled(store.complete(&second, StoredResult::Inline(b"result")), Settled::Recorded).await;
    assert_answer!(store, payload_a(LONG), Acquire::Mismatch);
    assert_answer!(store, payload_b(LONG), Acquire::Duplicate { .. });
}

/// The payload that runs after a clean failure of another one becomes that of the record when it is acquired.
pub async fn a_payload_that_is_acquired_after_a_failed_one_replaces_it(store: &impl Store) {
    let first = acquired(store, payload_a(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    acquired(store, payload_b(SHORT)).await;
    sleep(SHORT * 2).await;
    assert_answer!(store, payload_a(LONG), Acquire::Mismatch);
    assert_answer!(store, payload_b(LONG), Acquire::AcquiredStale(_));
}

/// A completion of a lost record restores its number of attempts.
pub async fn completing_a_lost_record_restores_its_attempts(store: &impl Store) {
    let second = lost_second_attempt(store).await;
    assert_settled(store.complete(&second, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, payload_a(LONG), Acquire::Duplicate { attempts: 2, .. });
}

/// A failure of a lost record restores its number of attempts.
pub async fn failing_a_lost_record_restores_its_attempts(store: &impl Store) {
    let second = lost_second_attempt(store).await;
    assert_settled(store.fail(&second, CLEAN), Settled::Recorded).await;
    assert_eq!(acquired(store, payload_a(LONG)).await.attempt(), 3);
}

/// A permanent failure of a lost record applies to its message.
pub async fn a_permanent_failure_of_a_lost_record_applies_to_its_message(store: &impl Store) {
    let lost = lost(store).await;
    assert_settled(store.fail(&lost, PERMANENT), Settled::Recorded).await;
    assert_answer!(store, payload_a(LONG), Acquire::Failed);
}

/// An uncertain failure of a lost record restores its payload.
pub async fn an_uncertain_failure_of_a_lost_record_restores_its_payload(store: &impl Store) {
    let lost = lost(store).await;
    assert_settled(store.fail(&lost, UNCERTAIN), Settled::Recorded).await;
    assert_answer!(store, payload_b(LONG), Acquire::Mismatch);
}

/// The release of a recovery whose record was lost restores its payload.
pub async fn a_released_recovery_whose_record_was_lost_restores_its_payload(store: &impl Store) {
    let first = acquired(store, payload_a(LONG)).await;
    assert_settled(store.fail(&first, UNCERTAIN), Settled::Recorded).await;
    let recovery = expired(taken_over(store, with!(payload_a(SHORT), retention = SHORT)).await, LONG).await;
    assert_settled(store.release(recovery.request(), Some(&recovery)), Settled::Recorded).await;
    assert_answer!(store, payload_b(LONG), Acquire::Mismatch);
}
