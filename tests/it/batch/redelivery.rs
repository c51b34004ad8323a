//! When a message is redelivered: after a lease, a backoff or a delay that the work requests.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use super::{TIME, batch, delay, many, message, outcomes, run, settings, since_1970_ms};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Idempotency, Key, Policy, Store};
use idempotent_sqs::sqs::{Batch, FingerprintSource, Message};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs::{Claim, WorkError, work_fn};
use idempotent_sqs_testing::{Queue, QueueSettings};

#[tokio::test(start_paused = true)]
async fn a_conflict_is_redelivered_after_the_lease_ends_with_jitter() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Hang));
    let batch = batch(&store, &work);
    let messages = many(20);
    let killed = tokio::time::timeout(Duration::from_secs(10), run(&batch, &messages[..16])).await;
    assert!(killed.is_err());
    let reports = run(&batch, &messages[..16]).await;
    assert_eq!(outcomes(&reports), ["CONFLICT"; 16]);
    let remains = TIME + Policy::default().lease_grace - Duration::from_secs(10);
    let delays: Vec<_> = reports.iter().map(delay).collect();
    assert!(delays.iter().all(|delay| (remains..=remains + Duration::from_secs(2)).contains(delay)), "{delays:?}");
    assert!(delays.iter().any(|delay| *delay != delays[0]), "{delays:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_message_is_redelivered_with_exponential_backoff_and_jitter() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailRetryable));
    let policy = with!(Policy::default(), max_attempts = 20);
    let batch = Batch::new(Idempotency::new(&store, policy), &work, settings());
    for doublings in 0..12_u32 {
        let received = |message: Message| with!(message, receive_count = Some(doublings + 1));
        let messages: Vec<_> = many(16).into_iter().map(received).collect();
        let delays: Vec<_> = run(&batch, &messages).await.iter().map(delay).collect();
        let step = Duration::from_secs((2_u64 << doublings).min(900));
        assert!(delays.iter().all(|delay| (step / 2..=step).contains(delay)), "{doublings}: {delays:?}");
        assert!(delays.iter().any(|delay| *delay != delays[0]), "{delays:?}");
    }
}

#[tokio::test]
async fn an_unavailable_dependency_is_retried_with_a_backoff_that_grows_with_the_receive_count() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailUnavailable));
    let batch = batch(&store, &work);
    for doublings in 0..30_u32 {
        let message = with!(message("m", "pay_1"), receive_count = Some(doublings + 1));
        let reports = run(&batch, &[message]).await;
        let step = Duration::from_secs(2_u64.saturating_mul(2_u64.pow(doublings)).min(900));
        assert!((step / 2..=step).contains(&delay(&reports[0])), "{doublings}: {reports:?}");
        assert!(!reports[0].failed_permanently);
    }
}

#[tokio::test]
async fn a_retry_delay_of_the_work_is_limited_to_the_range_of_sqs() {
    for (asked, given) in [(0, 1), (7, 7), (3600, 3600), (86_400, 12 * 3600 - 1200)] {
        let (store, work) =
            (MemoryStore::default(), ScriptedWork::always(Action::FailRetryableAfter(Duration::from_secs(asked))));
        let reports = run(&batch(&store, &work), &many(1)).await;
        assert_eq!(delay(&reports[0]), Duration::from_secs(given));
    }
}

/// Else SQS would delete it at the end of its retention, before its receives are used up.
#[tokio::test]
async fn two_days_after_its_first_receive_a_message_waits_for_15_minutes_at_most() {
    const LONG: Duration = Duration::from_hours(3);
    const LIMITED: RangeInclusive<Duration> = Duration::from_secs(450)..=Duration::from_secs(900);
    let errors: [fn() -> WorkError; 3] = [
        || WorkError::retryable_after("refused", LONG),
        || WorkError::unavailable_after("overloaded", LONG),
        || WorkError::busy_after("in use", LONG),
    ];
    let received = |hours| Some(since_1970_ms(SystemTime::now() - Duration::from_hours(hours)));
    for error in errors {
        let work = work_fn(move |_: &Claim, _: &Message| async move { Err::<Vec<u8>, _>(error()) });
        for (first_receive_ms, waits) in [
            (received(44), LONG..=LONG),
            // It would end after two days.
            (received(46), LIMITED),
            (received(300), LIMITED),
            (None, LONG..=LONG),
        ] {
            // Few receives, because the waits were long.
            let message = with!(message("m", "pay_1"), first_receive_ms = first_receive_ms, receive_count = Some(5));
            let reports = run(&batch(&MemoryStore::default(), &work), &[message]).await;
            assert!(waits.contains(&delay(&reports[0])), "{first_receive_ms:?}: {reports:?}");
        }
    }
}

#[tokio::test]
async fn an_in_batch_duplicate_that_is_older_than_the_message_that_ran_waits_for_15_minutes_and_15_seconds_at_most() {
    let long = Duration::from_hours(3);
    let work = ScriptedWork::always(Action::FailRetryableAfter(long));
    let received = |message: Message, hours| {
        let first_receive = SystemTime::now() - Duration::from_hours(hours);
        with!(message, first_receive_ms = Some(since_1970_ms(first_receive)))
    };
    let messages = [received(message("new", "pay_1"), 0), received(message("old", "pay_1"), 300)];
    let reports = run(&batch(&MemoryStore::default(), &work), &messages).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "IN_BATCH_DUPLICATE"]);
    let [new, old] = [delay(&reports[0]), delay(&reports[1])];
    assert!(new == long && (455..=915).contains(&old.as_secs()), "{reports:?}");
}

/// A shorter delay, the backoff, and the wait for a lease.
#[tokio::test]
async fn other_waits_of_an_old_message_are_as_those_of_any_other() {
    let old = |message: Message| {
        let hours = Duration::from_hours(300);
        with!(message, first_receive_ms = Some(since_1970_ms(SystemTime::now() - hours)), receive_count = Some(2))
    };
    for (action, waits) in
        [(Action::FailRetryableAfter(Duration::from_secs(30)), 30..=30), (Action::FailUnavailable, 2..=4)]
    {
        let work = ScriptedWork::always(action);
        let reports = run(&batch(&MemoryStore::default(), &work), &[old(message("m", "pay_1"))]).await;
        assert!(waits.contains(&delay(&reports[0]).as_secs()), "{reports:?}");
    }
    let store = MemoryStore::default();
    let held = with!(AcquireRequest::new(Key::new("pay_1").unwrap()), lease = Duration::from_hours(1));
    assert!(matches!(store.acquire(held).await, Ok(Acquire::Acquired(_))));
    let work = ScriptedWork::always(Action::Hang);
    let reports = run(&batch(&store, &work), &[old(message("m", "pay_1")), old(message("twin", "pay_1"))]).await;
    assert_eq!(outcomes(&reports), ["CONFLICT", "IN_BATCH_DUPLICATE"]);
    assert!(reports.iter().all(|report| delay(report) > Duration::from_mins(59)), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn sqs_accepts_the_longest_delay_after_the_longest_batching_window_and_the_longest_invocation() {
    let asked = Action::FailRetryableAfter(Duration::from_hours(24));
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(asked));
    let longest = delay(&run(&batch(&store, &work), &many(1)).await[0]);
    let queue =
        Queue::new(QueueSettings { visibility_timeout: Duration::from_hours(2), ..QueueSettings::default() }, 1);
    queue.send("a payment").unwrap();
    let received = queue.receive(1).remove(0);
    // MaximumBatchingWindowInSeconds, and the longest timeout of a function, which responds before it.
    tokio::time::sleep(Duration::from_secs(300 + 899)).await;
    assert_eq!(queue.change_visibility(&received.receipt_handle, longest), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_record_without_a_fingerprint_agrees_with_each_payload_until_it_expires() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let deliver = async |fingerprint, message| {
        let settings = with!(settings(), fingerprint = fingerprint);
        let reports = run(&Batch::new(Idempotency::new(&store, Policy::default()), &work, settings), &[message]).await;
        reports[0].outcome.as_str()
    };
    let other = || with!(message("m2", ""), body = Some("{\"key\":\"pay_1\",\"amount\":1}".into()));
    assert_eq!(deliver(FingerprintSource::None, message("m1", "pay_1")).await, "ACQUIRED");
    tokio::time::advance(Policy::default().retention - TIME).await;
    assert_eq!(deliver(FingerprintSource::Body, other()).await, "DUPLICATE");
    tokio::time::advance(TIME).await;
    assert_eq!(deliver(FingerprintSource::Body, other()).await, "ACQUIRED");
    assert_eq!(deliver(FingerprintSource::Body, message("m1", "pay_1")).await, "MISMATCH");
}
