//! Leases, deadlines and cancelled works.

use super::*;

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
async fn a_work_frozen_beyond_its_deadline_takes_no_effect_when_it_resumes() {
    let (idempotency, work) = (in_memory(), Frozen { took_effect: AtomicBool::new(false) });
    let delivery = delivery().deadline(Deadline::within(Duration::from_millis(40)));
    let report = idempotency.run(&delivery, &work, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::Unsettled { .. } | Outcome::Failed { .. }), "{report:?}");
    assert!(!work.took_effect.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_work_frozen_beyond_a_shortened_lease_takes_no_effect_when_it_resumes() {
    let policy = with!(Policy::default(), longest_lease = Duration::from_millis(40), lease_grace = Duration::ZERO);
    let idempotency = Idempotency::new(MemoryStore::default(), policy);
    let work = Frozen { took_effect: AtomicBool::new(false) };
    let report = idempotency.run(&delivery(), &work, "input").await.unwrap();
    assert!(failure(&report).uncertain, "{report:?}");
    assert!(!work.took_effect.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn work_whose_shortened_lease_ended_before_it_started_is_released_and_not_counted() {
    let policy = with!(Policy::default(), longest_lease = Duration::from_secs(2));
    let (store, told) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
    let idempotency = Idempotency::new(&store, policy);
    store.next(StoreCall::Acquire, Fault::Slow(Duration::from_millis(1500)));
    let report = run(&idempotency, &told).await;
    assert!(matches!(report.outcome, Outcome::NotStarted), "{report:?}");
    let next = run(&idempotency, &told).await;
    assert!(matches!(next.outcome, Outcome::Done { .. }), "{next:?}");
    assert_eq!((next.attempts, next.recovery, told.runs().len()), (Some(1), false, 1));
}

#[tokio::test(start_paused = true)]
async fn work_is_cancelled_in_time_to_settle_and_the_next_attempt_is_a_recovery() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::Hang));
    let started = Instant::now();
    let report = run(&idempotency, &told).await;
    assert_eq!(failure(&report), Failure { uncertain: true, permanent: false });
    assert_eq!(started.elapsed(), TIME - Duration::from_secs(1));
    assert!(run(&idempotency, &told).await.recovery);
}

#[tokio::test(start_paused = true)]
async fn a_quarter_of_a_short_time_is_reserved_for_settling() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::Hang));
    let started = Instant::now();
    let short = delivery().deadline(Deadline::within(Duration::from_millis(400)));
    idempotency.run(&short, &told, "input").await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_millis(300));
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_the_remaining_time_plus_the_grace() {
    let policy = with!(Policy::default(), lease_grace = Duration::from_secs(7));
    let (idempotency, told) = (Idempotency::new(MemoryStore::default(), policy), ScriptedWork::always(Action::Hang));
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
async fn nothing_starts_without_time() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::Return(b"")));
    let late = delivery().deadline(Deadline::within(Duration::ZERO));
    let report = idempotency.run(&late, &told, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::NotStarted), "{report:?}");
    assert_eq!(told.runs().len(), 0);
    let report = run(&idempotency, &told).await;
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
    assert_eq!((report.attempts, report.recovery), (Some(1), false), "what did not start is no attempt");
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_hours_is_not_shortened_by_a_delivery_that_has_less_time() {
    let (idempotency, job) = (in_memory(), ScriptedWork::always(Action::Sleep(Duration::from_secs(3000))));
    let hour = delivery().deadline(Deadline::within(Duration::from_hours(1)));
    let other = ScriptedWork::always(Action::Return(b""));
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
async fn a_work_ends_with_the_longest_lease_if_its_deadline_is_later() {
    let policy = with!(Policy::default(), longest_lease = Duration::from_secs(5));
    let (idempotency, told) = (Idempotency::new(MemoryStore::default(), policy), ScriptedWork::always(Action::Hang));
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
async fn a_delivery_whose_deadline_has_passed_is_not_acquired() {
    let store = FaultyStore::new(MemoryStore::default());
    // The reply comes too late, and there is no time to release the record.
    store.always(StoreCall::Acquire, Some(Fault::ReplyLost));
    let idempotency = Idempotency::new(&store, Policy::default());
    let told = ScriptedWork::always(Action::Return(b""));
    let late = delivery().deadline(Deadline::within(Duration::ZERO));
    let report = idempotency.run(&late, &told, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::NotStarted), "{report:?}");
    store.always(StoreCall::Acquire, None);
    let report = run(&idempotency, &told).await;
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_deadline_of_unlimited_time_runs_the_work() {
    let (idempotency, told) = (in_memory(), ScriptedWork::always(Action::Return(b"")));
    let endless = delivery().deadline(Deadline::within(Duration::MAX));
    let report = idempotency.run(&endless, &told, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_in_memory_is_kept_for_its_retention() {
    let (hour, millisecond) = (Duration::from_hours(1), Duration::from_millis(1));
    for (passed, runs) in [(hour - millisecond, 1), (hour, 2)] {
        let policy = with!(Policy::default(), retention = hour);
        let idempotency = Idempotency::new(MemoryStore::default(), policy);
        let told = ScriptedWork::always(Action::Return(b""));
        run(&idempotency, &told).await;
        tokio::time::advance(passed).await;
        run(&idempotency, &told).await;
        assert_eq!(told.runs().len(), runs, "{passed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn work_has_half_of_the_longest_lease_if_the_grace_is_longer() {
    for (longest, grace) in [(Duration::from_secs(1), Duration::from_secs(1)), (Duration::from_secs(5), Duration::MAX)]
    {
        let policy = with!(Policy::default(), longest_lease = longest, lease_grace = grace);
        let idempotency = Idempotency::new(MemoryStore::default(), policy);
        let started = Instant::now();
        assert!(failure(&run(&idempotency, &ScriptedWork::always(Action::Hang)).await).uncertain);
        assert_eq!(started.elapsed(), longest / 2);
    }
}
