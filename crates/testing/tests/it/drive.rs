//! A handler on a queue, as in the tests of a user.

use std::collections::HashMap;
use std::time::Duration;

use idempotent_sqs::idempotency::{Claim, Idempotency, Policy, Store, Work, WorkError};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, BatchSettings, Message};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{
    BatchOutcome, DeadLetter, Fault, FaultyStore, Mapping, MappingSettings, MessageState, Queue, QueueSettings,
    SendRequest,
};
use tokio::time::{Instant, advance, sleep};

use super::{SECOND, VISIBILITY, queue, settings, with_dead_letters};
use harness::work::{Action, ScriptedWork};

fn handler<S: Store, W: Work<Message>>(store: S, work: W, queue: &Queue) -> Handler<S, W> {
    let batch = Batch::new(Idempotency::new(store, Policy::default()), work, BatchSettings::default());
    Handler::new(batch, Some(queue.visibility()))
}

fn send(queue: &Queue, count: usize) {
    (0..count).for_each(|n| {
        let message = SendRequest::new("12.50 EUR").attribute("Idempotency-Key", format!("pay_{n}"));
        drop(queue.send(message).unwrap());
    });
}

fn mapping(queue: &Queue) -> Mapping {
    Mapping::new(queue, MappingSettings::default())
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_drained_and_each_work_runs_once() {
    // With this seed some duplicates arrive during the work of the first delivery, which is a conflict.
    let queue = Queue::new(QueueSettings::with_duplicates(), 5);
    let told = ScriptedWork::always(Action::Sleep(SECOND));
    send(&queue, 200);
    mapping(&queue).drain(&handler(MemoryStore::default(), &told, &queue)).await;
    assert_eq!(told.runs().len(), 200);
    assert!(queue.history().iter().all(|message| message.state == MessageState::Deleted));
    let counts = queue.counts();
    assert!(counts.concurrent_deliveries > 0 && counts.redelivered > 0 && counts.visibility_changes > 0, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_redelivered_after_its_backoff_instead_of_the_visibility_timeout() {
    let queue = queue(QueueSettings { visibility_timeout: Duration::from_hours(1), ..settings("payments") });
    let told = ScriptedWork::new(|run| if run.attempt < 3 { Action::FailRetryable } else { Action::Return(b"") });
    send(&queue, 1);
    let started = Instant::now();
    mapping(&queue).drain(&handler(MemoryStore::default(), &told, &queue)).await;
    assert_eq!(told.runs().len(), 3);
    assert!((3 * SECOND..10 * SECOND).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert_eq!(queue.counts().visibility_changes, 2);
}

#[tokio::test(start_paused = true)]
async fn a_permanently_failing_message_is_dead_lettered_and_retried_by_a_redrive() {
    let (queue, dead) = with_dead_letters("payments", 5);
    let told = ScriptedWork::always(Action::FailPermanently);
    send(&queue, 1);
    let (store, started) = (MemoryStore::default(), Instant::now());
    mapping(&queue).drain(&handler(&store, &told, &queue)).await;
    // The first steps of the backoff: 2, 4, 8, 16 and 32 seconds, of which half is jitter.
    assert!((31 * SECOND..=65 * SECOND).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert_eq!((told.runs().len(), queue.history()[0].receives), (1, 5));
    assert_eq!(queue.history()[0].state, MessageState::Queue("dead-payments".into()));
    dead.redrive_to(&queue).unwrap();
    let mended = ScriptedWork::always(Action::Return(b""));
    mapping(&queue).drain(&handler(&store, &mended, &queue)).await;
    assert_eq!((mended.runs().len(), &queue.history()[0].state), (1, &MessageState::Deleted));
}

#[tokio::test(start_paused = true)]
async fn a_function_that_exceeds_its_timeout_times_out_and_its_message_is_redelivered() {
    struct Stalls;
    impl Work<Message> for Stalls {
        async fn run(&self, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
            advance(10 * SECOND).await;
            Ok(Vec::new())
        }
    }
    let (queue, store) = (queue(settings("payments")), MemoryStore::default());
    send(&queue, 1);
    let ended = mapping(&queue).poll().unwrap().run(&handler(&store, Stalls, &queue)).await;
    assert_eq!(ended, BatchOutcome::Failed { reason: "the function timed out".into() });
    let told = ScriptedWork::always(Action::Return(b""));
    mapping(&queue).drain(&handler(&store, &told, &queue)).await;
    assert_eq!(queue.history()[0].state, MessageState::Deleted);
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_killed_process_are_redelivered_and_run_as_recoveries() {
    let queue = queue(settings("payments"));
    let (store, slow) = (MemoryStore::default(), ScriptedWork::always(Action::Hang));
    send(&queue, 2);
    let mapping = mapping(&queue);
    let invocation = mapping.poll().unwrap();
    let ended = invocation.run_until(&handler(&store, &slow, &queue), sleep(SECOND)).await;
    assert!(matches!(ended, BatchOutcome::Failed { .. }), "{ended:?}");
    assert_eq!(queue.next_change(), Some(Instant::now() + VISIBILITY - SECOND));
    let quick = ScriptedWork::always(Action::Return(b""));
    mapping.drain(&handler(&store, &quick, &queue)).await;
    assert_eq!(quick.runs().iter().map(|run| run.recovery).collect::<Vec<_>>(), [true, true]);
    assert_eq!(mapping.counts().failed, 1);
}

/// Every fault of the store together with duplicated, reordered and repeated deliveries.
#[tokio::test(start_paused = true)]
async fn with_every_fault_no_message_is_lost_and_every_repeated_run_is_a_recovery() {
    for seed in 0..20 {
        let dead = Queue::new(settings("dead"), seed);
        let dead_letter = Some(DeadLetter { queue: dead.clone(), max_receive_count: 100 });
        let queue = Queue::new(
            QueueSettings { dead_letter, partial_receive_rate: 0.2, ..QueueSettings::with_duplicates() },
            seed,
        );
        let rates = [
            (Fault::Refused, 0.04),
            (Fault::ReplyLost, 0.04),
            (Fault::Twice, 0.04),
            (Fault::Slow(Duration::from_millis(300)), 0.04),
            (Fault::Late(SECOND), 0.04),
            (Fault::Unreachable, 0.02),
        ];
        let store = FaultyStore::new(MemoryStore::default()).timeout(Duration::from_millis(500));
        let store = store.random_faults(seed, &rates);
        let told = ScriptedWork::always(Action::Sleep(Duration::from_millis(50)));
        send(&queue, 50);
        let settings = MappingSettings { throttle_rate: 0.05, delete_loss_rate: 0.05, ..MappingSettings::default() };
        let mapping = Mapping::new(&queue, settings);
        mapping.drain(&handler(&store, &told, &queue)).await;

        let history = queue.history();
        assert!(history.iter().all(|message| message.state == MessageState::Deleted), "seed {seed}: {history:?}");
        let mut runs: HashMap<String, Vec<bool>> = HashMap::new();
        told.runs().into_iter().for_each(|run| runs.entry(run.key).or_default().push(run.recovery));
        assert_eq!(runs.len(), 50, "seed {seed}");
        for (key, recoveries) in runs {
            assert!(recoveries[1..].iter().all(|recovery| *recovery), "seed {seed}: {key} {recoveries:?}");
        }
        assert!(!store.faults().is_empty());
    }
}

/// An invocation may begin late in the visibility timeout, so its messages are received again while it runs.
#[tokio::test(start_paused = true)]
async fn late_invocations_keep_the_order_of_groups_and_every_repeated_run_is_a_recovery() {
    const TIMEOUT: Duration = Duration::from_secs(6);
    for seed in 0..40 {
        let name = "payments.fifo".into();
        let queue = Queue::new(QueueSettings { visibility_timeout: TIMEOUT, name, ..QueueSettings::default() }, seed);
        let fails = |key: &str| key.ends_with(['0', '1']);
        let told = ScriptedWork::new(move |run| match run.attempt {
            1 if fails(&run.key) => Action::FailRetryable,
            _ => Action::Sleep(SECOND + SECOND / 2),
        });
        for number in 0..30 {
            let key = format!("{}-{number:02}", ["a", "b", "c"][number % 3]);
            let message = SendRequest::new(key.as_str()).group(&key[..1]).deduplication_id(key.as_str());
            queue.send(message.attribute("Idempotency-Key", key.as_str())).unwrap();
        }
        let settings =
            MappingSettings { function_timeout: TIMEOUT, invocation_delay: TIMEOUT, ..MappingSettings::default() };
        Mapping::new(&queue, settings).drain(&handler(MemoryStore::default(), &told, &queue)).await;
        assert!(queue.history().iter().all(|message| message.state == MessageState::Deleted), "seed {seed}");
        let mut seen: HashMap<&str, u8> = HashMap::new();
        let runs = told.runs();
        for run in &runs {
            let earlier = seen.entry(&run.key).or_default();
            assert!(run.recovery || *earlier <= u8::from(fails(&run.key)), "seed {seed}: {run:?}");
            *earlier += 1;
        }
        for group in ["a", "b", "c"] {
            let keys: Vec<_> = runs.iter().map(|run| &run.key).filter(|key| key.starts_with(group)).collect();
            assert!(keys.is_sorted(), "seed {seed}: {keys:?}");
        }
    }
}
