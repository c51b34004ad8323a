//! One suite for every store: each row of the state machine, and each property that holds for all.
//!
//! A row is a function of any store; `conformance!` makes it a test on each of them.

use harness::with;
use std::time::Duration;

use futures_util::future::join_all;
use idempotent_sqs::idempotency::{
    Acquire, Attempt, Claim, Failure, Fingerprint, Key, MessageTag, Owner, Settled, State, Store, StoredResult,
};
use idempotent_sqs::stores::MemoryStore;
use tokio::time::sleep;

use harness::PATIENCE;
use harness::redis::{Redis, store, store_that_waits};

const CLEAN: Failure = Failure { uncertain: false, permanent: false };
const UNCERTAIN: Failure = Failure { uncertain: true, permanent: false };
const PERMANENT: Failure = Failure { uncertain: false, permanent: true };
const PARKED: Failure = Failure { uncertain: true, permanent: true };

/// A lease that no test outlives.
const LONG: Duration = Duration::from_secs(60);

/// A lease that ends while a test waits for it, and a retention that does.
const SHORT: Duration = Duration::from_millis(20);

macro_rules! conformance {
    ($($row:ident)*) => {
        mod in_memory {
            $(#[tokio::test] async fn $row() { super::$row(&super::MemoryStore::default()).await })*
        }
        mod on_redis {
            $(#[tokio::test] async fn $row() {
                let redis = super::Redis::start().await;
                super::$row(&redis.store()).await;
            })*
        }
        /// All rows on one cluster of three masters: a cluster takes seconds to form.
        #[tokio::test]
        async fn every_row_holds_on_a_cluster_of_three_masters() {
            let cluster = tokio::task::spawn_blocking(|| {
                redis_test::cluster::RedisCluster::new(redis_test::cluster::RedisClusterConfiguration::default())
            })
            .await
            .unwrap();
            let url = format!("redis://{}", cluster.servers[0].addr);
            $(
                eprintln!("{}", stringify!($row));
                // A busy machine is no fault of the store.
                $row(&store_that_waits(&url, true, PATIENCE)).await;
            )*
            the_largest_batch_has_all_its_answers_in_time(&store(&url, true)).await;
        }
    };
}

conformance! {
    an_absent_record_is_acquired
    a_live_lease_is_a_conflict_and_says_how_long_it_lasts
    an_ended_lease_is_taken_over_as_a_recovery_under_a_higher_fence
    the_same_owner_asking_again_hears_the_same
    the_same_owner_asking_again_hears_the_same_of_a_recovery
    a_completed_record_is_a_duplicate_with_its_result
    an_empty_result_one_in_an_object_and_one_not_kept_are_told_apart
    a_result_may_hold_any_bytes
    completed_stays_whatever_a_late_owner_does
    completing_twice_is_completing_once
    failing_twice_is_failing_once
    a_clean_failure_is_acquired_again_with_its_attempts_kept
    an_uncertain_failure_is_acquired_as_a_recovery
    a_permanent_failure_holds_for_its_message_and_not_for_another
    a_parked_failure_is_a_recovery_for_another_message
    an_owner_that_has_failed_cannot_acquire_again_however_late
    attempts_used_up_are_a_failure_until_another_message_comes
    attempts_count_runs_that_died_without_settling
    another_payload_is_a_conflict_during_a_lease_and_a_mismatch_after_it
    another_payload_is_a_mismatch_of_a_completed_record
    another_payload_may_go_where_nothing_took_effect
    another_payload_is_a_mismatch_where_something_may_have_taken_effect
    no_fingerprint_agrees_with_any
    no_fingerprint_erases_the_stored_one
    a_late_completion_replaces_a_failure_of_the_same_payload
    a_late_completion_leaves_a_failure_of_another_payload_alone
    a_late_uncertain_failure_marks_a_later_failure_of_the_same_payload
    a_released_attempt_is_not_counted_and_leaves_no_doubt
    a_release_keeps_the_doubt_of_earlier_attempts
    a_release_of_a_takeover_leaves_a_recovery
    any_number_of_releases_use_up_no_attempts
    releasing_twice_is_releasing_once
    a_release_without_an_acquire_changes_nothing
    a_release_of_a_recovery_whose_record_was_lost_keeps_the_doubt
    a_release_of_a_recovery_marks_a_later_failure_of_the_same_payload
    a_release_of_a_first_attempt_whose_record_was_lost_leaves_it_to_its_owner
    a_release_of_what_another_owner_holds_or_has_settled_is_lost_and_changes_nothing
    an_owner_that_has_released_cannot_acquire_again
    a_late_completion_of_a_taken_over_claim_is_lost_and_changes_nothing
    a_late_failure_of_a_taken_over_claim_is_lost_and_changes_nothing
    a_late_failure_of_a_completed_claim_is_lost_and_changes_nothing
    completing_a_record_that_was_lost_heals_it
    failing_a_record_that_was_lost_heals_it
    a_claim_outlives_its_lease_while_nobody_takes_it_over
    a_record_ends_with_its_retention
    a_record_lives_no_shorter_than_its_lease
    a_lease_that_is_longer_than_any_is_shortened
    keys_of_every_kind_are_records_of_their_own
    of_many_at_once_one_acquires
    many_keys_at_once_are_each_judged_alone
}

/// No batch of SQS is larger; on a cluster each of its records is a call of its own.
async fn the_largest_batch_has_all_its_answers_in_time(store: &impl Store) {
    let attempts = (0..10_000).map(|n| with!(attempt(LONG), key = key(&format!("order-{n}"))));
    let answers = join_all(attempts.map(|attempt| store.acquire(attempt))).await;
    let unanswered = answers.iter().filter(|answer| !matches!(answer, Ok(Acquire::Acquired(_)))).count();
    assert_eq!(unanswered, 0);
}

fn key(key: &str) -> Key {
    Key::new(key).unwrap()
}

fn attempt(lease: Duration) -> Attempt {
    Attempt {
        key: key("pay_1"),
        owner: Owner::random(),
        fingerprint: Fingerprint::of(b"12.50 EUR"),
        message: MessageTag::of("first"),
        lease,
        longest_lease: Duration::from_secs(901),
        retention: LONG,
        max_attempts: 5,
    }
}

fn by_another_message(lease: Duration) -> Attempt {
    with!(attempt(lease), message = MessageTag::of("second"))
}

fn with_another_payload(lease: Duration) -> Attempt {
    with!(attempt(lease), fingerprint = Fingerprint::of(b"99.00 EUR"))
}

async fn acquired(store: &impl Store, attempt: Attempt) -> Claim {
    match store.acquire(attempt).await.unwrap() {
        Acquire::Acquired(claim) => {
            assert!(!claim.is_recovery());
            claim
        }
        other => panic!("not acquired: {other:?}"),
    }
}

async fn taken_over(store: &impl Store, attempt: Attempt) -> Claim {
    match store.acquire(attempt).await.unwrap() {
        Acquire::AcquiredStale(claim) => {
            assert!(claim.is_recovery());
            claim
        }
        other => panic!("not taken over: {other:?}"),
    }
}

macro_rules! assert_answer {
    ($store:expr, $attempt:expr, $answer:pat) => {
        let answer = $store.acquire($attempt).await.unwrap();
        assert!(matches!(answer, $answer), "{answer:?}");
    };
}

async fn assert_settled(
    settled: impl Future<Output = Result<Settled, idempotent_sqs::idempotency::StoreError>>,
    as_: Settled,
) {
    assert_eq!(settled.await.unwrap(), as_);
}

async fn an_absent_record_is_acquired(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_eq!((claim.key().as_str(), claim.attempt()), ("pay_1", 1));
    assert!(claim.fence().0 > 1_700_000_000_000_000, "a fence starts at the clock in µs: {}", claim.fence());
}

async fn a_live_lease_is_a_conflict_and_says_how_long_it_lasts(store: &impl Store) {
    acquired(store, attempt(LONG)).await;
    match store.acquire(by_another_message(LONG)).await.unwrap() {
        Acquire::Conflict { lease_remains } => {
            assert!(lease_remains <= LONG && lease_remains > LONG - Duration::from_secs(10), "{lease_remains:?}");
        }
        other => panic!("{other:?}"),
    }
}

async fn an_ended_lease_is_taken_over_as_a_recovery_under_a_higher_fence(store: &impl Store) {
    let first = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let second = taken_over(store, attempt(LONG)).await;
    assert!(second.fence() > first.fence());
    assert_eq!(second.attempt(), 2);
}

async fn the_same_owner_asking_again_hears_the_same(store: &impl Store) {
    let attempt = attempt(LONG);
    let first = acquired(store, attempt.clone()).await;
    let again = acquired(store, attempt).await;
    assert_eq!((again.fence(), again.attempt()), (first.fence(), first.attempt()));
}

async fn the_same_owner_asking_again_hears_the_same_of_a_recovery(store: &impl Store) {
    acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let attempt = attempt(LONG);
    let first = taken_over(store, attempt.clone()).await;
    let again = taken_over(store, attempt).await;
    assert_eq!((again.fence(), again.attempt()), (first.fence(), 2));
}

async fn a_completed_record_is_a_duplicate_with_its_result(store: &impl Store) {
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

async fn an_empty_result_one_in_an_object_and_one_not_kept_are_told_apart(store: &impl Store) {
    let place = b"s3://results/payments/pay_1/1".as_slice();
    let results = [
        StoredResult::Inline(b"".as_slice()),
        StoredResult::Inline(place),
        StoredResult::Object(place),
        StoredResult::NotKept,
    ];
    for (id, result) in ["empty", "like a place", "in an object", "not kept"].into_iter().zip(results) {
        let attempt = with!(attempt(LONG), key = key(id));
        let claim = acquired(store, attempt.clone()).await;
        assert_settled(store.complete(&claim, result), Settled::Recorded).await;
        match store.acquire(attempt).await.unwrap() {
            Acquire::Duplicate { result: kept, .. } => assert_eq!(kept.as_deref(), result),
            other => panic!("{other:?}"),
        }
    }
}

async fn a_result_may_hold_any_bytes(store: &impl Store) {
    let result: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(&result)), Settled::Recorded).await;
    match store.acquire(attempt(LONG)).await.unwrap() {
        Acquire::Duplicate { result: kept, .. } => assert!(kept == StoredResult::Inline(result)),
        other => panic!("{other:?}"),
    }
}

async fn completed_stays_whatever_a_late_owner_does(store: &impl Store) {
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

async fn completing_twice_is_completing_once(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(b"once")), Settled::Recorded).await;
    assert_settled(store.complete(&claim, StoredResult::Inline(b"once")), Settled::Recorded).await;
}

async fn failing_twice_is_failing_once(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 2);
}

async fn a_clean_failure_is_acquired_again_with_its_attempts_kept(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let second = acquired(store, attempt(LONG)).await;
    assert_eq!(second.attempt(), 2);
    assert!(second.fence() > first.fence());
}

async fn an_uncertain_failure_is_acquired_as_a_recovery(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, UNCERTAIN), Settled::Recorded).await;
    let second = taken_over(store, attempt(LONG)).await;
    assert_eq!(second.attempt(), 2);
    assert!(second.fence() > first.fence());
}

async fn a_permanent_failure_holds_for_its_message_and_not_for_another(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, PERMANENT), Settled::Recorded).await;
    assert_answer!(store, attempt(LONG), Acquire::Failed);
    let redriven = acquired(store, by_another_message(LONG)).await;
    assert_eq!(redriven.attempt(), 2);
    assert!(redriven.fence() > first.fence());
}

async fn a_parked_failure_is_a_recovery_for_another_message(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, PARKED), Settled::Recorded).await;
    assert_answer!(store, attempt(LONG), Acquire::Failed);
    taken_over(store, by_another_message(LONG)).await;
}

async fn an_owner_that_has_failed_cannot_acquire_again_however_late(store: &impl Store) {
    let attempt = attempt(LONG);
    let claim = acquired(store, attempt.clone()).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_answer!(store, attempt, Acquire::Failed);
    // It changed nothing: the next attempt finds no lease.
    acquired(store, by_another_message(LONG)).await;
}

async fn attempts_used_up_are_a_failure_until_another_message_comes(store: &impl Store) {
    for number in 1..=3 {
        let claim = acquired(store, with!(attempt(LONG), max_attempts = 3)).await;
        assert_eq!(claim.attempt(), number);
        assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    }
    assert_answer!(store, with!(attempt(LONG), max_attempts = 3), Acquire::Failed);
    let redriven = acquired(store, with!(by_another_message(LONG), max_attempts = 3)).await;
    assert_eq!(redriven.attempt(), 1);
}

async fn attempts_count_runs_that_died_without_settling(store: &impl Store) {
    acquired(store, with!(attempt(SHORT), max_attempts = 2)).await;
    sleep(SHORT).await;
    taken_over(store, with!(attempt(SHORT), max_attempts = 2)).await;
    sleep(SHORT).await;
    assert_answer!(store, with!(attempt(LONG), max_attempts = 2), Acquire::Failed);
    let redriven = taken_over(store, with!(by_another_message(LONG), max_attempts = 2)).await;
    assert_eq!(redriven.attempt(), 1);
}

async fn another_payload_is_a_conflict_during_a_lease_and_a_mismatch_after_it(store: &impl Store) {
    let claim = acquired(store, attempt(SHORT * 10)).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Conflict { .. });
    sleep(SHORT * 10).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
}

async fn another_payload_is_a_mismatch_of_a_completed_record(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

async fn another_payload_may_go_where_nothing_took_effect(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    let corrected = acquired(store, with_another_payload(LONG)).await;
    assert_eq!(corrected.attempt(), 2);
    assert_answer!(store, attempt(LONG), Acquire::Conflict { .. });
    assert_settled(store.fail(&corrected, PERMANENT), Settled::Recorded).await;
    acquired(store, by_another_message(LONG)).await;
}

async fn another_payload_is_a_mismatch_where_something_may_have_taken_effect(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&claim, UNCERTAIN), Settled::Recorded).await;
    assert_answer!(store, with_another_payload(LONG), Acquire::Mismatch);
    taken_over(store, attempt(LONG)).await;
}

async fn no_fingerprint_agrees_with_any(store: &impl Store) {
    let none = || with!(attempt(LONG), fingerprint = Fingerprint::NONE);
    let claim = acquired(store, attempt(LONG)).await;
    assert_answer!(store, none(), Acquire::Conflict { .. });
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, none(), Acquire::Duplicate { .. });

    let claim = acquired(store, with!(none(), key = key("pay_2"))).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, with!(attempt(LONG), key = key("pay_2")), Acquire::Duplicate { .. });
}

async fn no_fingerprint_erases_the_stored_one(store: &impl Store) {
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

/// The claim of an owner whose lease ended, and that of the owner which took over.
async fn overtaken(store: &impl Store) -> (Claim, Claim) {
    let late = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, attempt(LONG)).await;
    (late, claim)
}

async fn a_late_completion_replaces_a_failure_of_the_same_payload(store: &impl Store) {
    for failure in [CLEAN, UNCERTAIN, PERMANENT, PARKED] {
        let key = || key(&format!("{failure:?}"));
        let late = acquired(store, with!(attempt(SHORT), key = key())).await;
        sleep(SHORT).await;
        let claim = taken_over(store, with!(attempt(LONG), key = key())).await;
        assert_settled(store.fail(&claim, failure), Settled::Recorded).await;
        assert_settled(store.complete(&late, StoredResult::Inline(b"done")), Settled::Recorded).await;
        match store.acquire(with!(attempt(LONG), key = key())).await.unwrap() {
            Acquire::Duplicate { fence, result, .. } => {
                assert_eq!(result.as_deref(), StoredResult::Inline(b"done".as_slice()));
                assert!(fence >= claim.fence(), "a fence never falls");
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn a_late_completion_leaves_a_failure_of_another_payload_alone(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let corrected = acquired(store, with_another_payload(LONG)).await;
    assert_settled(store.fail(&corrected, CLEAN), Settled::Recorded).await;
    assert_settled(store.complete(&first, StoredResult::NotKept), Settled::Lost(State::Failed)).await;
    assert_eq!(acquired(store, with_another_payload(LONG)).await.attempt(), 3);
}

async fn a_late_uncertain_failure_marks_a_later_failure_of_the_same_payload(store: &impl Store) {
    let (late, claim) = overtaken(store).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_settled(store.fail(&late, CLEAN), Settled::Lost(State::Failed)).await;
    let third = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&third, CLEAN), Settled::Recorded).await;
    assert_settled(store.fail(&late, UNCERTAIN), Settled::Lost(State::Failed)).await;
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 4);
}

async fn a_released_attempt_is_not_counted_and_leaves_no_doubt(store: &impl Store) {
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

async fn a_release_keeps_the_doubt_of_earlier_attempts(store: &impl Store) {
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

async fn a_release_of_a_takeover_leaves_a_recovery(store: &impl Store) {
    acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let released = attempt(LONG);
    taken_over(store, released.clone()).await;
    assert_settled(store.release(&released, None), Settled::Recorded).await;
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 2);
}

async fn any_number_of_releases_use_up_no_attempts(store: &impl Store) {
    for _ in 0..5 {
        let released = with!(attempt(LONG), max_attempts = 2);
        assert_eq!(acquired(store, released.clone()).await.attempt(), 1);
        assert_settled(store.release(&released, None), Settled::Recorded).await;
    }
}

async fn releasing_twice_is_releasing_once(store: &impl Store) {
    let first = acquired(store, attempt(LONG)).await;
    assert_settled(store.fail(&first, CLEAN), Settled::Recorded).await;
    let released = attempt(LONG);
    acquired(store, released.clone()).await;
    for _ in 0..3 {
        assert_settled(store.release(&released, None), Settled::Recorded).await;
    }
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 2);
}

async fn a_release_without_an_acquire_changes_nothing(store: &impl Store) {
    assert_settled(store.release(&attempt(LONG), None), Settled::Recorded).await;
    let next = acquired(store, attempt(LONG)).await;
    assert_eq!(next.attempt(), 1);
}

async fn a_release_of_a_recovery_whose_record_was_lost_keeps_the_doubt(store: &impl Store) {
    let first = acquired(store, with!(attempt(SHORT), retention = SHORT)).await;
    assert_settled(store.fail(&first, UNCERTAIN), Settled::Recorded).await;
    let recovery = taken_over(store, with!(attempt(SHORT), retention = SHORT)).await;
    sleep(SHORT * 2).await;
    let asked = with!(recovery.asked().clone(), retention = LONG);
    assert_settled(store.release(&asked, Some(&recovery)), Settled::Recorded).await;
    assert_eq!(taken_over(store, attempt(LONG)).await.attempt(), 2);
}

async fn a_release_of_a_recovery_marks_a_later_failure_of_the_same_payload(store: &impl Store) {
    let (_late, recovery) = overtaken(store).await;
    // As after a loss: another attempt has the record, and fails.
    let other = with!(recovery.asked().clone(), owner = Owner::random());
    assert_settled(store.fail(&recovery, CLEAN), Settled::Recorded).await;
    let failed = acquired(store, other).await;
    assert_settled(store.fail(&failed, CLEAN), Settled::Recorded).await;
    assert_settled(store.release(recovery.asked(), Some(&recovery)), Settled::Lost(State::Failed)).await;
    taken_over(store, attempt(LONG)).await;
}

async fn a_release_of_a_first_attempt_whose_record_was_lost_leaves_it_to_its_owner(store: &impl Store) {
    let owner = lost(store).await;
    assert_settled(store.release(&attempt(LONG), None), Settled::Recorded).await;
    assert_settled(store.complete(&owner, StoredResult::Inline(b"done")), Settled::Recorded).await;
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

async fn a_release_of_what_another_owner_holds_or_has_settled_is_lost_and_changes_nothing(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.release(&attempt(LONG), None), Settled::Lost(State::Processing)).await;
    assert_answer!(store, attempt(LONG), Acquire::Conflict { .. });
    assert_settled(store.fail(&claim, UNCERTAIN), Settled::Recorded).await;
    assert_settled(store.release(&attempt(LONG), None), Settled::Lost(State::Failed)).await;
    let claim = taken_over(store, attempt(LONG)).await;
    assert_eq!(claim.attempt(), 2);
    assert_settled(store.complete(&claim, StoredResult::Inline(b"done")), Settled::Recorded).await;
    for attempt in [attempt(LONG), claim.asked().clone()] {
        assert_settled(store.release(&attempt, None), Settled::Lost(State::Completed)).await;
    }
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

async fn an_owner_that_has_released_cannot_acquire_again(store: &impl Store) {
    let released = attempt(LONG);
    acquired(store, released.clone()).await;
    assert_settled(store.release(&released, None), Settled::Recorded).await;
    assert_answer!(store, released, Acquire::Failed);
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 1);
}

async fn a_late_completion_of_a_taken_over_claim_is_lost_and_changes_nothing(store: &impl Store) {
    let late = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, attempt(LONG)).await;
    assert_settled(store.complete(&late, StoredResult::Inline(b"late")), Settled::Lost(State::Processing)).await;
    assert_answer!(store, by_another_message(LONG), Acquire::Conflict { .. });
    assert_settled(store.fail(&claim, CLEAN), Settled::Recorded).await;
    assert_eq!(acquired(store, attempt(LONG)).await.attempt(), 3);
}

async fn a_late_failure_of_a_taken_over_claim_is_lost_and_changes_nothing(store: &impl Store) {
    let late = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, attempt(LONG)).await;
    assert_settled(store.fail(&late, CLEAN), Settled::Lost(State::Processing)).await;
    assert_answer!(store, by_another_message(LONG), Acquire::Conflict { .. });
    assert_settled(store.fail(&claim, UNCERTAIN), Settled::Recorded).await;
    assert_settled(store.fail(&late, CLEAN), Settled::Lost(State::Failed)).await;
    taken_over(store, attempt(LONG)).await;
}

async fn a_late_failure_of_a_completed_claim_is_lost_and_changes_nothing(store: &impl Store) {
    let claim = acquired(store, attempt(LONG)).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_settled(store.fail(&claim, CLEAN), Settled::Lost(State::Completed)).await;
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

async fn completing_a_record_that_was_lost_heals_it(store: &impl Store) {
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

async fn failing_a_record_that_was_lost_heals_it(store: &impl Store) {
    let claim = lost(store).await;
    assert_settled(store.fail(&claim, UNCERTAIN), Settled::Recorded).await;
    let recovery = taken_over(store, attempt(LONG)).await;
    assert_eq!(recovery.attempt(), 2);
    assert!(recovery.fence() > claim.fence());
}

/// A claim whose record has ended before it is settled, as eviction or a failover would do.
async fn lost(store: &impl Store) -> Claim {
    let claim = acquired(store, with!(attempt(SHORT), retention = SHORT)).await;
    sleep(SHORT * 2).await;
    // What settles it keeps it for longer again.
    let asked = claim.asked().clone();
    match Acquire::claimed(with!(asked, retention = LONG), claim.fence(), claim.attempt(), false) {
        Acquire::Acquired(claim) => claim,
        other => panic!("{other:?}"),
    }
}

async fn a_claim_outlives_its_lease_while_nobody_takes_it_over(store: &impl Store) {
    let claim = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
}

async fn a_record_ends_with_its_retention(store: &impl Store) {
    let brief = || with!(attempt(SHORT), retention = SHORT);
    let first = acquired(store, brief()).await;
    assert_settled(store.complete(&first, StoredResult::NotKept), Settled::Recorded).await;
    sleep(SHORT * 2).await;
    let second = acquired(store, brief()).await;
    assert_eq!(second.attempt(), 1);
    assert!(second.fence() > first.fence(), "a fence grows over the loss of its record");
}

async fn a_record_lives_no_shorter_than_its_lease(store: &impl Store) {
    let claim = acquired(store, with!(attempt(LONG), retention = Duration::from_millis(1))).await;
    sleep(SHORT).await;
    assert_answer!(store, attempt(LONG), Acquire::Conflict { .. });
    assert_settled(store.complete(&claim, StoredResult::NotKept), Settled::Recorded).await;
    assert_answer!(store, attempt(LONG), Acquire::Duplicate { .. });
}

/// As one that was taken while the store's clock ran ahead.
async fn a_lease_that_is_longer_than_any_is_shortened(store: &impl Store) {
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

async fn keys_of_every_kind_are_records_of_their_own(store: &impl Store) {
    let long = "k".repeat(1024);
    let longer = "k".repeat(1025);
    let kinds = [
        "a",
        "a b",
        "{a}",
        "{}",
        "a\nb",
        "a\0b",
        "a:b",
        "größe",
        "\u{1F4B6}",
        &long,
        &longer,
        &long[..200],
        &long[..201],
    ];
    for kind in kinds {
        let claim = acquired(store, with!(attempt(LONG), key = key(kind))).await;
        assert_settled(store.complete(&claim, StoredResult::Inline(kind.as_bytes())), Settled::Recorded).await;
    }
    for kind in kinds {
        match store.acquire(with!(attempt(LONG), key = key(kind))).await.unwrap() {
            Acquire::Duplicate { result, .. } => assert_eq!(result.as_deref(), StoredResult::Inline(kind.as_bytes())),
            other => panic!("{kind:?}: {other:?}"),
        }
    }
}

async fn of_many_at_once_one_acquires(store: &impl Store) {
    let answers = futures_util::future::join_all((0..100).map(|_| store.acquire(attempt(LONG)))).await;
    let acquired = answers.iter().filter(|answer| matches!(answer, Ok(Acquire::Acquired(_)))).count();
    let conflicts = answers.iter().filter(|answer| matches!(answer, Ok(Acquire::Conflict { .. }))).count();
    assert_eq!((acquired, conflicts), (1, 99));
}

async fn many_keys_at_once_are_each_judged_alone(store: &impl Store) {
    let attempt = |n: u32| with!(attempt(LONG), key = key(&format!("pay_{n}")));
    for n in (0..300).step_by(3) {
        acquired(store, attempt(n)).await;
    }
    let answers = futures_util::future::join_all((0..300).map(|n| store.acquire(attempt(n)))).await;
    for (n, answer) in answers.into_iter().enumerate() {
        match answer.unwrap() {
            Acquire::Conflict { .. } => assert_eq!(n % 3, 0),
            Acquire::Acquired(claim) => {
                assert_ne!(n % 3, 0);
                assert_eq!(claim.key().as_str(), format!("pay_{n}"));
            }
            other => panic!("{other:?}"),
        }
    }
}
