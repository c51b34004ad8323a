//! What users pass to the core: keys, works from closures, and works and stores behind pointers.

use std::error::Error as _;
use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use idempotent_sqs::idempotency::{
    AcquireRequest, Claim, Delivery, Idempotency, Key, Location, Outcome, OwnRecord, Owner, Policy, RecordedAttempt,
    Report, Store, StoreError, Work, WorkError, WorkErrorKind, work_fn,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{FaultyStore, StoreCall, attempt, claim, conformance, recovery};
use tokio::time::Instant;

fn in_memory() -> Idempotency<MemoryStore> {
    Idempotency::new(MemoryStore::default(), Policy::default())
}

async fn run<S: Store>(idempotency: &Idempotency<S>, work: impl Work<str>) -> Report {
    let delivery = Delivery::new(Key::new("pay_1").unwrap());
    idempotency.run(&delivery, &work, "12.50 EUR").await.unwrap()
}

/// An empty key is an error, also as read from a record.
#[test]
fn an_empty_key_is_an_error() {
    assert_eq!(Key::new(""), Err(Key::new("").unwrap_err()));
    assert_eq!(Key::from_stored(""), Key::new(""));
    assert_eq!(Key::new("").unwrap_err().to_string(), "an idempotency key must not be empty");
    assert_eq!(Key::new(" ").unwrap().as_str(), " ");
}

/// A location has a bucket and a name. Its debug output omits the name.
#[test]
fn a_location_has_a_bucket_and_a_name() {
    let location: Location = "s3://results/payments/pay_1".parse().unwrap();
    assert_eq!((&*location.bucket, &*location.name), ("results", "payments/pay_1"));
    assert_eq!(format!("{location} {location:?}"), r#"s3://results/payments/pay_1 Location { bucket: "results", .. }"#);
    for text in ["", "s3://", "s3://results", "s3://results/", "s3:///pay_1", "https://results/pay_1"] {
        text.parse::<Location>().unwrap_err();
    }
}

/// An owner token reads as 16 hexadecimal digits.
#[test]
fn an_owner_reads_as_hexadecimal() {
    assert_eq!(Owner::from_bytes([0, 1, 2, 3, 0x40, 0x5a, 0xfe, 0xff]).to_string(), "00010203405afeff");
}

#[test]
fn each_error_of_a_work_has_the_kind_and_the_delay_that_it_was_made_with() {
    let delay = Duration::from_secs(7);
    for (error, kind) in [
        (WorkError::retryable("x"), WorkErrorKind::Retryable { after: None }),
        (WorkError::retryable_after("x", delay), WorkErrorKind::Retryable { after: Some(delay) }),
        (WorkError::unavailable("x"), WorkErrorKind::Unavailable { after: None }),
        (WorkError::unavailable_after("x", delay), WorkErrorKind::Unavailable { after: Some(delay) }),
        (WorkError::busy("x"), WorkErrorKind::Busy { after: None }),
        (WorkError::busy_after("x", delay), WorkErrorKind::Busy { after: Some(delay) }),
        (WorkError::uncertain("x"), WorkErrorKind::Uncertain),
        (WorkError::permanent("x"), WorkErrorKind::Permanent),
    ] {
        assert_eq!(error.kind(), kind);
    }
}

/// An error of a work reads as its reason, and has the reason's cause.
#[test]
fn an_error_of_a_work_has_the_cause_of_its_reason() {
    let cause = io::Error::other("connection reset");
    let error = WorkError::uncertain(StoreError::unavailable(cause));
    assert_eq!(error.to_string(), "the idempotency store is unavailable");
    assert_eq!(error.source().unwrap().to_string(), "connection reset");
}

/// `work_fn` passes the claim and the input to its closure, and returns the closure's result.
#[tokio::test]
async fn a_closure_is_a_work() {
    let work = work_fn(|claim: &Claim, amount: &str| {
        let receipt = format!("{}: {amount}", claim.key());
        async move { Ok(receipt.into_bytes()) }
    });
    let idempotency = in_memory();
    let first = run(&idempotency, work).await;
    assert!(matches!(&first.outcome, Outcome::Done { result } if result == b"pay_1: 12.50 EUR"), "{first:?}");
    let again = run(&idempotency, work).await;
    assert!(matches!(&again.outcome, Outcome::Duplicate { .. }), "{again:?}");
}

/// A closure runs for recoveries too, and its errors are the work's errors.
#[tokio::test]
async fn a_closure_runs_as_a_recovery() {
    let work = work_fn(|claim: &Claim, _: &str| {
        let is_recovery = claim.is_recovery();
        async move { if is_recovery { Ok(b"recovered".to_vec()) } else { Err(WorkError::uncertain("no reply")) } }
    });
    let idempotency = in_memory();
    let first = run(&idempotency, work).await;
    assert!(matches!(first.outcome, Outcome::Failed { uncertain: true, .. }), "{first:?}");
    let again = run(&idempotency, work).await;
    assert!(matches!(&again.outcome, Outcome::Done { result } if result == b"recovered"), "{again:?}");
    assert_eq!(format!("{work:?}"), "WorkFn { .. }");
}

/// A work whose three methods return different results.
struct ThreeMethods;

impl Work<str> for ThreeMethods {
    async fn run(&self, _: &Claim, _: &str) -> Result<Vec<u8>, WorkError> {
        Ok(b"run".to_vec())
    }

    async fn recover(&self, _: &Claim, _: &str) -> Result<Vec<u8>, WorkError> {
        Ok(b"recover".to_vec())
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<str>> {
        Some(self)
    }
}

impl OwnRecord<str> for ThreeMethods {
    fn attempt<'a>(&'a self, _: &'a Claim, _: &'a str) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(ready(Ok(RecordedAttempt::Done(b"own record".to_vec()))))
    }

    fn recorded<'a>(&'a self, _: &'a AcquireRequest, _: Instant) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(ready(Ok(None)))
    }
}

async fn forwards_every_method(work: impl Work<str>) {
    assert_eq!(work.run(&claim("pay_1"), "").await.unwrap(), b"run");
    assert_eq!(work.recover(&recovery("pay_1"), "").await.unwrap(), b"recover");
    assert!(work.own_record().is_some());
    let report = run(&in_memory(), work).await;
    assert!(matches!(&report.outcome, Outcome::Done { result } if result == b"own record"), "{report:?}");
}

/// A pointer to a work calls the work's own `run`, `recover` and `own_record`, not the defaults of the trait.
#[tokio::test]
async fn a_work_behind_a_pointer_is_a_work() {
    forwards_every_method(ThreeMethods).await;
    forwards_every_method(&ThreeMethods).await;
    forwards_every_method(Arc::new(ThreeMethods)).await;
    forwards_every_method(Box::new(ThreeMethods)).await;
    forwards_every_method(&Arc::new(Box::new(ThreeMethods))).await;
}

/// A store behind `&`, `Arc` and `Box` passes the conformance suite.
#[tokio::test]
async fn a_store_behind_a_pointer_is_a_store() {
    tokio::join!(
        conformance::run_all(async || Arc::new(MemoryStore::default())),
        conformance::run_all(async || Box::new(MemoryStore::default())),
        conformance::run_all(async || &*Box::leak(Box::new(MemoryStore::default()))),
        conformance::run_all(async || Arc::new(Box::new(FaultyStore::new(MemoryStore::default())))),
    );
}

/// Clones of an `Arc` share their records.
#[tokio::test]
async fn clones_of_a_store_behind_an_arc_share_records() {
    let store = Arc::new(FaultyStore::new(MemoryStore::default()));
    let work = work_fn(|_: &Claim, _: &str| ready(Ok(Vec::new())));
    let first = run(&Idempotency::new(Arc::clone(&store), Policy::default()), work).await;
    assert!(matches!(first.outcome, Outcome::Done { .. }), "{first:?}");
    let again = run(&Idempotency::new(&store, Policy::default()), work).await;
    assert!(matches!(again.outcome, Outcome::Duplicate { .. }), "{again:?}");
    assert_eq!((store.calls(StoreCall::Acquire), store.calls(StoreCall::Settle)), (2, 1));
}

/// `AcquireRequest::new` has the documented defaults, and a new owner each time.
#[test]
fn a_new_attempt_has_the_default_policy_and_an_owner_of_its_own() {
    let key = Key::new("pay_1").unwrap();
    let (one, other) = (AcquireRequest::new(key.clone()), AcquireRequest::new(key));
    assert_ne!(one.owner, other.owner);
    assert_ne!(one.owner, attempt("pay_1").owner);
    assert_eq!((one.lease, one.longest_lease), (Duration::from_secs(60), Duration::from_hours(24)));
    assert_eq!((one.retention, one.max_attempts), (Duration::from_hours(14 * 24), 200));
}
