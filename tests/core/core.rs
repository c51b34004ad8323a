/// A work with a record of its own, which takes precedence over the store's.
mod own_record;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idempotent_sqs::idempotency::{
    Claim, Deadline, Delivery, Failure, Fingerprint, Idempotency, Key, Outcome, Policy, Recovery, Report, State, Store,
    Work, WorkError,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tokio::time::{Instant, advance};

use harness::with;
use harness::work::{Do, Told};

/// What an invocation has by default here.
const TIME: Duration = Duration::from_secs(30);

fn delivery() -> Delivery {
    Delivery::new(Key::new("pay_1").unwrap())
        .fingerprint(Fingerprint::of(b"12.50 EUR"))
        .message_id("message-1")
        .deadline(Deadline::within(TIME))
}

async fn run<S: Store>(idempotency: &Idempotency<S>, told: &Told) -> Report {
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
    let (idempotency, told) = (in_memory(), Told::to(Do::Return(b"receipt")));
    let first = run(&idempotency, &told).await;
    assert!(matches!(&first.outcome, Outcome::Done { result } if result == b"receipt"), "{first:?}");
    assert_eq!((first.attempt, first.recovery), (Some(1), false));
    let again = run(&idempotency, &told).await;
    assert!(matches!(&again.outcome, Outcome::Duplicate { result: Some(result) } if result == b"receipt"), "{again:?}");
    assert_eq!(again.fence, first.fence);
    assert_eq!(told.runs().len(), 1);
}

/// A work whose process is frozen before its effect, for longer than it has time.
struct Frozen {
    took_effect: AtomicBool,
}

impl Work<str> for Frozen {
    async fn run(&self, _claim: &Claim, _input: &str) -> Result<Vec<u8>, WorkError> {
        std::thread::sleep(Duration::from_millis(60));
        // What it waited for has come meanwhile.
        tokio::task::yield_now().await;
        self.took_effect.store(true, Ordering::SeqCst);
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_work_that_was_frozen_beyond_its_deadline_takes_no_effect_when_it_goes_on() {
    let (idempotency, work) = (in_memory(), Frozen { took_effect: AtomicBool::new(false) });
    let delivery = delivery().deadline(Deadline::within(Duration::from_millis(40)));
    let report = idempotency.run(&delivery, &work, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::Unsettled { .. } | Outcome::Failed { .. }), "{report:?}");
    assert!(!work.took_effect.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_work_that_was_frozen_beyond_a_lease_that_was_cut_takes_no_effect_when_it_goes_on() {
    let policy = with!(Policy::default(), longest_lease = Duration::from_millis(40), lease_grace = Duration::ZERO);
    let idempotency = Idempotency::new(MemoryStore::default(), policy);
    let work = Frozen { took_effect: AtomicBool::new(false) };
    let report = idempotency.run(&delivery(), &work, "input").await.unwrap();
    assert!(failure(&report).uncertain, "{report:?}");
    assert!(!work.took_effect.load(Ordering::SeqCst));
}

#[tokio::test]
async fn the_work_gets_key_fence_and_attempt_and_is_told_of_a_recovery() {
    let (idempotency, told) = (in_memory(), Told::to(Do::BeUncertain));
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
    let (idempotency, told) = (in_memory(), Told::to(Do::Refuse));
    assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain: false, permanent: false });
    run(&idempotency, &told).await;
    assert_eq!(told.runs().iter().map(|run| run.recovery).collect::<Vec<_>>(), [false, false]);
}

#[tokio::test]
async fn a_recovery_that_fails_leaves_the_doubt_that_it_came_from() {
    for what in [Do::Refuse, Do::FailForGood] {
        let told = Told::by(move |run| if run.attempt == 1 { Do::BeUncertain } else { what });
        let idempotency = in_memory();
        run(&idempotency, &told).await;
        assert!(failure(&run(&idempotency, &told).await).uncertain);
        let redriven = delivery().message_id("message-2");
        assert!(idempotency.run(&redriven, &told, "input").await.unwrap().recovery);
    }
}

#[tokio::test]
async fn a_permanent_failure_runs_no_more() {
    let (idempotency, told) = (in_memory(), Told::to(Do::FailForGood));
    assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain: false, permanent: true });
    assert!(matches!(run(&idempotency, &told).await.outcome, Outcome::FailedBefore));
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test]
async fn the_last_attempt_makes_any_failure_permanent_and_keeps_its_doubt() {
    for (what, uncertain) in [(Do::Refuse, false), (Do::BeUncertain, true), (Do::Panic, true)] {
        let policy = with!(Policy::default(), max_attempts = 2);
        let (idempotency, told) = (Idempotency::new(MemoryStore::default(), policy), Told::to(what));
        assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain, permanent: false });
        assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain, permanent: true });
        assert!(matches!(run(&idempotency, &told).await.outcome, Outcome::FailedBefore));
        assert_eq!(told.runs().len(), 2);
    }
}

#[tokio::test]
async fn a_panic_is_contained_and_uncertain() {
    let (idempotency, told) = (in_memory(), Told::to(Do::Panic));
    assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain: true, permanent: false });
    assert!(run(&idempotency, &told).await.recovery);
}

#[tokio::test(start_paused = true)]
async fn work_is_cancelled_in_time_to_settle_and_the_next_attempt_is_a_recovery() {
    let (idempotency, told) = (in_memory(), Told::to(Do::Hang));
    let started = Instant::now();
    let report = run(&idempotency, &told).await;
    assert_eq!(failure(&report), Failure { uncertain: true, permanent: false });
    assert_eq!(started.elapsed(), TIME - Duration::from_secs(1));
    assert!(run(&idempotency, &told).await.recovery);
}

#[tokio::test(start_paused = true)]
async fn of_a_short_time_a_quarter_is_kept_for_settling() {
    let (idempotency, told) = (in_memory(), Told::to(Do::Hang));
    let started = Instant::now();
    let short = delivery().deadline(Deadline::within(Duration::from_millis(400)));
    idempotency.run(&short, &told, "input").await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_millis(300));
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_the_time_that_is_left_plus_the_grace() {
    let policy = with!(Policy::default(), lease_grace = Duration::from_secs(7));
    let (idempotency, told) = (Idempotency::new(MemoryStore::default(), policy), Told::to(Do::Hang));
    let delivery_of_a_killed_run = delivery();
    let killed =
        tokio::time::timeout(Duration::from_secs(2), idempotency.run(&delivery_of_a_killed_run, &told, "input"));
    assert!(killed.await.is_err());
    match run(&idempotency, &told).await.outcome {
        Outcome::Conflict { lease_remains } => assert_eq!(lease_remains, TIME + Duration::from_secs(5)),
        other => panic!("{other:?}"),
    }
    advance(TIME + Duration::from_secs(5)).await;
    assert!(run(&idempotency, &told).await.recovery);
}

#[tokio::test(start_paused = true)]
async fn without_time_nothing_starts() {
    let (idempotency, told) = (in_memory(), Told::to(Do::Return(b"")));
    let late = delivery().deadline(Deadline::within(Duration::ZERO));
    let report = idempotency.run(&late, &told, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::NotStarted), "{report:?}");
    assert_eq!(told.runs().len(), 0);
    let report = run(&idempotency, &told).await;
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
    assert_eq!((report.attempt, report.recovery), (Some(1), false), "what did not start is no attempt");
}

#[tokio::test]
async fn a_parked_recovery_runs_nothing_and_fails_for_good() {
    let policy = with!(Policy::default(), recovery = Recovery::Park);
    let (idempotency, told) = (Idempotency::new(MemoryStore::default(), policy), Told::to(Do::BeUncertain));
    run(&idempotency, &told).await;
    assert_eq!(failure(&run(&idempotency, &told).await), Failure { uncertain: true, permanent: true });
    assert!(matches!(run(&idempotency, &told).await.outcome, Outcome::FailedBefore));
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test]
async fn a_result_above_the_limit_is_not_kept() {
    let policy = with!(Policy::default(), result_max_bytes = 3);
    let idempotency = Idempotency::new(MemoryStore::default(), policy);
    let told = Told::to(Do::Return(b"four"));
    assert!(matches!(run(&idempotency, &told).await.outcome, Outcome::Done { result } if result == b"four"));
    assert!(matches!(run(&idempotency, &told).await.outcome, Outcome::Duplicate { result: None }));
}

#[tokio::test]
async fn another_payload_under_the_key_is_a_mismatch_and_does_not_run() {
    let (idempotency, told) = (in_memory(), Told::to(Do::Return(b"")));
    run(&idempotency, &told).await;
    let other = delivery().fingerprint(Fingerprint::of(b"99.00 EUR"));
    let report = idempotency.run(&other, &told, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch));
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_completion_is_asked_again_until_the_store_is_back() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Return(b"")));
    let idempotency = Idempotency::new(&store, Policy::default());
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let back = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        store.always(StoreCall::Settle, None);
    };
    let (report, ()) = tokio::join!(run(&idempotency, &told), back);
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
    assert!(store.calls(StoreCall::Settle) > 10);
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_answer_is_lost_is_found_to_be_recorded() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Return(b"")));
    let idempotency = Idempotency::new(&store, Policy::default());
    store.always(StoreCall::Settle, Some(Fault::ReplyLost));
    let back = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        store.always(StoreCall::Settle, None);
    };
    let (report, ()) = tokio::join!(run(&idempotency, &told), back);
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_never_succeeds_is_not_acknowledged_and_the_rerun_is_told() {
    for fault in [Fault::Refused, Fault::OutOfReach] {
        let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Return(b"")));
        let idempotency = Idempotency::new(&store, Policy::default());
        store.always(StoreCall::Settle, Some(fault));
        let deadline = Deadline::within(TIME);
        let report = idempotency.run(&delivery().deadline(deadline), &told, "input").await.unwrap();
        assert!(matches!(report.outcome, Outcome::Unsettled { .. }), "{report:?}");
        // The timer goes by whole milliseconds.
        assert!(Instant::now() <= deadline.settle + Duration::from_millis(1));
        store.always(StoreCall::Settle, None);
        advance(TIME * 2).await;
        assert!(run(&idempotency, &told).await.recovery);
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_without_an_answer_runs_nothing_and_ends_before_the_deadline() {
    for fault in [Fault::Refused, Fault::ReplyLost, Fault::OutOfReach] {
        let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Return(b"")));
        let idempotency = Idempotency::new(&store, Policy::default());
        store.always(StoreCall::Acquire, Some(fault));
        let started = Instant::now();
        let error = idempotency.run(&delivery(), &told, "input").await.unwrap_err();
        assert!(error.is_unavailable());
        assert!(started.elapsed() < TIME);
        assert_eq!(told.runs().len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_whose_reply_was_lost_is_given_back_as_soon_as_the_store_answers() {
    for fault in [Fault::ReplyLost, Fault::OutOfReach] {
        let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Return(b"")));
        let store = store.timeout(Duration::from_millis(500));
        let idempotency = Idempotency::new(&store, with!(Policy::default(), max_attempts = 1));
        store.next(StoreCall::Acquire, fault);
        store.always(StoreCall::Settle, Some(Fault::Refused));
        let back = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            store.always(StoreCall::Settle, None);
        };
        let (delivery, started) = (delivery(), Instant::now());
        let (answer, ()) = tokio::join!(idempotency.run(&delivery, &told, "input"), back);
        assert!(answer.unwrap_err().is_unavailable());
        assert!(started.elapsed() < Duration::from_secs(6), "it ends once the claim is given back");
        let report = run(&idempotency, &told).await;
        assert!(matches!(report.outcome, Outcome::Done { .. }), "{fault:?}: {report:?}");
        assert_eq!((report.attempt, report.recovery), (Some(1), false), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn eight_acquires_in_a_row_whose_owners_died_leave_attempts_to_do_the_work() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Return(b"")));
    let idempotency = Idempotency::new(&store, Policy::default());
    for _ in 0..8 {
        store.next(StoreCall::Acquire, Fault::ReplyLost);
        store.always(StoreCall::Settle, Some(Fault::OutOfReach));
        let delivery = delivery();
        let killed = tokio::time::timeout(TIME / 2, idempotency.run(&delivery, &told, "input")).await;
        assert!(killed.is_err());
        advance(TIME).await;
    }
    store.always(StoreCall::Settle, None);
    let report = run(&idempotency, &told).await;
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
    assert_eq!((report.attempt, told.runs().len()), (Some(9), 1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_hours_is_not_shortened_by_a_delivery_that_has_less_time() {
    let (idempotency, job) = (in_memory(), Told::to(Do::Take(Duration::from_secs(3000))));
    let hour = delivery().deadline(Deadline::within(Duration::from_hours(1)));
    let other = Told::to(Do::Return(b""));
    let asks = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(500)).await;
            assert!(matches!(run(&idempotency, &other).await.outcome, Outcome::Conflict { .. }));
        }
    };
    let (report, ()) = tokio::join!(idempotency.run(&hour, &job, "input"), asks);
    assert!(matches!(report.unwrap().outcome, Outcome::Done { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_work_ends_with_the_longest_lease_where_its_deadline_is_further_away() {
    let policy = with!(Policy::default(), longest_lease = Duration::from_secs(5));
    let (idempotency, told) = (Idempotency::new(MemoryStore::default(), policy), Told::to(Do::Hang));
    let started = Instant::now();
    assert!(failure(&run(&idempotency, &told).await).uncertain);
    // What is left of it is the grace.
    assert_eq!(started.elapsed(), Duration::from_secs(4));
}

#[tokio::test]
async fn a_work_that_panics_when_it_is_cancelled_is_uncertain() {
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("as told");
        }
    }
    struct Hangs;
    impl Work<str> for Hangs {
        async fn run(&self, _: &Claim, _: &str) -> Result<Vec<u8>, WorkError> {
            let _held = PanicsWhenDropped;
            std::future::pending().await
        }
    }
    let idempotency = in_memory();
    let short = delivery().deadline(Deadline::within(Duration::from_millis(40)));
    let report = idempotency.run(&short, &Hangs, "input").await.unwrap();
    assert!(failure(&report).uncertain);
}

#[tokio::test]
async fn what_is_unavailable_is_not_counted_and_keeps_the_doubt_of_earlier_attempts() {
    let (idempotency, down) = (in_memory(), Told::to(Do::BeUnavailable));
    for _ in 0..50 {
        let report = run(&idempotency, &down).await;
        assert!(matches!(report.outcome, Outcome::Unavailable { .. }), "{report:?}");
        assert_eq!((report.attempt, report.recovery), (Some(1), false));
    }
    run(&idempotency, &Told::to(Do::BeUncertain)).await;
    for _ in 0..50 {
        let report = run(&idempotency, &down).await;
        assert_eq!((report.attempt, report.recovery), (Some(2), true));
    }
    let up = Told::to(Do::Return(b""));
    let report = run(&idempotency, &up).await;
    assert_eq!((report.attempt, up.runs()[0].recovery), (Some(2), true));
}

#[tokio::test(start_paused = true)]
async fn a_late_completion_of_a_finished_work_replaces_the_failure_of_another_owner() {
    let (idempotency, slow) = (in_memory(), Told::to(Do::Take(Duration::from_secs(20))));
    let stale = delivery().deadline(with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1)));
    let refused = Told::to(Do::FailForGood);
    let other = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(run(&idempotency, &refused).await.recovery);
    };
    let (report, ()) = tokio::join!(idempotency.run(&stale, &slow, "input"), other);
    assert!(matches!(report.unwrap().outcome, Outcome::Done { .. }));
    assert!(matches!(run(&idempotency, &refused).await.outcome, Outcome::Duplicate { .. }));
}

#[tokio::test]
async fn a_deadline_without_end_runs_the_work() {
    let (idempotency, told) = (in_memory(), Told::to(Do::Return(b"")));
    let endless = delivery().deadline(Deadline::within(Duration::MAX));
    let report = idempotency.run(&endless, &told, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stale_owner_that_completes_late_loses_and_learns_what_became_of_the_record() {
    let (idempotency, slow) = (in_memory(), Told::to(Do::Take(Duration::from_secs(20))));
    // Its clock ran slow: it thinks that it has time, and its lease is long over.
    let stale = delivery().deadline(with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1)));
    let quick = Told::to(Do::Return(b""));
    let other = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(run(&idempotency, &quick).await.recovery);
    };
    let (report, ()) = tokio::join!(idempotency.run(&stale, &slow, "input"), other);
    assert!(matches!(report.unwrap().outcome, Outcome::Lost { state: State::Completed, done: true }));
    assert!(matches!(run(&idempotency, &quick).await.outcome, Outcome::Duplicate { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_stale_owner_that_fails_late_leaves_the_live_owner_its_record() {
    let (idempotency, late) = (in_memory(), Told::to(Do::Hang));
    let stale = delivery().deadline(with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1)));
    let live = Told::to(Do::Take(Duration::from_secs(25)));
    let other = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        run(&idempotency, &live).await
    };
    let third = Told::to(Do::Return(b""));
    let watcher = async {
        tokio::time::sleep(Duration::from_secs(32)).await;
        assert!(matches!(run(&idempotency, &third).await.outcome, Outcome::Conflict { .. }));
    };
    let (stale, live, ()) = tokio::join!(idempotency.run(&stale, &late, "input"), other, watcher);
    assert!(matches!(stale.unwrap().outcome, Outcome::Lost { state: State::Processing, done: false }));
    assert!(matches!(live.outcome, Outcome::Done { .. }));
    assert_eq!(third.runs().len(), 0);
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
