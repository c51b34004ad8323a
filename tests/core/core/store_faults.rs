//! Stores that fail, and owners that are late.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_refused_completion_is_retried_until_the_store_is_available() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
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

/// A store whose records are replaced by other values before they are settled.
#[derive(Default)]
struct Overwritten {
    store: MemoryStore,
    settled: AtomicUsize,
}

impl Overwritten {
    fn not_a_record(&self) -> Result<Settled, StoreError> {
        self.settled.fetch_add(1, Ordering::Relaxed);
        Err(StoreError::NotARecord("payments:pay_1".into()))
    }
}

impl Store for Overwritten {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        self.store.acquire(request).await
    }

    async fn complete(&self, _: &Claim, _: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.not_a_record()
    }

    async fn fail(&self, _: &Claim, _: Failure) -> Result<Settled, StoreError> {
        self.not_a_record()
    }

    async fn release(&self, _: &AcquireRequest, _: Option<&Claim>) -> Result<Settled, StoreError> {
        self.not_a_record()
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_not_a_record_is_settled_once() {
    for action in [Action::Return(b""), Action::FailRetryable, Action::FailUnavailable] {
        let (store, told) = (Overwritten::default(), ScriptedWork::always(action));
        let began = Instant::now();
        let report = Idempotency::new(&store, Policy::default()).run(&delivery(), &told, "input").await;
        assert_eq!((store.settled.load(Ordering::Relaxed), began.elapsed()), (1, Duration::ZERO), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_reply_is_lost_is_recorded() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
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
async fn a_completion_that_never_succeeds_is_not_acknowledged_and_the_next_run_is_a_recovery() {
    for fault in [Fault::Refused, Fault::Unreachable] {
        let (store, told) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
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
async fn an_acquire_without_a_reply_runs_nothing_and_ends_before_the_deadline() {
    for fault in [Fault::Refused, Fault::ReplyLost, Fault::Unreachable] {
        let (store, told) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
        let idempotency = Idempotency::new(&store, Policy::default());
        store.always(StoreCall::Acquire, Some(fault));
        let started = Instant::now();
        let error = idempotency.run(&delivery(), &told, "input").await.unwrap_err();
        assert!(error.is_unavailable());
        assert!(started.elapsed() < TIME);
        assert_eq!(told.runs().len(), 0);
    }
}

/// A store that cannot be reached, and counts the calls after an acquire.
#[derive(Default)]
struct OutOfReach {
    later: AtomicUsize,
}

impl OutOfReach {
    fn unreachable(&self) -> Result<Settled, StoreError> {
        self.later.fetch_add(1, Ordering::Relaxed);
        Err(StoreError::unreachable("planned"))
    }
}

impl Store for OutOfReach {
    async fn acquire(&self, _: AcquireRequest) -> Result<Acquire, StoreError> {
        Err(StoreError::unreachable("planned"))
    }

    async fn complete(&self, _: &Claim, _: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.unreachable()
    }

    async fn fail(&self, _: &Claim, _: Failure) -> Result<Settled, StoreError> {
        self.unreachable()
    }

    async fn release(&self, _: &AcquireRequest, _: Option<&Claim>) -> Result<Settled, StoreError> {
        self.unreachable()
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_was_not_executed_is_not_released() {
    let (store, told) = (OutOfReach::default(), ScriptedWork::always(Action::Return(b"")));
    let error = Idempotency::new(&store, Policy::default()).run(&delivery(), &told, "input").await.unwrap_err();
    assert_eq!((error.may_have_run(), store.later.load(Ordering::Relaxed)), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_whose_reply_was_lost_is_released_as_soon_as_the_store_answers() {
    for fault in [Fault::ReplyLost, Fault::Unreachable] {
        let (store, told) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
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
        assert_eq!((report.attempts, report.recovery), (Some(1), false), "{fault:?}");
    }
}

/// The reply would come after the time for work. The release has the time that is reserved for settling.
#[tokio::test(start_paused = true)]
async fn an_acquire_without_a_reply_at_the_end_of_the_time_for_work_is_released() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
    let idempotency = Idempotency::new(&store, Policy::default());
    store.next(StoreCall::Acquire, Fault::Slow(2 * TIME));
    store.next(StoreCall::Settle, Fault::Refused);
    assert!(idempotency.run(&delivery(), &told, "input").await.unwrap_err().is_unavailable());
    let report = run(&idempotency, &told).await;
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test(start_paused = true)]
async fn eight_acquires_in_a_row_whose_owners_died_leave_attempts_to_do_the_work() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
    let idempotency = Idempotency::new(&store, Policy::default());
    for _ in 0..8 {
        store.next(StoreCall::Acquire, Fault::ReplyLost);
        store.always(StoreCall::Settle, Some(Fault::Unreachable));
        let delivery = delivery();
        let killed = tokio::time::timeout(TIME / 2, idempotency.run(&delivery, &told, "input")).await;
        assert!(killed.is_err());
        advance(TIME).await;
    }
    store.always(StoreCall::Settle, None);
    let report = run(&idempotency, &told).await;
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
    assert_eq!((report.attempts, told.runs().len()), (Some(9), 1));
}

#[tokio::test(start_paused = true)]
async fn a_late_completion_of_a_finished_work_replaces_the_failure_of_another_owner() {
    let (idempotency, slow) = (in_memory(), ScriptedWork::always(Action::Sleep(Duration::from_secs(20))));
    let stale = delivery().deadline(with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1)));
    let refused = ScriptedWork::always(Action::FailPermanently);
    let other = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(run(&idempotency, &refused).await.recovery);
    };
    let (report, ()) = tokio::join!(idempotency.run(&stale, &slow, "input"), other);
    assert!(matches!(report.unwrap().outcome, Outcome::Done { .. }));
    assert!(matches!(run(&idempotency, &refused).await.outcome, Outcome::Duplicate { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_stale_owner_that_completes_late_loses_and_gets_the_state_of_the_record() {
    let (idempotency, slow) = (in_memory(), ScriptedWork::always(Action::Sleep(Duration::from_secs(20))));
    // Its clock ran slow: it thinks that it has time, and its lease is long over.
    let stale = delivery().deadline(with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1)));
    let quick = ScriptedWork::always(Action::Return(b""));
    let other = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(run(&idempotency, &quick).await.recovery);
    };
    let (report, ()) = tokio::join!(idempotency.run(&stale, &slow, "input"), other);
    assert!(matches!(report.unwrap().outcome, Outcome::Lost { state: State::Completed, done: true }));
    assert!(matches!(run(&idempotency, &quick).await.outcome, Outcome::Duplicate { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_stale_owner_that_fails_late_does_not_change_the_record_of_the_live_owner() {
    let (idempotency, late) = (in_memory(), ScriptedWork::always(Action::Hang));
    let stale = delivery().deadline(with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1)));
    let live = ScriptedWork::always(Action::Sleep(Duration::from_secs(25)));
    let other = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        run(&idempotency, &live).await
    };
    let third = ScriptedWork::always(Action::Return(b""));
    let watcher = async {
        tokio::time::sleep(Duration::from_secs(32)).await;
        assert!(matches!(run(&idempotency, &third).await.outcome, Outcome::Conflict { .. }));
    };
    let (stale, live, ()) = tokio::join!(idempotency.run(&stale, &late, "input"), other, watcher);
    assert!(matches!(stale.unwrap().outcome, Outcome::Lost { state: State::Processing, done: false }));
    assert!(matches!(live.outcome, Outcome::Done { .. }));
    assert_eq!(third.runs().len(), 0);
}
