//! A work with a record of its own, which takes precedence over the store's.

use std::future::{pending, ready};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use harness::work::{Recorded, RecordingWork};
use idempotent_sqs::idempotency::{
    Fence, Location, ObjectError, ObjectStore, OwnRecord, Owner, RecordedAttempt, Results,
};
use idempotent_sqs_testing::MemoryObjectStore;
use tokio::time::sleep;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Whether an outcome is the expected one.
type IsOutcome = fn(&Outcome) -> bool;

async fn try_run<S: Store>(idempotency: &Idempotency<S>, work: &RecordingWork) -> Result<Report, StoreError> {
    idempotency.run(&delivery(), work, "input").await
}

#[tokio::test]
async fn a_busy_work_is_in_conflict_and_not_counted() {
    let busy = Duration::from_secs(7);
    let work = RecordingWork::new((0..9).map(|_| Ok(RecordedAttempt::Busy { after: busy })));
    let idempotency = in_memory();
    for _ in 0..9 {
        let report = try_run(&idempotency, &work).await.unwrap();
        assert!(matches!(report.outcome, Outcome::Conflict { lease_remains } if lease_remains == busy), "{report:?}");
    }
    let report = try_run(&idempotency, &work).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn an_unreachable_resource_is_a_store_error_and_not_counted() {
    let work = RecordingWork::new((0..9).map(|_| Ok(RecordedAttempt::Unreachable("no connection".into()))));
    let idempotency = in_memory();
    for _ in 0..9 {
        assert!(try_run(&idempotency, &work).await.unwrap_err().is_unavailable());
    }
    assert_eq!(try_run(&idempotency, &work).await.unwrap().attempts, Some(1));
}

#[tokio::test]
async fn a_mismatch_is_not_counted_in_a_recovery_either() {
    let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), max_attempts = 2));
    let mismatch = (0..4).map(|_| Ok(RecordedAttempt::Mismatch));
    let work = RecordingWork::new([Err(WorkError::uncertain("no answer"))].into_iter().chain(mismatch));
    try_run(&idempotency, &work).await.unwrap();
    for _ in 0..4 {
        let report = try_run(&idempotency, &work).await.unwrap();
        assert!(matches!(report.outcome, Outcome::Mismatch), "{report:?}");
    }
    let report = try_run(&idempotency, &work).await.unwrap();
    assert_eq!((report.attempts, report.recovery), (Some(2), false));
}

#[tokio::test]
async fn uncertainty_outlasts_attempts_that_are_not_counted() {
    let answers = [Err(WorkError::uncertain("no answer")), Ok(RecordedAttempt::Busy { after: Duration::ZERO })];
    let (work, idempotency) = (RecordingWork::new(answers), in_memory());
    for _ in 0..2 {
        try_run(&idempotency, &work).await.unwrap();
    }
    let report = try_run(&idempotency, &work).await.unwrap();
    assert_eq!((report.attempts, report.recovery), (Some(2), true));
}

#[tokio::test]
async fn used_up_attempts_fail_permanently_only_after_reading_the_works_own_record() {
    for first in [WorkError::uncertain("no reply to the commit"), WorkError::retryable("no")] {
        let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), max_attempts = 1));
        let work = RecordingWork::new([Err(first)]);
        let report = try_run(&idempotency, &work).await.unwrap();
        assert!(matches!(report.outcome, Outcome::Failed { .. } | Outcome::FailedPermanently { .. }), "{report:?}");
        assert!(matches!(try_run(&idempotency, &work).await.unwrap().outcome, Outcome::FailedBefore));
        work.set_record(Err(|| WorkError::unavailable("unreachable")));
        let report = try_run(&idempotency, &work).await.unwrap();
        assert!(matches!(report.outcome, Outcome::Unavailable { .. }), "{report:?}");
        work.set_record(Err(|| WorkError::permanent("the outcome is not recorded")));
        let report = try_run(&idempotency, &work).await.unwrap();
        assert!(matches!(report.outcome, Outcome::FailedPermanently { uncertain: true, .. }), "{report:?}");
        work.set_record(Ok(Some(b"receipt".to_vec())));
        for _ in 0..2 {
            let report = try_run(&idempotency, &work).await.unwrap();
            assert!(matches!(&report.outcome, Outcome::Duplicate { result: Some(result) } if result == b"receipt"));
            // The store has recorded it as well.
            work.set_record(Ok(None));
        }
    }
}

/// Its record says that the last attempt failed. Reading it hangs or panics.
struct Unreadable {
    panics: bool,
}

impl Work<str> for Unreadable {
    async fn run(&self, _: &Claim, _: &str) -> Result<Vec<u8>, WorkError> {
        unreachable!("the core calls attempt")
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<str>> {
        Some(self)
    }
}

impl OwnRecord<str> for Unreadable {
    fn attempt<'a>(&'a self, _: &'a Claim, _: &'a str) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(ready(Err(WorkError::permanent("no"))))
    }

    fn recorded<'a>(&'a self, _: &'a AcquireRequest, _: Instant) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(async { if self.panics { panic!("the record cannot be read") } else { pending().await } })
    }
}

#[tokio::test(start_paused = true)]
async fn reading_the_works_own_record_ends_at_the_deadline_and_a_panic_of_it_is_contained() {
    for panics in [false, true] {
        let (work, idempotency, began) = (Unreadable { panics }, in_memory(), Instant::now());
        let report = idempotency.run(&delivery(), &work, "input").await.unwrap();
        assert!(matches!(report.outcome, Outcome::FailedPermanently { .. }), "{report:?}");
        let report = idempotency.run(&delivery(), &work, "input").await.unwrap();
        assert!(matches!(report.outcome, Outcome::Unavailable { .. }), "{report:?}");
        assert!(began.elapsed() <= Duration::from_mins(1));
    }
}

#[tokio::test]
async fn an_uncertain_last_attempt_is_not_permanent_if_the_work_has_its_own_record() {
    let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), max_attempts = 1));
    let report = try_run(&idempotency, &RecordingWork::new([Err(WorkError::uncertain("no reply"))])).await.unwrap();
    assert_eq!(failure(&report), Failure { uncertain: true, permanent: false });
}

#[tokio::test]
async fn work_done_before_is_a_duplicate_and_completes_the_record() {
    let idempotency = in_memory();
    let before = RecordingWork::new([Ok(RecordedAttempt::DoneBefore(b"receipt".to_vec()))]);
    for _ in 0..2 {
        let report = try_run(&idempotency, &before).await.unwrap();
        assert!(matches!(&report.outcome, Outcome::Duplicate { result: Some(result) } if result == b"receipt"));
    }
    assert!(before.answers.lock().unwrap().is_empty(), "the store answered the second delivery");
}

#[tokio::test]
async fn another_payload_that_was_done_is_a_mismatch_and_not_uncertain() {
    let answers = [Err(WorkError::uncertain("no answer")), Ok(RecordedAttempt::Mismatch)];
    let (work, idempotency) = (RecordingWork::new(answers), in_memory());
    try_run(&idempotency, &work).await.unwrap();
    assert!(matches!(try_run(&idempotency, &work).await.unwrap().outcome, Outcome::Mismatch));
    let right = delivery().fingerprint(Fingerprint::of(b"the right payload")).message_id("message-2");
    let report = idempotency.run(&right, &work, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
}

#[tokio::test]
async fn work_done_by_its_own_record_is_done_if_the_stores_record_has_another_payload() {
    let idempotency = in_memory();
    let other = delivery().fingerprint(Fingerprint::of(b"another payload"));
    let uncertain = RecordingWork::new([Err(WorkError::uncertain("no reply"))]);
    idempotency.run(&other, &uncertain, "input").await.unwrap();
    let work = RecordingWork::new([]);
    let cases: [(Recorded, IsOutcome); 4] = [
        (Ok(None), |outcome| matches!(outcome, Outcome::Mismatch)),
        (Err(|| WorkError::unavailable("unreachable")), |outcome| matches!(outcome, Outcome::Unavailable { .. })),
        // An operator has to find out what took effect.
        (Err(|| WorkError::uncertain("unfinished")), |outcome| matches!(outcome, Outcome::Unavailable { .. })),
        (Ok(Some(b"receipt".to_vec())), |outcome| matches!(outcome, Outcome::Duplicate { result: Some(_) })),
    ];
    let this = delivery().fingerprint(Fingerprint::of(b"this payload"));
    for (record, expected) in cases {
        work.set_record(record);
        let report = idempotency.run(&this, &work, "input").await.unwrap();
        assert!(expected(&report.outcome), "{report:?}");
    }
    // The record of the other payload is kept.
    let report = idempotency.run(&other, &RecordingWork::new([]), "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::Done { .. }) && report.recovery, "{report:?}");
}

#[tokio::test]
async fn a_mismatch_of_the_works_own_record_is_not_counted() {
    let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), max_attempts = 2));
    let work = RecordingWork::new((0..5).map(|_| Ok(RecordedAttempt::Mismatch)));
    for _ in 0..5 {
        let report = try_run(&idempotency, &work).await.unwrap();
        assert!(matches!(report.outcome, Outcome::Mismatch), "{report:?}");
    }
    // The record of the other payload has been deleted.
    let report = try_run(&idempotency, &work).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Done { .. }) && !report.recovery, "{report:?}");
}

#[tokio::test]
async fn a_duplicate_gets_the_result_of_the_works_own_record_if_the_store_did_not_keep_it() {
    let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), result_max_bytes = 3));
    let work = RecordingWork::new([]);
    try_run(&idempotency, &work).await.unwrap();
    let cases: [(Recorded, Option<&[u8]>); 3] = [
        (Ok(Some(b"receipt".to_vec())), Some(b"receipt")),
        (Ok(None), None),
        (Err(|| WorkError::unavailable("unreachable")), None),
    ];
    for (record, expected) in cases {
        work.set_record(record);
        let report = try_run(&idempotency, &work).await.unwrap();
        assert!(matches!(&report.outcome, Outcome::Duplicate { result } if result.as_deref() == expected));
    }
    work.set_record(Ok(Some(b"receipt".to_vec())));
    let report = idempotency.run(&delivery().without_result(), &work, "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::Duplicate { result: None }), "it was not requested: {report:?}");
}

#[tokio::test(start_paused = true)]
async fn done_work_with_its_own_record_does_not_retry_the_store() {
    let cases: [(_, IsOutcome); 2] = [
        (Ok(RecordedAttempt::Done(Vec::new())), |outcome| matches!(outcome, Outcome::DoneByOwnRecord { .. })),
        (Ok(RecordedAttempt::DoneBefore(Vec::new())), |outcome| matches!(outcome, Outcome::Duplicate { .. })),
    ];
    for (answer, expected) in cases {
        let store = FaultyStore::new(MemoryStore::default());
        store.always(StoreCall::Settle, Some(Fault::Refused));
        let (work, began) = (RecordingWork::new([answer]), Instant::now());
        let report = try_run(&Idempotency::new(store, Policy::default()), &work).await.unwrap();
        assert!(expected(&report.outcome), "{report:?}");
        assert_eq!(began.elapsed(), Duration::ZERO, "{report:?}");
    }
}

/// A store that is out of reach, as an inbox that goes on without it has.
struct OutOfReach;

impl Store for OutOfReach {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        Ok(Acquire::claimed_without_store(request, Fence(1)))
    }

    async fn complete(&self, _: &Claim, _: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        Err(StoreError::unreachable("planned"))
    }

    async fn fail(&self, _: &Claim, _: Failure) -> Result<Settled, StoreError> {
        Err(StoreError::unreachable("planned"))
    }

    async fn release(&self, _: &AcquireRequest, _: Option<&Claim>) -> Result<Settled, StoreError> {
        Err(StoreError::unreachable("planned"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_made_without_the_store_is_a_recovery_and_settled_by_one_call() {
    let cases: [(_, IsOutcome); 7] = [
        (Ok(RecordedAttempt::Done(Vec::new())), |outcome| matches!(outcome, Outcome::DoneByOwnRecord { .. })),
        (Ok(RecordedAttempt::DoneBefore(Vec::new())), |outcome| matches!(outcome, Outcome::Duplicate { .. })),
        (Ok(RecordedAttempt::Mismatch), |outcome| matches!(outcome, Outcome::Mismatch)),
        (Err(WorkError::retryable("no")), |outcome| matches!(outcome, Outcome::Unsettled { .. })),
        (Ok(RecordedAttempt::Busy { after: SECOND }), |outcome| matches!(outcome, Outcome::Conflict { .. })),
        (Err(WorkError::busy("in use")), |outcome| matches!(outcome, Outcome::Unavailable { .. })),
        (Err(WorkError::unavailable("refused")), |outcome| matches!(outcome, Outcome::Unavailable { .. })),
    ];
    for (answer, expected) in cases {
        let (work, began) = (RecordingWork::new([answer]), Instant::now());
        let report = try_run(&Idempotency::new(OutOfReach, Policy::default()), &work).await.unwrap();
        assert!(expected(&report.outcome) && report.recovery, "{report:?}");
        assert_eq!(began.elapsed(), Duration::ZERO, "{report:?}");
    }
    let work = RecordingWork::new([Ok(RecordedAttempt::Unreachable("no connection".into()))]);
    let began = Instant::now();
    assert!(try_run(&Idempotency::new(OutOfReach, Policy::default()), &work).await.unwrap_err().is_unavailable());
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_attempt_without_an_effect_is_recorded_once_the_store_can_be_reached() {
    let answers: [fn() -> Result<RecordedAttempt, WorkError>; 5] = [
        || Ok(RecordedAttempt::Busy { after: SECOND }),
        || Ok(RecordedAttempt::Mismatch),
        || Err(WorkError::busy("in use")),
        || Err(WorkError::unavailable("refused")),
        || Err(WorkError::retryable("no")),
    ];
    for answer in answers {
        let store = FaultyStore::new(MemoryStore::default());
        let idempotency = Idempotency::new(&store, Policy::default());
        store.always(StoreCall::Settle, Some(Fault::Refused));
        let first = RecordingWork::new([answer()]);
        let ((), report) = tokio::join!(
            async {
                sleep(SECOND).await;
                store.always(StoreCall::Settle, None);
            },
            try_run(&idempotency, &first)
        );
        report.unwrap();
        // Else it would be in conflict until the end of the lease.
        let report = try_run(&idempotency, &RecordingWork::new([])).await.unwrap();
        assert!(matches!(report.outcome, Outcome::Done { .. }) && !report.recovery, "{report:?}");
    }
}

/// Objects whose writes take this time.
#[derive(Debug)]
struct SlowObjects {
    objects: MemoryObjectStore,
    takes: Duration,
}

impl ObjectStore for SlowObjects {
    fn get<'a>(&'a self, location: &'a Location, max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        self.objects.get(location, max_bytes)
    }

    fn put<'a>(&'a self, location: &'a Location, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async {
            sleep(self.takes).await;
            self.objects.put(location, bytes).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_result_in_the_works_own_record_is_stored_as_an_object_after_used_up_attempts() {
    let (objects, idempotency, work) = after_used_up_attempts(SECOND).await;
    for _ in 0..2 {
        let report = try_run(&idempotency, &work).await.unwrap();
        assert!(matches!(&report.outcome, Outcome::Duplicate { result: Some(result) } if *result == [7; 5000]));
        assert_eq!(objects.objects.locations().len(), 1);
        // The store's record has the location.
        work.set_record(Ok(None));
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_reserved_for_settling_is_not_spent_on_a_large_result_in_the_works_own_record() {
    let (objects, idempotency, work) = after_used_up_attempts(TIME).await;
    let deadline = Deadline::within(2 * SECOND);
    let report = idempotency.run(&delivery().deadline(deadline), &work, "input").await.unwrap();
    assert!(matches!(&report.outcome, Outcome::Duplicate { result: Some(result) } if *result == [7; 5000]));
    // Timers end at whole milliseconds.
    assert!(Instant::now() <= deadline.work + Duration::from_millis(1), "{:?}", Instant::now() - deadline.work);
    assert!(objects.objects.locations().is_empty());
}

/// A work whose attempts are used up, and whose own record shows afterwards that it is done, with a large result. Each
/// write of an object takes this time.
async fn after_used_up_attempts(takes: Duration) -> (Arc<SlowObjects>, Idempotency<MemoryStore>, RecordingWork) {
    let objects = Arc::new(SlowObjects { objects: MemoryObjectStore::default(), takes });
    let results = Results::new(objects.clone(), "results", "payments/");
    let policy = with!(Policy::default(), max_attempts = 1, results = Some(results));
    let idempotency = Idempotency::new(MemoryStore::default(), policy);
    let work = RecordingWork::new([Err(WorkError::retryable("no"))]);
    try_run(&idempotency, &work).await.unwrap();
    work.set_record(Ok(Some(vec![7; 5000])));
    (objects, idempotency, work)
}

#[tokio::test]
async fn work_done_by_its_own_record_is_done_if_another_owner_holds_the_stores_record() {
    let store = MemoryStore::default();
    let idempotency = Idempotency::new(&store, Policy::default());
    let report = idempotency.run(&delivery(), &Overtaken(&store), "input").await.unwrap();
    assert!(matches!(report.outcome, Outcome::DoneByOwnRecord { .. }), "{report:?}");
}

/// While this work runs, its claim fails and another owner acquires the record.
struct Overtaken<'a>(&'a MemoryStore);

impl Work<str> for Overtaken<'_> {
    async fn run(&self, _: &Claim, _: &str) -> Result<Vec<u8>, WorkError> {
        unreachable!("the core calls attempt")
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<str>> {
        Some(self)
    }
}

impl OwnRecord<str> for Overtaken<'_> {
    fn attempt<'a>(&'a self, claim: &'a Claim, _: &'a str) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(async {
            self.0.fail(claim, Failure::default()).await.unwrap();
            let other = with!(claim.request().clone(), owner = Owner::random());
            assert!(matches!(self.0.acquire(other).await.unwrap(), Acquire::Acquired(_)));
            Ok(RecordedAttempt::Done(Vec::new()))
        })
    }

    fn recorded<'a>(&'a self, _: &'a AcquireRequest, _: Instant) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(ready(Ok(None)))
    }
}

#[tokio::test]
async fn a_recovery_of_a_work_with_its_own_record_is_never_parked() {
    let parks = with!(Policy::default(), recovery = Recovery::Park);
    let idempotency = Idempotency::new(MemoryStore::default(), parks);
    let work = RecordingWork::new([Err(WorkError::uncertain("no answer"))]);
    try_run(&idempotency, &work).await.unwrap();
    let report = try_run(&idempotency, &work).await.unwrap();
    assert!(report.recovery && matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
}

/// A store whose acquires are executed and have no reply, so that the work goes on without it.
struct WithoutReplies<'a>(&'a MemoryStore);

impl Store for WithoutReplies<'_> {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        self.0.acquire(request.clone()).await?;
        Ok(Acquire::claimed_without_store(request, Fence(1)))
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.0.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.0.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.0.release(request, claim).await
    }
}

#[tokio::test]
async fn an_attempt_without_the_store_that_is_not_counted_keeps_the_number_of_the_others() {
    for answer in [Err(WorkError::retryable("no")), Ok(RecordedAttempt::Mismatch)] {
        let store = MemoryStore::default();
        let normal = Idempotency::new(&store, Policy::default());
        for _ in 0..3 {
            try_run(&normal, &RecordingWork::new([Err(WorkError::retryable("no"))])).await.unwrap();
        }
        let without = Idempotency::new(WithoutReplies(&store), Policy::default());
        try_run(&without, &RecordingWork::new([answer])).await.unwrap();
        assert_eq!(try_run(&normal, &RecordingWork::new([])).await.unwrap().attempts, Some(4));
    }
}

#[tokio::test]
async fn an_uncertain_attempt_without_the_store_makes_the_next_one_a_recovery() {
    let store = MemoryStore::default();
    let without = Idempotency::new(WithoutReplies(&store), Policy::default());
    try_run(&without, &RecordingWork::new([Err(WorkError::uncertain("no answer"))])).await.unwrap();
    let normal = Idempotency::new(&store, Policy::default());
    let report = try_run(&normal, &RecordingWork::new([])).await.unwrap();
    assert_eq!((report.attempts, report.recovery), (Some(2), true));
}
