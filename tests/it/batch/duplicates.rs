//! Several messages of one batch with the same key.

use std::time::{Duration, SystemTime};

use super::{batch, delay, dispositions, in_group, message, outcomes, run, since_1970_ms};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{Claim, WorkError, work_fn};
use idempotent_sqs::sqs::{Disposition, Message};
use idempotent_sqs::stores::MemoryStore;

#[tokio::test(start_paused = true)]
async fn in_batch_duplicates_run_once_and_share_the_outcome() {
    let duplicates = [message("first", "pay_1"), message("second", "pay_1"), message("third", "pay_1")];
    for (what, done) in [
        (Action::Sleep(Duration::from_secs(1)), true),
        (Action::FailRetryable, false),
        (Action::FailPermanently, false),
        (Action::Panic, false),
        (Action::Hang, false),
    ] {
        let (store, work) = (MemoryStore::default(), ScriptedWork::always(what));
        let reports = run(&batch(&store, &work), &duplicates).await;
        assert_eq!(outcomes(&reports), ["ACQUIRED", "IN_BATCH_DUPLICATE", "IN_BATCH_DUPLICATE"]);
        assert!(reports.iter().all(|report| (report.disposition == Disposition::Done) == done), "{reports:?}");
        // At least 5 seconds after the first, so that each is processed by itself then.
        assert!(done || reports[1..].iter().all(|report| delay(report) >= delay(&reports[0]) + Duration::from_secs(5)));
        assert_eq!(work.message_ids(), ["first"]);
        assert_eq!(reports.iter().map(|report| report.ran).collect::<Vec<_>>(), [true, false, false]);
        // The others may still be attempted.
        assert!(reports[1..].iter().all(|report| !report.failed_permanently), "{reports:?}");
        let reason = format!("same key and payload as another message of the batch: {}", reports[0].reason);
        assert!(reports[1..].iter().all(|report| report.reason == reason), "{reports:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_batch_duplicates_are_5_seconds_apart_also_after_the_longest_delay() {
    // SQS refuses a visibility timeout of more than 12 hours, of which an invocation may have taken 20 minutes.
    let longest = Duration::from_secs(12 * 3600 - 1200);
    for asked in [Duration::from_hours(1), longest - Duration::from_secs(10), longest, Duration::MAX] {
        let work = work_fn(move |_: &Claim, _: &Message| async move {
            Err::<Vec<u8>, _>(WorkError::unavailable_after("overloaded", asked))
        });
        let reports =
            run(&batch(&MemoryStore::default(), &work), &[message("first", "pay_1"), message("second", "pay_1")]).await;
        let (first, second) = (delay(&reports[0]), delay(&reports[1]));
        let apart = first.abs_diff(second).as_secs_f64();
        assert!((5.0..=15.0).contains(&apart) && first.max(second) <= longest, "{asked:?}: {first:?}, {second:?}");
    }
}

/// Of old messages, also if the delay of the first one is near the longest backoff.
#[tokio::test(start_paused = true)]
async fn in_batch_duplicates_are_5_to_15_seconds_apart_also_more_than_two_days_after_their_first_receive() {
    let first_receive_ms = Some(since_1970_ms(SystemTime::now() - Duration::from_hours(50)));
    let old = |id| with!(message(id, "pay_1"), receive_count = Some(200), first_receive_ms = first_receive_ms);
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailUnavailable));
    for _ in 0..500 {
        let reports = run(&batch(&store, &work), &[old("first"), old("second")]).await;
        let apart = delay(&reports[1]).saturating_sub(delay(&reports[0])).as_secs_f64();
        assert!((5.0..=15.0).contains(&apart), "{reports:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_batch_duplicates_in_different_groups_run_once() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Sleep(Duration::from_secs(1))));
    let messages =
        [in_group("a", "a1", "x"), in_group("b", "b1", "y"), in_group("a", "a2", "y"), in_group("b", "b2", "x")];
    let reports = run(&batch(&store, &work), &messages).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "ACQUIRED", "IN_BATCH_DUPLICATE", "IN_BATCH_DUPLICATE"]);
    assert_eq!(dispositions(&reports), [Disposition::Done; 4]);
}

#[tokio::test(start_paused = true)]
async fn another_payload_with_the_same_key_in_a_batch_is_a_conflict() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Sleep(Duration::from_secs(1))));
    let other = with!(message("other", ""), body = Some("{\"key\":\"pay_1\",\"amount\":1}".into()));
    let reports = run(&batch(&store, &work), &[message("first", "pay_1"), other]).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "CONFLICT"]);
}
