//! Outcome and disposition of a message: done, failed, without a key, unreadable.

use std::time::Duration;

use super::{batch, delay, dispositions, has_first_backoff, many, message, outcomes, run};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::Policy;
use idempotent_sqs::sqs::Disposition;
use idempotent_sqs::stores::MemoryStore;

#[tokio::test]
async fn each_message_runs_once_and_its_duplicate_is_acknowledged() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let batch = batch(&store, &work);
    assert_eq!(outcomes(&run(&batch, &many(3)).await), ["ACQUIRED"; 3]);
    let again = run(&batch, &many(3)).await;
    assert_eq!(outcomes(&again), ["DUPLICATE"; 3]);
    assert_eq!(dispositions(&again), [Disposition::Done; 3]);
    assert_eq!(
        again.iter().map(|report| report.key.as_ref().unwrap().as_str()).collect::<Vec<_>>(),
        ["pay_0", "pay_1", "pay_2"]
    );
    assert_eq!(work.runs().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_failure_is_redelivered_and_runs_as_a_recovery() {
    for what in [Action::FailUncertain, Action::Panic, Action::Hang] {
        let (store, work) = (
            MemoryStore::default(),
            ScriptedWork::new(move |run| if run.recovery { Action::Return(b"") } else { what }),
        );
        let batch = batch(&store, &work);
        let reports = run(&batch, &many(1)).await;
        assert_eq!(outcomes(&reports), ["ACQUIRED"]);
        assert!(delay(&reports[0]) <= Duration::from_secs(2));
        let reports = run(&batch, &many(1)).await;
        assert_eq!((outcomes(&reports), dispositions(&reports)), (vec!["ACQUIRED_STALE"], vec![Disposition::Done]));
    }
}

#[tokio::test]
async fn a_permanent_failure_is_redelivered_and_never_runs_again() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailPermanently));
    let batch = batch(&store, &work);
    for outcome in ["ACQUIRED", "FAILED", "FAILED"] {
        let reports = run(&batch, &many(1)).await;
        assert_eq!(outcomes(&reports), [outcome]);
        assert!(has_first_backoff(reports[0].disposition), "{reports:?}");
    }
    assert_eq!(work.runs().len(), 1);
}

#[tokio::test]
async fn a_message_fails_permanently_after_its_last_attempt_until_it_is_redriven() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailRetryable));
    let batch = batch(&store, &work);
    let last = Policy::default().max_attempts;
    for _ in 1..last {
        assert!(!run(&batch, &many(1)).await[0].failed_permanently);
    }
    assert!(run(&batch, &many(1)).await[0].failed_permanently);
    assert_eq!(outcomes(&run(&batch, &many(1)).await), ["FAILED"]);
    assert_eq!(work.runs().len(), usize::from(last));
    assert_eq!(outcomes(&run(&batch, &[message("redriven", "pay_0")]).await), ["ACQUIRED"]);
}

#[tokio::test]
async fn a_message_without_a_key_is_redelivered_alone() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let with = |body: &str| with!(message("m", ""), body = Some(body.into()));
    for body in [
        "",
        "no JSON",
        "{}",
        "[]",
        "{\"key\":null}",
        "{\"key\":\"\"}",
        "{\"key\":true}",
        "{\"key\":{}}",
        "{\"key\":[1]}",
    ] {
        let reports = run(&batch(&store, &work), &[message("good", "pay_1"), with(body)]).await;
        assert_eq!(reports[1].outcome.as_str(), "NO_KEY", "{body}");
        assert!(has_first_backoff(reports[1].disposition), "{reports:?}");
        assert_eq!(reports[0].disposition, Disposition::Done);
    }
}

#[tokio::test]
async fn an_unreadable_message_is_redelivered_alone() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let unreadable = with!(message("m", "pay_1"), body = None);
    let reports = run(&batch(&store, &work), &[unreadable, message("good", "pay_2")]).await;
    assert_eq!(outcomes(&reports), ["UNREADABLE", "ACQUIRED"]);
    assert!(has_first_backoff(reports[0].disposition), "{reports:?}");
    assert_eq!(reports[1].disposition, Disposition::Done);
}

#[tokio::test]
async fn a_key_reused_with_another_payload_does_not_run() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let batch = batch(&store, &work);
    run(&batch, &many(1)).await;
    let other = with!(message("other", ""), body = Some("{\"key\":\"pay_0\",\"amount\":1}".into()));
    let reports = run(&batch, &[other]).await;
    assert_eq!(outcomes(&reports), ["MISMATCH"]);
    assert!(has_first_backoff(reports[0].disposition), "{reports:?}");
    assert_eq!(work.runs().len(), 1);
}

#[tokio::test]
async fn a_panic_does_not_affect_other_messages() {
    let (store, work) = (
        MemoryStore::default(),
        ScriptedWork::new(|run| if run.message_id == "m1" { Action::Panic } else { Action::Return(b"") }),
    );
    let reports = run(&batch(&store, &work), &many(3)).await;
    assert_eq!((reports[0].disposition, reports[2].disposition), (Disposition::Done, Disposition::Done));
    assert!(reports[1].reason.contains("panicked"), "{}", reports[1].reason);
}

#[tokio::test]
async fn an_empty_batch_has_no_reports() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    assert!(run(&batch(&store, &work), &[]).await.is_empty());
}
