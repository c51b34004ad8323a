//! Two concurrent runners, crashes at every step, and a commit without a reply.

use super::*;
use std::pin::pin;
use std::task::Poll;

use futures_util::future::poll_fn;
use futures_util::{StreamExt, stream};
use idempotent_sqs::idempotency::Recovery;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};

use harness::front::Front;

#[tokio::test]
async fn an_effect_commits_with_its_row_and_a_duplicate_gets_its_result() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    assert_eq!(done(&run(&flushed(), &inbox).await), b"receipt of pay_1");
    let later = run(&flushed(), &inbox).await;
    assert_eq!(duplicate(&later), b"receipt of pay_1");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (1, 1));
}

#[tokio::test]
async fn a_row_restores_the_lost_record_of_the_store() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    run(&flushed(), &inbox).await;
    let store = MemoryStore::default();
    duplicate(&run(&on(&store), &inbox).await);
    // From here on the database is not used.
    base.client.batch_execute("DROP TABLE idempotency_inbox").await.unwrap();
    assert_eq!(duplicate(&run(&on(&store), &inbox).await), b"receipt of pay_1");
}

#[tokio::test]
async fn two_runners_on_one_key_at_once_take_effect_once() {
    let base = base().await;
    let gate = Arc::new(Gate::default());
    let slow = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&base.url()));
    let quick = inbox(Pay::default(), database(&base.url()));
    let (first, second) = (flushed(), flushed());
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let (first, second, ()) = soon(async {
        tokio::join!(
            run(&first, &slow),
            async {
                gate.reached.notified().await;
                run(&second, &quick).await
            },
            async {
                until_count(&base, waiting, 1).await;
                gate.open.notify_one();
            }
        )
    })
    .await;
    assert_eq!(done(&first), duplicate(&second));
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_second_runner_continues_if_the_first_is_rolled_back() {
    let base = base().await;
    let gate = Arc::new(Gate::default());
    let fails = Pay { after: Some(gate.clone()), fails: Some(|| WorkError::retryable("refused")), ..Pay::default() };
    let (fails, works) = (inbox(fails, database(&base.url())), inbox(Pay::default(), database(&base.url())));
    let (first, second) = (flushed(), flushed());
    let (first, second) = soon(async {
        tokio::join!(run(&first, &fails), async {
            gate.reached.notified().await;
            gate.open.notify_one();
            run(&second, &works).await
        })
    })
    .await;
    assert!(matches!(first.outcome, Outcome::Failed { .. }), "{first:?}");
    done(&second);
    assert_eq!(base.count(EFFECTS).await, 1);
}

const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND \
                        application_name = 'idempotent-sqs'";

#[tokio::test]
async fn a_runner_that_waits_too_long_for_another_is_in_conflict_and_not_counted() {
    let base = base().await;
    let gate = Arc::new(Gate::default());
    let slow = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&base.url()));
    let mut short = database_settings(&base.url());
    short.timeout = Duration::from_millis(200);
    let quick = inbox(Pay::default(), Database::new(&short));
    let (first, second) = (flushed(), flushed());
    soon(async {
        let (first, ()) = tokio::join!(run(&first, &slow), async {
            gate.reached.notified().await;
            let mut sessions = Vec::new();
            for _ in 0..7 {
                let report = run(&second, &quick).await;
                sessions.push(base.count(SESSIONS).await);
                let Outcome::Conflict { lease_remains } = report.outcome else { panic!("{report:?}") };
                assert!(lease_remains > TIME / 2 && lease_remains <= TIME + SECOND);
            }
            assert_eq!(sessions, [2; 7], "the connection is used again");
            gate.open.notify_one();
        });
        done(&first);
    })
    .await;
    let report = run(&second, &quick).await;
    duplicate(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false), "the conflicts were not counted");
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_runner_that_waits_for_another_until_its_deadline_is_in_conflict() {
    let base = base().await;
    let gate = Arc::new(Gate::default());
    let slow = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&base.url()));
    let quick = inbox(Pay::default(), database(&base.url()));
    let (first, second) = (flushed(), flushed());
    // Shorter than the lock timeout.
    let short = delivery("pay_1").deadline(Deadline::within(2 * SECOND));
    soon(async {
        let (first, ()) = tokio::join!(run(&first, &slow), async {
            gate.reached.notified().await;
            let report = second.run(&short, &quick, &Message::default()).await.unwrap();
            assert!(matches!(report.outcome, Outcome::Conflict { .. }), "{report:?}");
            gate.open.notify_one();
        });
        done(&first);
    })
    .await;
}

#[tokio::test]
async fn another_payload_under_the_key_is_a_mismatch_even_if_the_store_lost_the_record() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    run(&flushed(), &inbox).await;
    let forgetful = flushed();
    let other = delivery("pay_1").fingerprint(Fingerprint::of(b"99.00 EUR")).message_id("message-2");
    let report = forgetful.run(&other, &inbox, &Message::default()).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch), "{report:?}");
    // A redelivery does not run either, and the right payload is still a duplicate.
    let again = forgetful.run(&other, &inbox, &Message::default()).await.unwrap();
    assert!(matches!(again.outcome, Outcome::Mismatch | Outcome::FailedBefore), "{again:?}");
    duplicate(&run(&forgetful, &inbox).await);
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_mismatch_in_a_recovery_does_not_exclude_the_right_payload() {
    let base = base().await;
    run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await;
    let forgetful = flushed();
    let other = || delivery("pay_1").fingerprint(Fingerprint::of(b"99.00 EUR")).message_id("message-2");
    // An attempt fails before it uses the inbox, and is uncertain.
    let uncertain = harness::work::ScriptedWork::always(harness::work::Action::FailUncertain);
    forgetful.run(&other(), &uncertain, &Message::default()).await.unwrap();
    let inbox = inbox(Pay::default(), database(&base.url()));
    let report = forgetful.run(&other(), &inbox, &Message::default()).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch) && report.recovery, "{report:?}");
    duplicate(&run(&forgetful, &inbox).await);
}

#[tokio::test]
async fn a_recovery_runs_whatever_the_recovery_policy() {
    let base = base().await;
    let parks = with!(Policy::default(), recovery = Recovery::Park);
    let idempotency = Idempotency::new(MemoryStore::default(), parks);
    let uncertain = Pay { fails: Some(|| WorkError::uncertain("no answer from elsewhere")), ..Pay::default() };
    let report = run(&idempotency, &inbox(uncertain, database(&base.url()))).await;
    assert!(matches!(report.outcome, Outcome::Failed { uncertain: true, .. }), "{report:?}");
    assert_eq!(base.count(EFFECTS).await, 0);
    let report = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
    assert!(report.recovery && !done(&report).is_empty());
    assert_eq!(base.count(EFFECTS).await, 1);
}

/// Polls a future this many times and then drops it, as if its process were killed.
async fn crash_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Delivers the key, each time with an empty store, until the message is done.
async fn deliver_until_done(base: &Base, key: &str) {
    let inbox = inbox(Pay::default(), database(&base.url()));
    until(|| async {
        let report = deliver(&flushed(), &inbox, key).await;
        matches!(report.outcome, Outcome::Done { .. } | Outcome::Duplicate { .. })
    })
    .await;
}

#[tokio::test]
async fn a_crash_at_any_moment_neither_repeats_nor_loses_the_effect() {
    let base = base().await;
    let (mut died, mut ended) = (0, 0);
    for polls in 0..60 {
        let key = format!("pay_{polls}");
        // A new process, which has to connect first.
        let inbox = inbox(Pay::default(), database(&base.url()));
        match crash_after(polls, async { deliver(&flushed(), &inbox, &key).await }).await {
            Some(_) => ended += 1,
            None => died += 1,
        }
        deliver_until_done(&base, &key).await;
    }
    assert!(died > 5 && ended > 5, "{died} were killed, {ended} ended");
    assert_eq!(base.count(EFFECTS).await, 60);
    assert_eq!(base.count("SELECT count(DISTINCT key) FROM effects").await, 60);
}

#[tokio::test]
async fn a_crash_at_each_step_from_insert_to_acknowledgement_takes_effect_once() {
    let base = base().await;
    let front = Front::to(base.port).await;
    let (gate, store) = (Arc::new(Gate::default()), FaultyStore::new(MemoryStore::default()));
    store.always(StoreCall::Settle, Some(Fault::Unreachable));
    let held = |before: bool| {
        let gate = Some(gate.clone());
        if before { Pay { before: gate, ..Pay::default() } } else { Pay { after: gate, ..Pay::default() } }
    };
    // Killed after the insert of the row; killed after the effect, before the commit.
    for (key, before) in [("inserted", true), ("done", false)] {
        let inbox = inbox(held(before), database(&base.url()));
        tokio::select! {
            ended = async { deliver(&flushed(), &inbox, key).await } => panic!("{ended:?}"),
            () = gate.reached.notified() => {}
        }
        deliver_until_done(&base, key).await;
    }
    // Killed after the commit, before its reply arrives; killed after the reply, before the store is updated.
    let silent = inbox(held(false), database(&base.url_by(front.port)));
    let untold = inbox(Pay::default(), database(&base.url()));
    let (untold_idempotency, silent_idempotency) = (on(store), flushed());
    tokio::select! {
        ended = deliver(&silent_idempotency, &silent, "committed") => panic!("{ended:?}"),
        () = async {
            gate.reached.notified().await;
            front.drop_replies(true);
            gate.open.notify_one();
            until_count(&base, "SELECT count(*) FROM effects WHERE key = 'committed'", 1).await;
        } => {}
    }
    tokio::select! {
        ended = deliver(&untold_idempotency, &untold, "untold") => panic!("{ended:?}"),
        () = until_count(&base, "SELECT count(*) FROM effects WHERE key = 'untold'", 1) => {}
    }
    // Killed before the response to the queue.
    deliver(&flushed(), &untold, "told").await;
    for key in ["committed", "untold", "told"] {
        deliver_until_done(&base, key).await;
    }
    assert_eq!(base.count(EFFECTS).await, 5);
    assert_eq!(base.count("SELECT count(DISTINCT key) FROM effects").await, 5);
}

#[tokio::test]
async fn a_process_that_resumes_after_its_transaction_was_ended_has_no_effect() {
    let base = base().await;
    let gate = Arc::new(Gate::default());
    let held = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&base.url()));
    let first = flushed();
    // After two seconds the server ends the transaction, although the client is silent.
    let short = delivery("pay_1").deadline(Deadline::within(2 * SECOND));
    let message = Message::default();
    let mut zombie = pin!(first.run(&short, &held, &message));
    tokio::select! {
        ended = &mut zombie => panic!("{ended:?}"),
        () = gate.reached.notified() => {}
    }
    // From here on the future is not polled, as if the process were frozen.
    let second = flushed();
    let other = inbox(Pay::default(), database(&base.url()));
    soon(async { while !matches!(run(&second, &other).await.outcome, Outcome::Done { .. }) {} }).await;
    gate.open.notify_one();
    let report = soon(zombie).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Failed { .. }), "{report:?}");
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn many_runners_on_few_keys_take_effect_once_per_key() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    let runs = (0..200).map(|number| {
        let inbox = &inbox;
        async move { deliver(&flushed(), inbox, &format!("pay_{}", number % 20)).await }
    });
    for report in stream::iter(runs).buffer_unordered(16).collect::<Vec<_>>().await {
        assert!(matches!(report.outcome, Outcome::Done { .. } | Outcome::Duplicate { .. }), "{report:?}");
    }
    assert_eq!(base.count(EFFECTS).await, 20);
    assert_eq!(base.count("SELECT count(DISTINCT key) FROM effects").await, 20);
}
