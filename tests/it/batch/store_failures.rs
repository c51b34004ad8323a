//! An unreachable store, completions that cannot be recorded, and claims that another owner took over.

use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::time::{Instant, advance};

use super::{QUEUE_TIMEOUT, TIME, batch, dispositions, has_first_backoff, many, outcomes, run, settings};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{Deadline, Idempotency, Policy, Recovery, StoreError};
use idempotent_sqs::sqs::{Batch, Disposition};
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
    let (store, work) =
        (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Sleep(Duration::from_secs(1))));
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
