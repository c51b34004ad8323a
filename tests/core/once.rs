//! `Idempotency::once`: a closure that runs once for each key, and its value.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::with;
use idempotent_sqs::idempotency::{
    ClaimInfo, Deadline, Delivery, Fingerprint, Idempotency, Key, OnceError, Policy, Recovery, Store, WorkError,
    WorkErrorKind,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, advance};

#[derive(Serialize)]
struct Payment {
    amount: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    id: String,
    attempt: u8,
}

const PAYMENT: Payment = Payment { amount: 1250 };

fn key() -> Key {
    Key::new("pay_1").unwrap()
}

fn in_memory() -> Idempotency<MemoryStore> {
    Idempotency::new(MemoryStore::default(), Policy::default())
}

/// Calls `once` with a closure that returns a receipt.
async fn pay<S: Store>(idempotency: &Idempotency<S>) -> Result<Receipt, OnceError> {
    idempotency.once(key(), &PAYMENT, |claim| async move { Ok(receipt(&claim)) }).await
}

fn receipt(claim: &ClaimInfo) -> Receipt {
    Receipt { id: format!("receipt of {}", claim.key), attempt: claim.attempt }
}

/// Calls `once` with a closure that fails.
async fn fail<S: Store>(idempotency: &Idempotency<S>, error: fn(&'static str) -> WorkError) -> OnceError {
    let run = idempotency.once(key(), &PAYMENT, |_| async move { Err::<Receipt, _>(error("refused")) });
    run.await.unwrap_err()
}

#[tokio::test]
async fn the_closure_runs_once_and_each_call_returns_its_value() {
    let (idempotency, runs) = (in_memory(), AtomicUsize::new(0));
    for _ in 0..3 {
        let value = idempotency.once(key(), &PAYMENT, |claim| {
            runs.fetch_add(1, Ordering::SeqCst);
            async move { Ok(receipt(&claim)) }
        });
        assert_eq!(value.await.unwrap(), Receipt { id: "receipt of pay_1".into(), attempt: 1 });
    }
    assert_eq!(runs.into_inner(), 1);
}

#[tokio::test]
async fn another_payload_under_the_key_is_a_mismatch() {
    let idempotency = in_memory();
    pay(&idempotency).await.unwrap();
    let other = idempotency.once(key(), &Payment { amount: 99 }, |claim| async move { Ok(receipt(&claim)) });
    assert!(matches!(other.await, Err(OnceError::Mismatch)));
}

#[tokio::test]
async fn a_call_during_another_is_a_conflict_with_its_remaining_lease() {
    let idempotency = in_memory();
    let outer = idempotency.once(key(), &PAYMENT, |claim| {
        let inner = pay(&idempotency);
        async move {
            match inner.await {
                Err(OnceError::Conflict { lease_remains }) => assert!(lease_remains > Duration::from_secs(50)),
                other => panic!("{other:?}"),
            }
            Ok(receipt(&claim))
        }
    });
    outer.await.unwrap();
}

#[tokio::test]
async fn the_call_after_an_uncertain_one_is_a_recovery() {
    let idempotency = in_memory();
    match fail(&idempotency, WorkError::uncertain).await {
        OnceError::Failed { error, uncertain: true, permanent: false } => {
            assert_eq!((error.kind(), error.to_string()), (WorkErrorKind::Uncertain, "refused".into()));
        }
        other => panic!("{other:?}"),
    }
    let told = idempotency.once(key(), &PAYMENT, |claim| async move { Ok((claim.is_recovery, claim.attempt)) });
    assert_eq!(told.await.unwrap(), (true, 2));
}

#[tokio::test]
async fn a_panic_of_the_closure_is_uncertain() {
    let idempotency = in_memory();
    let panics = idempotency.once(key(), &PAYMENT, |_| async move { panic!("planned") });
    let error: Result<Receipt, _> = panics.await;
    assert!(matches!(error, Err(OnceError::Failed { uncertain: true, permanent: false, .. })), "{error:?}");
    let told = idempotency.once(key(), &PAYMENT, |claim| async move { Ok(claim.is_recovery) });
    assert!(told.await.unwrap());
}

#[tokio::test]
async fn an_unavailable_receiver_is_no_attempt() {
    let idempotency = in_memory();
    for _ in 0..3 {
        let error = fail(&idempotency, WorkError::unavailable).await;
        assert!(matches!(error, OnceError::Failed { uncertain: false, permanent: false, .. }), "{error:?}");
    }
    assert_eq!(pay(&idempotency).await.unwrap().attempt, 1);
}

#[tokio::test]
async fn an_unavailable_receiver_of_a_recovery_leaves_the_earlier_call_in_doubt() {
    let idempotency = in_memory();
    fail(&idempotency, WorkError::uncertain).await;
    for _ in 0..2 {
        let error = fail(&idempotency, WorkError::unavailable).await;
        assert!(matches!(error, OnceError::Failed { uncertain: true, permanent: false, .. }), "{error:?}");
    }
    let told = idempotency.once(key(), &PAYMENT, |claim| async move { Ok((claim.is_recovery, claim.attempt)) });
    assert_eq!(told.await.unwrap(), (true, 2));
}

#[tokio::test]
async fn a_permanent_failure_applies_until_another_message_comes() {
    let idempotency = in_memory();
    let error = fail(&idempotency, WorkError::permanent).await;
    assert!(matches!(error, OnceError::Failed { permanent: true, .. }), "{error:?}");
    assert!(matches!(pay(&idempotency).await, Err(OnceError::FailedBefore)));
    let another = Delivery::new(key()).message_id("another");
    let told = idempotency.once(another, &PAYMENT, |claim| async move { Ok(claim.attempt) });
    assert_eq!(told.await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_spent_failure_applies_for_its_failed_retention_and_then_recovers() {
    let policy = with!(Policy::default(), max_attempts = 1, failed_retention = Duration::from_mins(10));
    let idempotency = Idempotency::new(MemoryStore::default(), policy);
    fail(&idempotency, WorkError::uncertain).await;
    advance(Duration::from_secs(599)).await;
    assert!(matches!(pay(&idempotency).await, Err(OnceError::FailedBefore)));
    advance(Duration::from_secs(2)).await;
    let told = idempotency.once(key(), &PAYMENT, |claim| async move { Ok((claim.is_recovery, claim.attempt)) });
    assert_eq!(told.await.unwrap(), (true, 1));
}

#[tokio::test]
async fn each_number_is_the_same_when_it_is_read_again() {
    let idempotency = in_memory();
    // Of these, the shortest text is not read exactly by each parser.
    for (number, amount) in [941.487_000_000_000_1, 938_129.296_002_443_9, 0.1 + 0.2, f64::MAX].into_iter().enumerate()
    {
        let call = || idempotency.once(Key::new(&number.to_string()).unwrap(), &(), |_| async move { Ok(amount) });
        let (first, later): (f64, f64) = (call().await.unwrap(), call().await.unwrap());
        assert_eq!((first.to_bits(), later.to_bits()), (amount.to_bits(), amount.to_bits()));
    }
}

#[tokio::test]
async fn a_parked_recovery_did_not_run() {
    let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), recovery = Recovery::Park));
    fail(&idempotency, WorkError::uncertain).await;
    assert!(matches!(pay(&idempotency).await, Err(OnceError::FailedBefore)));
}

#[tokio::test(start_paused = true)]
async fn a_parked_recovery_that_could_not_be_recorded_did_not_run() {
    let store = FaultyStore::new(MemoryStore::default());
    let idempotency = Idempotency::new(&store, with!(Policy::default(), recovery = Recovery::Park));
    fail(&idempotency, WorkError::uncertain).await;
    store.always(StoreCall::Settle, Some(Fault::Refused));
    assert!(matches!(pay(&idempotency).await, Err(OnceError::FailedBefore)));
}

#[tokio::test(start_paused = true)]
async fn a_closure_is_cancelled_at_the_deadline_of_its_delivery() {
    let idempotency = in_memory();
    let delivery = Delivery::new(key()).deadline(Deadline::within(Duration::from_secs(8)));
    let started = Instant::now();
    let hangs = idempotency.once(delivery, &PAYMENT, |_| std::future::pending::<Result<Receipt, WorkError>>());
    assert!(matches!(hangs.await, Err(OnceError::Failed { uncertain: true, .. })));
    assert!(started.elapsed() < Duration::from_secs(8));
}

#[tokio::test]
async fn a_value_above_the_limit_is_returned_once_and_not_kept() {
    let policy = with!(Policy::default(), result_max_bytes = 10);
    let idempotency = Idempotency::new(MemoryStore::default(), policy);
    pay(&idempotency).await.unwrap();
    assert!(matches!(pay(&idempotency).await, Err(OnceError::NotKept)));
}

#[tokio::test]
async fn a_value_of_another_type_is_an_error_and_does_not_run_again() {
    let idempotency = in_memory();
    pay(&idempotency).await.unwrap();
    let other = idempotency.once(key(), &PAYMENT, |_| async move { Ok(7_u64) });
    assert!(matches!(other.await, Err(OnceError::OtherType(_))));
}

#[tokio::test]
async fn a_value_that_is_not_json_is_returned_and_not_kept() {
    let idempotency = in_memory();
    let value = || HashMap::from([(vec![1_u8], 1_u8)]);
    let first = idempotency.once(key(), &PAYMENT, |_| async move { Ok(value()) });
    assert_eq!(first.await.unwrap(), value());
    let again = idempotency.once(key(), &PAYMENT, |_| async move { Ok(value()) });
    assert!(matches!(again.await, Err(OnceError::NotKept)));
}

#[tokio::test]
async fn a_payload_that_is_not_json_runs_nothing() {
    let payload = HashMap::from([(vec![1_u8], 1_u8)]);
    let run = in_memory().once(key(), &payload, |_| async move { Err::<(), _>(WorkError::permanent("it ran")) }).await;
    assert!(matches!(run, Err(OnceError::Payload(_))), "{run:?}");
}

#[test]
fn the_error_of_a_payload_beyond_the_limits_names_both() {
    for beyond in ["[".repeat(129) + &"]".repeat(129), format!("1e{}", "9".repeat(60))] {
        let value = serde_json::value::RawValue::from_string(beyond).unwrap();
        let error = Fingerprint::of_json(&value).unwrap_err().to_string();
        assert!(error.contains("nested") && error.contains("exponent"), "{error}");
    }
}

#[tokio::test]
async fn a_store_that_is_out_of_reach_runs_nothing() {
    let store = FaultyStore::new(MemoryStore::default());
    store.next(StoreCall::Acquire, Fault::Refused);
    let idempotency = Idempotency::new(&store, Policy::default());
    assert!(matches!(fail(&idempotency, WorkError::permanent).await, OnceError::Store(_)));
    assert_eq!(pay(&idempotency).await.unwrap().attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_could_not_be_recorded_is_returned_and_the_next_call_is_a_recovery() {
    let store = FaultyStore::new(MemoryStore::default());
    let idempotency = Idempotency::new(&store, Policy::default());
    let run = idempotency.once(key(), &PAYMENT, |claim| {
        store.always(StoreCall::Settle, Some(Fault::Refused));
        async move { Ok(receipt(&claim)) }
    });
    assert_eq!(run.await.unwrap().attempt, 1);
    store.always(StoreCall::Settle, None);
    advance(Duration::from_secs(62)).await;
    let told = idempotency.once(key(), &PAYMENT, |claim| async move { Ok(claim.is_recovery) });
    assert!(told.await.unwrap());
}

#[test]
fn the_fingerprint_of_a_value_is_that_of_its_json() {
    let of = |text: &str| Fingerprint::of_json_text(text).unwrap();
    assert_eq!(Fingerprint::of_json(&PAYMENT).unwrap(), of(&serde_json::to_string(&PAYMENT).unwrap()));
    assert_eq!(of(r#"{"a":[{"b":1,"c":2}],"d":3}"#), of(r#"{ "d": 3, "a": [ { "c": 2, "b": 1 } ] }"#));
    let different =
        ["1", "\"1\"", "[1]", "{\"a\":1}", "{\"a\":\"1\"}", "null", "[1,2]", "[2,1]", "0.1", "0.10000000000000001"];
    for (index, one) in different.iter().enumerate() {
        for other in &different[..index] {
            assert_ne!(of(one), of(other), "{one} {other}");
        }
    }
    let many: HashMap<String, u32> = (0..50).map(|number| (number.to_string(), number)).collect();
    let same: HashMap<String, u32> = many.clone().into_iter().collect();
    assert_eq!(Fingerprint::of_json(&many).unwrap(), Fingerprint::of_json(&same).unwrap());
}
