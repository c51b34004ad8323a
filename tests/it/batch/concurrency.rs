//! How many messages run at once, and messages without time to start.

use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::time::Instant;

use super::{QUEUE_TIMEOUT, TIME, dispositions, many, outcomes, run, settings};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{Deadline, Idempotency, Policy};
use idempotent_sqs::sqs::{Batch, Disposition};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};

#[tokio::test(start_paused = true)]
async fn the_concurrency_limits_the_messages_that_are_claimed_and_run_at_once() {
    let (store, work) =
        (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Sleep(Duration::from_secs(1))));
    let settings = with!(settings(), concurrency = NonZeroUsize::new(3).unwrap());
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    let messages = many(10);
    let run = batch.run(&messages, Deadline::within(TIME));
    tokio::pin!(run);
    assert!(tokio::time::timeout(Duration::from_millis(1500), &mut run).await.is_err());
    assert_eq!((store.calls(StoreCall::Acquire), work.runs().len()), (6, 6));
    run.await.unwrap();
    assert_eq!((store.calls(StoreCall::Acquire), work.runs().len(), work.max_concurrent()), (10, 10, 3));
}

#[tokio::test(start_paused = true)]
async fn a_message_starts_while_the_previous_one_is_being_recorded() {
    let (store, work) =
        (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Sleep(Duration::from_secs(1))));
    store.always(StoreCall::Settle, Some(Fault::Slow(Duration::from_secs(1))));
    let settings = with!(settings(), concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    let started = Instant::now();
    let reports = run(&batch, &many(4)).await;
    assert_eq!(dispositions(&reports), [Disposition::Done; 4]);
    // Four runs of one second one after another, and one second for the last record.
    assert_eq!((started.elapsed(), work.max_concurrent()), (Duration::from_secs(5), 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_time_to_start_is_reported_and_not_claimed() {
    let (store, work) =
        (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::Sleep(Duration::from_secs(20))));
    let settings = with!(settings(), concurrency = NonZeroUsize::new(2).unwrap());
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    let started = Instant::now();
    let reports = batch.run(&many(6), Deadline::within(TIME)).await.unwrap();
    assert!(started.elapsed() < TIME);
    assert_eq!(outcomes(&reports), ["ACQUIRED", "ACQUIRED", "ACQUIRED", "ACQUIRED", "NOT_PROCESSED", "NOT_PROCESSED"]);
    assert_eq!(dispositions(&reports)[..2], [Disposition::Done; 2]);
    assert_eq!(dispositions(&reports)[4..], [QUEUE_TIMEOUT; 2]);
    assert_eq!(store.calls(StoreCall::Acquire), 4);
    // The two cancelled runs were settled, so they are recoveries and not conflicts.
    let quick = ScriptedWork::always(Action::Return(b""));
    let again = run(&super::batch(&store, &quick), &many(6)).await;
    assert_eq!(
        outcomes(&again),
        ["DUPLICATE", "DUPLICATE", "ACQUIRED_STALE", "ACQUIRED_STALE", "ACQUIRED", "ACQUIRED"]
    );
}
