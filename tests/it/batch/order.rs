//! Message groups of FIFO queues.

use std::time::Duration;

use tokio::time::Instant;

use super::{batch, dispositions, in_group, many, outcomes, run};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::Key;
use idempotent_sqs::sqs::Disposition;
use idempotent_sqs::stores::MemoryStore;

#[tokio::test(start_paused = true)]
async fn groups_run_concurrently_and_each_group_in_order() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Sleep(Duration::from_secs(1))));
    let messages = [
        in_group("a", "a1", "1"),
        in_group("b", "b1", "2"),
        in_group("a", "a2", "3"),
        in_group("b", "b2", "4"),
        in_group("a", "a3", "5"),
    ];
    let started = Instant::now();
    let reports = run(&batch(&store, &work), &messages).await;
    assert_eq!(dispositions(&reports), [Disposition::Done; 5]);
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    assert_eq!(work.max_concurrent(), 2);
    let of = |group: char| work.message_ids().into_iter().filter(|id| id.starts_with(group)).collect::<Vec<_>>();
    assert_eq!((of('a'), of('b')), (vec!["a1".into(), "a2".into(), "a3".into()], vec!["b1".to_owned(), "b2".into()]));
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_the_rest_of_its_group_waits_as_long_and_other_groups_continue() {
    for what in [Action::FailRetryable, Action::FailUncertain, Action::FailPermanently, Action::Panic] {
        let (store, work) = (
            MemoryStore::default(),
            ScriptedWork::new(move |run| if run.message_id == "a2" { what } else { Action::Return(b"") }),
        );
        let messages = [
            in_group("a", "a1", "1"),
            in_group("a", "a2", "2"),
            in_group("b", "b1", "3"),
            in_group("a", "a3", "4"),
            in_group("a", "a4", "5"),
        ];
        let reports = run(&batch(&store, &work), &messages).await;
        assert_eq!(outcomes(&reports), ["ACQUIRED", "ACQUIRED", "ACQUIRED", "NOT_PROCESSED", "NOT_PROCESSED"]);
        assert_eq!((reports[0].disposition, reports[2].disposition), (Disposition::Done, Disposition::Done));
        assert!(matches!(reports[1].disposition, Disposition::Redeliver { after: Some(_) }));
        assert_eq!(dispositions(&reports)[3..], [reports[1].disposition; 2]);
        assert!(!work.message_ids().contains(&"a3".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_holds_the_rest_of_its_group_and_a_duplicate_does_not() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let (done, taken) = (in_group("a", "a1", "done"), in_group("a", "a2", "taken"));
    let batch = batch(&store, &work);
    run(&batch, std::slice::from_ref(&done)).await;
    let hangs = ScriptedWork::always(Action::Hang);
    let other = super::batch(&store, &hangs);
    assert!(tokio::time::timeout(Duration::from_secs(1), run(&other, std::slice::from_ref(&taken))).await.is_err());
    let reports = run(&batch, &[done, in_group("a", "new", "new"), taken, in_group("a", "last", "last")]).await;
    assert_eq!(outcomes(&reports), ["DUPLICATE", "ACQUIRED", "CONFLICT", "NOT_PROCESSED"]);
    assert_eq!(reports[3].disposition, reports[2].disposition);
}

/// Of a message of another group, whose work failed.
#[tokio::test(start_paused = true)]
async fn an_in_batch_duplicate_that_is_redelivered_holds_the_rest_of_its_group() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailRetryable));
    let messages = [in_group("a", "a1", "1"), in_group("b", "b1", "1"), in_group("b", "b2", "2")];
    let reports = run(&batch(&store, &work), &messages).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "IN_BATCH_DUPLICATE", "NOT_PROCESSED"]);
    assert_eq!((work.message_ids(), reports[2].disposition), (vec!["a1".to_owned()], reports[1].disposition));
}

#[tokio::test(start_paused = true)]
async fn groups_of_the_same_name_in_two_queues_do_not_wait_for_each_other() {
    let store = MemoryStore::default();
    let work =
        ScriptedWork::new(|run| if run.message_id == "a1" { Action::FailRetryable } else { Action::Return(b"") });
    let other_queue = Some("arn:aws:sqs:eu-central-1:123456789012:refunds.fifo".into());
    let messages = [in_group("a", "a1", "1"), with!(in_group("a", "a2", "2"), queue_arn = other_queue)];
    let reports = run(&batch(&store, &work), &messages).await;
    assert!(matches!(dispositions(&reports)[..], [Disposition::Redeliver { .. }, Disposition::Done]), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_group_on_a_standard_queue_is_not_ordered() {
    let (store, work) = (
        MemoryStore::default(),
        ScriptedWork::new(|run| {
            if run.message_id == "m0" { Action::FailRetryable } else { Action::Sleep(Duration::from_secs(1)) }
        }),
    );
    let messages: Vec<_> =
        many(4).into_iter().map(|message| with!(message, group_id = Some("tenant".into()))).collect();
    let started = Instant::now();
    let reports = run(&batch(&store, &work), &messages).await;
    assert_eq!(dispositions(&reports)[1..], [Disposition::Done; 3]);
    assert_eq!(started.elapsed(), Duration::from_secs(1));
}

#[tokio::test]
async fn the_report_on_a_message_behind_a_failed_one_of_its_group_has_its_key() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailRetryable));
    let reports = run(&batch(&store, &work), &[in_group("a", "a1", "pay_1"), in_group("a", "a2", "pay_2")]).await;
    let keys: Vec<_> = reports.iter().map(|report| report.key.as_ref().map(Key::as_str)).collect();
    assert_eq!(keys, [Some("pay_1"), Some("pay_2")]);
}
