//! Each fault of the faulty store.

use std::time::Duration;

use harness::with;
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Owner, Settled, State, Store, StoredResult,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tokio::time::{Instant, sleep, timeout};

use super::SECOND;

fn attempt(key: &str) -> AcquireRequest {
    with!(idempotent_sqs_testing::attempt(key), lease = 30 * SECOND)
}

fn faulty() -> FaultyStore<MemoryStore> {
    FaultyStore::new(MemoryStore::default())
}

async fn claim(store: &impl Store) -> Claim {
    match store.acquire(attempt("pay_1")).await.unwrap() {
        Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => claim,
        other => panic!("{other:?}"),
    }
}

/// The answer to another owner, without faults.
async fn answer_to_another(store: &FaultyStore<MemoryStore>) -> Acquire {
    store.inner().acquire(attempt("pay_1")).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_not_executed() {
    let store = faulty();
    store.next(StoreCall::Acquire, Fault::Refused);
    assert!(store.acquire(attempt("pay_1")).await.unwrap_err().is_unavailable());
    assert!(matches!(answer_to_another(&store).await, Acquire::Acquired(_)));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_reply_is_lost_is_executed() {
    let store = faulty();
    store.next(StoreCall::Acquire, Fault::ReplyLost);
    assert!(store.acquire(attempt("pay_1")).await.unwrap_err().is_unavailable());
    assert!(matches!(answer_to_another(&store).await, Acquire::Conflict { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_late_call_is_executed_after_its_caller_timed_out() {
    let store = faulty();
    let claim = claim(&store).await;
    store.next(StoreCall::Settle, Fault::Late(5 * SECOND));
    assert!(timeout(SECOND, store.complete(&claim, StoredResult::Inline(b"receipt"))).await.is_err());
    drop(claim);
    assert!(matches!(answer_to_another(&store).await, Acquire::Conflict { .. }));
    sleep(5 * SECOND).await;
    assert!(
        matches!(answer_to_another(&store).await, Acquire::Duplicate { result: StoredResult::Inline(result), .. } if result == b"receipt")
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_call_answers_a_caller_that_waits() {
    let store = faulty();
    let claim = claim(&store).await;
    store.next(StoreCall::Settle, Fault::Late(5 * SECOND));
    let started = Instant::now();
    let settled = store.fail(&claim, Failure::default()).await.unwrap();
    assert_eq!((settled, started.elapsed()), (Settled::Recorded, 5 * SECOND));
    // A lease counts from the execution, not from the call.
    store.next(StoreCall::Acquire, Fault::Late(5 * SECOND));
    store.acquire(attempt("pay_1")).await.unwrap();
    assert!(
        matches!(answer_to_another(&store).await, Acquire::Conflict { lease_remains } if lease_remains == 30 * SECOND)
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_is_executed_at_once_and_answered_late() {
    let store = faulty();
    store.next(StoreCall::Acquire, Fault::Slow(5 * SECOND));
    let started = Instant::now();
    store.acquire(attempt("pay_1")).await.unwrap();
    assert_eq!(started.elapsed(), 5 * SECOND);
    assert!(
        matches!(answer_to_another(&store).await, Acquire::Conflict { lease_remains } if lease_remains == 25 * SECOND)
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_sent_again_is_executed_twice() {
    // The inner store counts the calls.
    let store = FaultyStore::new(faulty());
    store.next(StoreCall::Acquire, Fault::Twice);
    let claim = claim(&store).await;
    assert_eq!(claim.attempt(), 1, "the same owner gets the same claim");
    store.next(StoreCall::Settle, Fault::Twice);
    assert_eq!(store.complete(&claim, StoredResult::NotKept).await.unwrap(), Settled::Recorded);
    assert_eq!((store.inner().calls(StoreCall::Acquire), store.inner().calls(StoreCall::Settle)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_never_answers_and_a_timeout_fails_the_call() {
    let store = faulty();
    store.always(StoreCall::Acquire, Some(Fault::Unreachable));
    assert!(timeout(3600 * SECOND, store.acquire(attempt("pay_1"))).await.is_err());
    let store = faulty().timeout(Duration::from_millis(500));
    for (fault, executed) in
        [(Fault::Unreachable, false), (Fault::Late(SECOND), true), (Fault::Slow(SECOND), true), (Fault::Refused, false)]
    {
        let attempt = attempt(&format!("{fault:?}"));
        let started = Instant::now();
        store.next(StoreCall::Acquire, fault);
        assert!(store.acquire(attempt.clone()).await.unwrap_err().is_unavailable());
        assert!(started.elapsed() <= Duration::from_millis(500));
        sleep(2 * SECOND).await;
        let other = with!(attempt, owner = Owner::random());
        let answer = store.inner().acquire(other).await.unwrap();
        assert_eq!(matches!(answer, Acquire::Conflict { .. }), executed, "{fault:?}: {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn faults_are_set_by_kind_of_call_and_recorded() {
    let store = faulty();
    store.always(StoreCall::Settle, Some(Fault::Refused));
    store.next(StoreCall::Settle, Fault::ReplyLost);
    let claim = claim(&store).await;
    assert!(store.complete(&claim, StoredResult::NotKept).await.is_err());
    assert!(store.fail(&claim, Failure::default()).await.is_err());
    store.always(StoreCall::Settle, None);
    assert_eq!(store.fail(&claim, Failure::default()).await.unwrap(), Settled::Lost(State::Completed));
    assert_eq!((store.calls(StoreCall::Acquire), store.calls(StoreCall::Settle)), (1, 3));
    assert_eq!(store.faults(), [(StoreCall::Settle, Fault::ReplyLost), (StoreCall::Settle, Fault::Refused)]);
}

#[tokio::test(start_paused = true)]
async fn random_faults_have_their_rates_and_do_not_depend_on_other_keys() {
    let rates = [(Fault::Refused, 0.2), (Fault::ReplyLost, 0.3)];
    let course = |seed, keys: Vec<usize>| async move {
        let store = faulty().random_faults(seed, &rates);
        let mut refused = Vec::new();
        for key in keys {
            if store.acquire(attempt(&format!("{key}"))).await.is_err() {
                refused.push(key);
            }
        }
        let times = |fault| store.faults().iter().filter(|(_, injected)| *injected == fault).count();
        (refused, times(Fault::Refused), times(Fault::ReplyLost))
    };
    let (failed, refused, lost) = course(1, (0..1000).collect()).await;
    assert!((150..250).contains(&refused) && (240..360).contains(&lost), "{refused} {lost}");
    let (mut backwards, ..) = course(1, (0..1000).rev().collect()).await;
    backwards.reverse();
    assert_eq!(failed, backwards);
    assert_ne!(failed, course(2, (0..1000).collect()).await.0);
}
