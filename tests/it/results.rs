//! Results that are too large for a record and stored as objects (`idempotency::results`).

use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::Credentials;
use futures_util::future::{BoxFuture, pending};
use tokio::time::Instant;

use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::aws::AwsConfig;
use idempotent_sqs::idempotency::{
    Deadline, Delivery, Idempotency, Key, Location, MAX_RESULT_BYTES, ObjectError, ObjectStore, Outcome, Policy,
    Results, Store,
};
use idempotent_sqs::s3::{S3, S3Settings};
use idempotent_sqs::sqs::{Batch, BatchSettings, Message};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, MemoryObjectStore, StoreCall};

const LARGE: &[u8] = &[7; 5000];

/// An object store that never responds.
#[derive(Debug)]
struct Unreachable;

impl ObjectStore for Unreachable {
    fn get<'a>(&'a self, _location: &'a Location, _max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(pending())
    }

    fn put<'a>(&'a self, _location: &'a Location, _bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(pending())
    }
}

fn policy(objects: Arc<dyn ObjectStore>) -> Policy {
    let results = Results::new(objects, "results", "payments/");
    with!(Policy::default(), results = Some(results))
}

fn delivery(key: &str) -> Delivery {
    Delivery::new(Key::new(key).unwrap()).deadline(Deadline::within(Duration::from_secs(30)))
}

async fn run<S: Store>(idempotency: &Idempotency<S>, work: &ScriptedWork, delivery: &Delivery) -> Outcome {
    idempotency.run(delivery, work, &Message::default()).await.unwrap().outcome
}

fn is_duplicate_of(outcome: &Outcome, result: Option<&[u8]>) -> bool {
    matches!(outcome, Outcome::Duplicate { result: stored } if stored.as_deref() == result)
}

#[tokio::test]
async fn a_duplicate_returns_a_large_result() {
    let objects = Arc::new(MemoryObjectStore::default());
    let idempotency = Idempotency::new(MemoryStore::default(), policy(objects.clone()));
    let work = ScriptedWork::always(Action::Return(LARGE));
    assert!(matches!(run(&idempotency, &work, &delivery("pay_1")).await, Outcome::Done { result } if result == LARGE));
    assert!(is_duplicate_of(&run(&idempotency, &work, &delivery("pay_1")).await, Some(LARGE)));
    assert_eq!(work.runs().len(), 1);
    let fence = work.runs()[0].fence;
    let locations: Vec<_> = objects.locations().iter().map(ToString::to_string).collect();
    assert_eq!(locations, [format!("s3://results/payments/pay_1/{fence}")]);
}

#[tokio::test]
async fn a_result_that_fits_into_the_record_writes_no_object() {
    let objects = Arc::new(MemoryObjectStore::default());
    let idempotency = Idempotency::new(MemoryStore::default(), policy(objects.clone()));
    let work = ScriptedWork::always(Action::Return(&LARGE[..4096]));
    run(&idempotency, &work, &delivery("pay_1")).await;
    assert!(is_duplicate_of(&run(&idempotency, &work, &delivery("pay_1")).await, Some(&LARGE[..4096])));
    assert!(objects.locations().is_empty());
}

#[tokio::test]
async fn each_claim_writes_its_own_object() {
    let objects = Arc::new(MemoryObjectStore::default());
    let store = FaultyStore::new(MemoryStore::default());
    let idempotency = Idempotency::new(&store, policy(objects.clone()));
    let work = ScriptedWork::new(|run| Action::Return(if run.attempt == 1 { &[1; 5000] } else { &[2; 5000] }));
    // The first owner stops after its object is written and before its record is.
    store.next(StoreCall::Settle, Fault::Unreachable);
    let brief = delivery("pay_1").deadline(Deadline::within(Duration::from_millis(200)));
    assert!(matches!(run(&idempotency, &work, &brief).await, Outcome::Unsettled { .. }));
    loop {
        match run(&idempotency, &work, &delivery("pay_1")).await {
            Outcome::Conflict { lease_remains } => tokio::time::sleep(lease_remains).await,
            Outcome::Done { result } => break assert_eq!(result, [2; 5000]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(objects.locations().len(), 2);
    assert!(is_duplicate_of(&run(&idempotency, &work, &delivery("pay_1")).await, Some(&[2; 5000])));
}

#[tokio::test(start_paused = true)]
async fn unreachable_objects_fail_neither_the_work_nor_its_duplicate() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(LARGE)));
    let unreachable = Idempotency::new(&store, policy(Arc::new(Unreachable)));
    let started = Instant::now();
    assert!(matches!(run(&unreachable, &work, &delivery("pay_1")).await, Outcome::Done { result } if result == LARGE));
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    assert!(is_duplicate_of(&run(&unreachable, &work, &delivery("pay_1")).await, None));

    let objects = Arc::new(MemoryObjectStore::default());
    let reachable = Idempotency::new(&store, policy(objects.clone()));
    run(&reachable, &work, &delivery("pay_2")).await;
    let started = Instant::now();
    assert!(is_duplicate_of(&run(&unreachable, &work, &delivery("pay_2")).await, None));
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    let elsewhere = Idempotency::new(&store, policy(Arc::new(MemoryObjectStore::default())));
    assert!(is_duplicate_of(&run(&elsewhere, &work, &delivery("pay_2")).await, None), "the object is not found");
    let without = Idempotency::new(&store, Policy::default());
    assert!(is_duplicate_of(&run(&without, &work, &delivery("pay_2")).await, None), "a policy without objects");
    assert_eq!(work.runs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_time_reserved_for_settling_is_not_spent_on_an_object() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::new(|_| Action::Return(LARGE)));
    let idempotency = Idempotency::new(&store, policy(Arc::new(Unreachable)));
    let brief = delivery("pay_1").deadline(Deadline::within(Duration::from_secs(4)));
    let started = Instant::now();
    assert!(matches!(run(&idempotency, &work, &brief).await, Outcome::Done { .. }));
    assert_eq!(started.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_large_result_is_not_read_beyond_the_time_for_settling() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(LARGE)));
    run(&Idempotency::new(&store, policy(Arc::new(MemoryObjectStore::default()))), &work, &delivery("pay_1")).await;
    let unreachable = Idempotency::new(&store, policy(Arc::new(Unreachable)));
    let deadline = Deadline::within(Duration::from_secs(4));
    assert!(is_duplicate_of(&run(&unreachable, &work, &delivery("pay_1").deadline(deadline)).await, None));
    // Timers end at whole milliseconds.
    let late = Instant::now() - deadline.settle;
    assert!(late <= Duration::from_millis(1), "{late:?}");
}

#[tokio::test]
async fn a_result_larger_than_a_lambda_response_is_not_kept() {
    static HUGE: [u8; MAX_RESULT_BYTES + 1] = [0; MAX_RESULT_BYTES + 1];
    let objects = Arc::new(MemoryObjectStore::default());
    let idempotency = Idempotency::new(MemoryStore::default(), policy(objects.clone()));
    let work = ScriptedWork::new(|run| Action::Return(if run.key == "huge" { &HUGE } else { &HUGE[1..] }));
    run(&idempotency, &work, &delivery("huge")).await;
    assert!(is_duplicate_of(&run(&idempotency, &work, &delivery("huge")).await, None));
    run(&idempotency, &work, &delivery("large")).await;
    assert!(is_duplicate_of(&run(&idempotency, &work, &delivery("large")).await, Some(&HUGE[1..])));
    assert_eq!(objects.locations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_does_not_fetch_the_result_of_a_duplicate() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(LARGE)));
    let batch = |objects| {
        let idempotency = Idempotency::new(&store, policy(objects));
        Batch::new(idempotency, &work, BatchSettings::default())
    };
    let message = [with!(Message::default(), id = "m1".into(), body = Some("12.50 EUR".into()))];
    let deadline = || Deadline::within(Duration::from_secs(30));
    batch(Arc::new(MemoryObjectStore::default())).run(&message, deadline()).await.unwrap();
    let started = Instant::now();
    let reports = batch(Arc::new(Unreachable)).run(&message, deadline()).await.unwrap();
    assert_eq!((reports[0].outcome.as_str(), started.elapsed()), ("DUPLICATE", Duration::ZERO));
}

#[tokio::test]
async fn a_large_result_is_written_to_s3_and_read_back() {
    let s3 = harness::s3::S3::start().await;
    let settings = with!(S3Settings::new("eu-central-1"), endpoint = Some(s3.url().parse().unwrap()));
    let objects =
        S3::new(settings, AwsConfig::default()).credentials(Credentials::new("test", "test", None, None, "test"));
    let idempotency = Idempotency::new(MemoryStore::default(), policy(Arc::new(objects)));
    let work = ScriptedWork::always(Action::Return(LARGE));
    run(&idempotency, &work, &delivery("pay/1")).await;
    assert_eq!(s3.objects().into_values().collect::<Vec<_>>(), [LARGE]);
    assert!(is_duplicate_of(&run(&idempotency, &work, &delivery("pay/1")).await, Some(LARGE)));
    let path = s3.objects().into_keys().next().unwrap();
    assert!(path.starts_with("/results/payments/sha256%3A"), "{path}");
    assert_eq!(s3.take_calls(), [format!("PUT {path}"), format!("GET {path}")]);
}

/// An object store that panics, when it is called or in its future.
#[derive(Debug)]
struct Panicking {
    in_its_future: bool,
}

impl ObjectStore for Panicking {
    fn get<'a>(&'a self, _location: &'a Location, _max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        assert!(self.in_its_future, "called");
        Box::pin(async { panic!("awaited") })
    }

    fn put<'a>(&'a self, _location: &'a Location, _bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        assert!(self.in_its_future, "called");
        Box::pin(async { panic!("awaited") })
    }
}

#[tokio::test]
async fn work_is_done_even_if_the_object_store_panics() {
    for in_its_future in [false, true] {
        let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(LARGE)));
        let panicking = Idempotency::new(&store, policy(Arc::new(Panicking { in_its_future })));
        assert!(matches!(run(&panicking, &work, &delivery("pay_1")).await, Outcome::Done { .. }));
        assert!(is_duplicate_of(&run(&panicking, &work, &delivery("pay_1")).await, None));

        let working = Idempotency::new(&store, policy(Arc::new(MemoryObjectStore::default())));
        run(&working, &work, &delivery("pay_2")).await;
        assert!(is_duplicate_of(&run(&panicking, &work, &delivery("pay_2")).await, None));
    }
}
