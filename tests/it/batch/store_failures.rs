//! An unreachable store, completions that cannot be recorded, and claims that another owner took over.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lambda_runtime::Context;
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::{QUEUE_TIMEOUT, TIME, batch, dispositions, has_first_backoff, many, message, outcomes, run, settings};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{AcquireRequest, Deadline, Idempotency, Key, Policy, Recovery, Store, StoreError};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, Disposition, Visibility};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_before_any_work_fails_the_batch_without_a_call_for_each_message() {
    for fault in [Fault::Refused, Fault::ReplyLost, Fault::Unreachable] {
        let (store, work) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
        store.always(StoreCall::Acquire, Some(fault));
        let error = batch(&store, &work).run(&many(1000), Deadline::within(TIME)).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)));
        assert!(store.calls(StoreCall::Acquire) <= 16, "{}", store.calls(StoreCall::Acquire));
        assert_eq!(work.runs().len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_in_mid_batch_affects_only_messages_without_a_claim() {
    let store = FaultyStore::new(MemoryStore::default());
    let work = ScriptedWork::new(|run| Action::Sleep(Duration::from_secs(if run.key == "pay_0" { 1 } else { 2 })));
    let settings = with!(settings(), concurrency = NonZeroUsize::new(2).unwrap());
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    let fails = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        store.always(StoreCall::Acquire, Some(Fault::Refused));
    };
    let messages = many(6);
    let (reports, ()) = tokio::join!(batch.run(&messages, Deadline::within(TIME)), fails);
    let reports = reports.unwrap();
    assert_eq!(dispositions(&reports)[..2], [Disposition::Done; 2]);
    assert!(reports[2..].iter().all(|report| has_first_backoff(report.disposition)), "{reports:?}");
    assert_eq!(work.runs().len(), 2);
    // The third message found the outage, while the fourth one waited for its slot.
    assert_eq!(store.calls(StoreCall::Acquire), 3);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_completion_cannot_be_recorded_is_not_acknowledged() {
    let (store, work) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Return(b"")));
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let reports = run(&batch(&store, &work), &many(1)).await;
    assert!(has_first_backoff(reports[0].disposition), "{reports:?}");
    assert!(reports[0].reason.contains("could not be recorded"), "{}", reports[0].reason);
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_parked_message_that_could_not_be_recorded_is_that_it_did_not_run() {
    let (store, work) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::FailUncertain));
    let parks = Idempotency::new(&store, with!(Policy::default(), recovery = Recovery::Park));
    let batch = Batch::new(parks, &work, settings());
    run(&batch, &many(1)).await;
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let reports = run(&batch, &many(1)).await;
    assert!(!reports[0].ran);
    assert!(reports[0].reason.starts_with("the work did not run, and this could not be recorded"), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_work_is_done_acknowledges_the_message_although_it_lost_its_claim() {
    for (other, outcome) in [
        (Action::Return(b""), "LOST"),
        // A completion is recorded even if the other owner failed.
        (Action::FailRetryable, "ACQUIRED"),
        (Action::Hang, "LOST"),
    ] {
        let (store, slow) = (MemoryStore::default(), ScriptedWork::always(Action::Sleep(Duration::from_secs(20))));
        let (slow_batch, other) = (batch(&store, &slow), ScriptedWork::always(other));
        let other_batch = batch(&store, &other);
        let messages = many(1);
        let stale = with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1));
        let takes_over = async {
            advance(Duration::from_secs(5)).await;
            // A run that hangs is not settled yet when the slow owner settles.
            let _ = tokio::time::timeout(Duration::from_secs(20), run(&other_batch, &messages)).await;
        };
        let (reports, ()) = tokio::join!(slow_batch.run(&messages, stale), takes_over);
        let reports = reports.unwrap();
        assert_eq!((outcomes(&reports), dispositions(&reports)), (vec![outcome], vec![Disposition::Done]));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_failed_and_lost_its_claim_does_not_acknowledge_the_message() {
    let (store, slow) = (MemoryStore::default(), ScriptedWork::always(Action::Hang));
    let (slow_batch, other) = (batch(&store, &slow), ScriptedWork::always(Action::Return(b"")));
    let other_batch = batch(&store, &other);
    let messages = many(1);
    let stale = with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1));
    let takes_over = async {
        advance(Duration::from_secs(5)).await;
        run(&other_batch, &messages).await
    };
    let (reports, other) = tokio::join!(slow_batch.run(&messages, stale), takes_over);
    assert_eq!(dispositions(&other), [Disposition::Done]);
    // The completed payload may be another one with the same key. The next delivery compares them.
    assert_eq!(
        (outcomes(reports.as_ref().unwrap()), dispositions(&reports.unwrap())),
        (vec!["LOST"], vec![QUEUE_TIMEOUT])
    );
}

/// The new visibility timeout of each of these messages. The store fails before any work runs.
async fn delays_in_outage(store: &FaultyStore<MemoryStore>, records: &[Value]) -> Vec<Duration> {
    let work = ScriptedWork::always(Action::Return(b""));
    let settings = with!(settings(), concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(Idempotency::new(store, Policy::default()), &work, settings);
    let delays = Arc::new(Mutex::new(Vec::new()));
    let changes = Arc::clone(&delays);
    let visibility = Visibility::with_replacement(move |_, after| {
        changes.lock().unwrap().push(after);
        Ok(())
    });
    let context = with!(Context::default(), deadline = 30_000);
    let event = json!({ "Records": records }).to_string();
    Handler::new(batch, Some(visibility)).handle(&event, &context).await.unwrap_err();
    assert!(work.runs().is_empty());
    delays.lock().unwrap().clone()
}

fn record(id: &str) -> Value {
    json!({ "messageId": id, "body": json!({ "key": id }).to_string() })
}

/// A record of the same group as others. `receives` is how often it was received.
fn record_in_group(id: &str, receives: &str) -> Value {
    let mut record = record(id);
    record["attributes"] = json!({ "MessageGroupId": "a", "ApproximateReceiveCount": receives });
    record["eventSourceARN"] = "arn:aws:sqs:eu-central-1:123456789012:payments.fifo".into();
    record
}

/// A record with the same key as others. `receives` is how often it was received.
fn record_of_pay_1(id: &str, receives: &str) -> Value {
    let mut record = record(id);
    record["body"] = json!({ "key": "pay_1" }).to_string().into();
    record["attributes"] = json!({ "ApproximateReceiveCount": receives });
    record
}

/// A lease of this key that another owner holds for this time.
async fn lease(store: &FaultyStore<MemoryStore>, key: &str, lease: Duration) {
    let request = with!(AcquireRequest::new(Key::new(key).unwrap()), lease = lease);
    store.acquire(request).await.unwrap();
}

#[tokio::test]
async fn in_an_outage_a_message_waits_no_longer_than_the_first_one_of_its_group() {
    let store = FaultyStore::new(MemoryStore::default());
    store.always(StoreCall::Acquire, Some(Fault::Refused));
    let delays = delays_in_outage(&store, &[record_in_group("a1", "1"), record_in_group("a2", "10")]).await;
    assert!(delays[0] <= Duration::from_secs(2) && delays[0] == delays[1], "{delays:?}");
}

#[tokio::test]
async fn in_an_outage_a_message_waits_no_longer_than_a_duplicate_before_it_in_its_group() {
    let store = FaultyStore::new(MemoryStore::default());
    let done = ScriptedWork::always(Action::Return(b""));
    run(&batch(&store, &done), &[message("a1", "a1")]).await;
    store.next(StoreCall::Acquire, Fault::Slow(Duration::ZERO));
    store.next(StoreCall::Acquire, Fault::Refused);
    let delays = delays_in_outage(&store, &[record_in_group("a1", "1"), record_in_group("a2", "10")]).await;
    assert!(delays[0] <= Duration::from_secs(2) && delays[0] == delays[1], "{delays:?}");
}

#[tokio::test]
async fn in_an_outage_in_batch_duplicates_are_at_least_5_seconds_apart() {
    for is_leased in [false, true].repeat(20) {
        let store = FaultyStore::new(MemoryStore::default());
        if is_leased {
            lease(&store, "pay_1", Duration::from_secs(600)).await;
            store.next(StoreCall::Acquire, Fault::Slow(Duration::ZERO));
        }
        store.next(StoreCall::Acquire, Fault::Refused);
        let records = [record_of_pay_1("m1", "10"), record_of_pay_1("m2", "10"), record("m3")];
        let delays = delays_in_outage(&store, &records).await;
        assert!(delays[1] >= delays[0] + Duration::from_secs(5), "{is_leased}: {delays:?}");
    }
}

#[tokio::test]
async fn in_an_outage_an_in_batch_duplicate_waits_for_the_backoff_of_its_own_receives() {
    let store = FaultyStore::new(MemoryStore::default());
    store.always(StoreCall::Acquire, Some(Fault::Refused));
    let delays = delays_in_outage(&store, &[record_of_pay_1("m1", "1"), record_of_pay_1("m2", "10")]).await;
    assert!(delays[0] <= Duration::from_secs(2) && delays[1] > Duration::from_secs(60), "{delays:?}");
}

#[tokio::test]
async fn a_conflict_waits_for_the_lease_also_if_the_store_fails_before_any_work_ran() {
    let store = FaultyStore::new(MemoryStore::default());
    lease(&store, "m1", Duration::from_secs(600)).await;
    store.next(StoreCall::Acquire, Fault::Slow(Duration::ZERO));
    store.next(StoreCall::Acquire, Fault::Refused);
    let delays = delays_in_outage(&store, &[record("m1"), record("m2")]).await;
    assert!(delays[0] >= Duration::from_secs(590) && delays[1] <= Duration::from_secs(2), "{delays:?}");
}

#[tokio::test]
async fn in_an_outage_messages_behind_a_conflict_of_their_group_wait_for_its_lease_too() {
    let store = FaultyStore::new(MemoryStore::default());
    lease(&store, "a1", Duration::from_secs(600)).await;
    store.next(StoreCall::Acquire, Fault::Slow(Duration::ZERO));
    store.next(StoreCall::Acquire, Fault::Refused);
    let records = [record_in_group("a1", "1"), record_in_group("a2", "1"), record("m3")];
    let delays = delays_in_outage(&store, &records).await;
    assert!(delays[0] >= Duration::from_secs(590) && delays[0] == delays[1], "{delays:?}");
    assert!(delays[2] <= Duration::from_secs(2), "{delays:?}");
}

#[tokio::test]
async fn in_an_outage_the_last_of_a_group_waits_as_long_as_a_conflict_before_it() {
    let store = FaultyStore::new(MemoryStore::default());
    let done = ScriptedWork::always(Action::Return(b""));
    run(&batch(&store, &done), &[message("a1", "a1"), message("b1", "b1")]).await;
    lease(&store, "a2", Duration::from_secs(600)).await;
    // The groups take turns: a1, b1, a2, b2.
    for _ in 0..3 {
        store.next(StoreCall::Acquire, Fault::Slow(Duration::ZERO));
    }
    store.next(StoreCall::Acquire, Fault::Refused);
    let [mut b1, mut b2] = ["b1", "b2"].map(|id| record_in_group(id, "1"));
    for record in [&mut b1, &mut b2] {
        record["attributes"]["MessageGroupId"] = "b".into();
    }
    let [a1, a2, a3] = ["a1", "a2", "a3"].map(|id| record_in_group(id, "1"));
    let delays = delays_in_outage(&store, &[a1, a2, a3, b1, b2]).await;
    assert!(delays[0] <= Duration::from_secs(2), "{delays:?}");
    assert!(delays[1] >= Duration::from_secs(590) && delays[1] == delays[2], "{delays:?}");
}

#[tokio::test]
async fn in_an_outage_a_conflict_waits_as_long_as_an_earlier_message_of_its_group_if_its_lease_ends_before() {
    let store = FaultyStore::new(MemoryStore::default());
    let done = ScriptedWork::always(Action::Return(b""));
    run(&batch(&store, &done), &[message("a1", "a1"), message("m3", "m3")]).await;
    lease(&store, "a2", Duration::from_secs(60)).await;
    // Messages of two groups take turns, so these are the acquires of two duplicates, the conflict, and the last one.
    for _ in 0..3 {
        store.next(StoreCall::Acquire, Fault::Slow(Duration::ZERO));
    }
    store.next(StoreCall::Acquire, Fault::Refused);
    let records = [record_in_group("a1", "10"), record_in_group("a2", "1"), record("m3"), record("m4")];
    let delays = delays_in_outage(&store, &records).await;
    assert!(delays[0] > Duration::from_secs(60) && delays[0] == delays[1], "{delays:?}");
}
