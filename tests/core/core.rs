//! One delivery of one key: acquire, work, settle.

mod own_record;
mod store_faults;
mod time;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Deadline, Delivery, Failure, Fingerprint, Idempotency, Key, MAX_RESULT_BYTES,
    Outcome, Policy, Recovery, Report, Settled, State, Store, StoreError, StoredResult, Work, WorkError,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tokio::time::{Instant, advance};

/// Time of an invocation, unless a test states another.
const TIME: Duration = Duration::from_secs(30);

fn delivery() -> Delivery {
    Delivery::new(Key::new("pay_1").unwrap())
        .fingerprint(Fingerprint::of(b"12.50 EUR"))
        .message_id("message-1")
        .deadline(Deadline::within(TIME))
}

async fn run<S: Store>(idempotency: &Idempotency<S>, told: &ScriptedWork) -> Report {
    idempotency.run(&delivery(), told, "input").await.unwrap()
}

fn in_memory() -> Idempotency<MemoryStore> {
    Idempotency::new(MemoryStore::default(), Policy::default())
}

fn failure(report: &Report) -> Failure {
    match report.outcome {
        Outcome::Failed { uncertain, .. } => Failure { uncertain, permanent: false },
        Outcome::FailedPermanently { uncertain, .. } => Failure { uncertain, permanent: true },
        ref other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_first_delivery_runs_and_its_duplicates_get_its_result() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::Return(b"receipt")));
    let first = run(&idempotency, &told).await;
    assert!(matches!(&first.outcome, Outcome::Done { result } if result == b"receipt"), "{first:?}");
    assert_eq!((first.attempts, first.recovery), (Some(1), false));
    let again = run(&idempotency, &told).await;
    assert!(matches!(&again.outcome, Outcome::Duplicate { result: Some(result) } if result == b"receipt"), "{again:?}");
    assert_eq!(again.fence, first.fence);
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test]
async fn the_work_gets_key_fence_attempt_and_whether_it_is_a_recovery() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::FailUncertain));
    let reports = [run(&idempotency, &told).await, run(&idempotency, &told).await];
    let runs = told.runs();
    assert_eq!(runs[0].key, "pay_1");
    assert_eq!(runs.iter().map(|run| (run.attempt, run.recovery)).collect::<Vec<_>>(), [(1, false), (2, true)]);
    assert!(runs[0].fence < runs[1].fence);
    assert_eq!(reports[0].fence.unwrap().to_string(), runs[0].fence.to_string());
    assert_eq!(reports.map(|report| report.fence.map(|fence| fence.0)), [Some(runs[0].fence), Some(runs[1].fence)]);
}

#[tokio::test]
async fn a_clean_failure_is_tried_again_and_is_no_recovery() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::FailRetryable));
    assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain: false, permanent: false });
    run(&idempotency, &told).await;
    assert_eq!(told.runs().iter().map(|run| run.recovery).collect::<Vec<_>>(), [false, false]);
}

#[tokio::test]
async fn a_failed_recovery_stays_uncertain() {
    for what in [Action::FailRetryable, Action::FailPermanently] {
        let told = ScriptedWork::new(move |run| if run.attempt == 1 { Action::FailUncertain } else { what });
        let idempotency = in_memory();
        run(&idempotency, &told).await;
        assert!(failure(&run(&idempotency, &told).await).uncertain);
        let redriven = delivery().message_id("message-2");
        assert!(idempotency.run(&redriven, &told, "input").await.unwrap().recovery);
    }
}

#[tokio::test]
async fn a_permanent_failure_does_not_run_again() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::FailPermanently));
    assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain: false, permanent: true });
    assert!(matches!(run(&idempotency, &told).await.outcome, Outcome::FailedBefore));
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test]
async fn the_last_attempt_makes_any_failure_permanent_and_keeps_its_uncertainty() {
    for (what, uncertain) in [(Action::FailRetryable, false), (Action::FailUncertain, true), (Action::Panic, true)] {
        let policy = with!(Policy::default(), max_attempts = 2);
        let (idempotency, told) = (Idempotency::new(MemoryStore::default(), policy), ScriptedWork::always(what));
        assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain, permanent: false });
        assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain, permanent: true });
        assert!(matches!(run(&idempotency, &told).await.outcome, Outcome::FailedBefore));
        assert_eq!(told.runs().len(), 2);
    }
}

#[tokio::test]
async fn a_panic_is_contained_and_uncertain() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::Panic));
    assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain: true, permanent: false });
    assert!(run(&idempotency, &told).await.recovery);
}

#[tokio::test]
async fn a_parked_recovery_does_not_run_and_fails_permanently() {
    let policy = with!(Policy::default(), recovery = Recovery::Park);
    let (idempotency, told) =
        (Idempotency::new(MemoryStore::default(), policy), ScriptedWork::always(Action::FailUncertain));
    run(&idempotency, &told).await;
    for _ in 0..2 {
        assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain: true, permanent: true });
    }
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test]
async fn a_parked_delivery_is_no_attempt_of_the_recovery_that_runs_later() {
    let (store, told) = (MemoryStore::default(), ScriptedWork::always(Action::FailUncertain));
    let parks = with!(Policy::default(), recovery = Recovery::Park, max_attempts = 2);
    for message in ["m1", "m2", "m3", "m4"] {
        Idempotency::new(&store, parks.clone()).run(&delivery().message_id(message), &told, "input").await.unwrap();
    }
    let reruns = Idempotency::new(&store, with!(Policy::default(), max_attempts = 2));
    let report = reruns.run(&delivery().message_id("m5"), &told, "input").await.unwrap();
    assert_eq!((report.attempts, report.recovery, told.runs().len()), (Some(2), true, 2));
}

#[tokio::test]
async fn a_result_above_the_limit_is_not_kept() {
    let largest: &[u8] = vec![0; MAX_RESULT_BYTES + 1].leak();
    for (limit, returned) in [(3, &b"four"[..]), (usize::MAX, largest)] {
        let policy = with!(Policy::default(), result_max_bytes = limit);
        let idempotency = Idempotency::new(MemoryStore::default(), policy);
        let told = ScriptedWork::always(Action::Return(returned));
        assert!(matches!(run(&idempotency, &told).await.outcome, Outcome::Done { result } if result == returned));
        assert!(matches!(run(&idempotency, &told).await.outcome, Outcome::Duplicate { result: None }));
    }
}

#[tokio::test]
async fn another_payload_under_the_key_is_a_mismatch_and_does_not_run() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::Return(b"")));
    run(&idempotency, &told).await;
    let other = delivery().fingerprint(Fingerprint::of(b"99.00 EUR"));
    let report = idempotency.run(&other, &told, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch));
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test]
async fn an_unavailable_attempt_is_not_counted_and_keeps_earlier_uncertainty() {
    let (idempotency, down) = (in_memory(), ScriptedWork::always(Action::FailUnavailable));
    for _ in 0..50 {
        let report = run(&idempotency, &down).await;
        assert!(matches!(report.outcome, Outcome::Unavailable { .. }), "{report:?}");
        assert_eq!((report.attempts, report.recovery), (Some(1), false));
    }
    run(&idempotency, &ScriptedWork::always(Action::FailUncertain)).await;
    for _ in 0..50 {
        let report = run(&idempotency, &down).await;
        assert_eq!((report.attempts, report.recovery), (Some(2), true));
    }
    let up = ScriptedWork::always(Action::Return(b""));
    let report = run(&idempotency, &up).await;
    assert_eq!((report.attempts, up.runs()[0].recovery), (Some(2), true));
}

#[tokio::test]
async fn a_work_that_changes_its_input_settles_the_record_that_it_claimed() {
    struct Changes;
    impl Work<Mutex<String>> for Changes {
        async fn run(&self, _: &Claim, input: &Mutex<String>) -> Result<Vec<u8>, WorkError> {
            *input.lock().unwrap() = "changed".into();
            Ok(Vec::new())
        }
    }
    let idempotency = in_memory();
    idempotency.run(&delivery(), &Changes, &Mutex::default()).await.unwrap();
    let again = idempotency.run(&delivery(), &Changes, &Mutex::default()).await.unwrap();
    assert!(matches!(again.outcome, Outcome::Duplicate { .. }));
}
