//! The receives that a FIFO group uses up before its messages are done, with the defaults of template.yaml.

use std::time::Duration;

use idempotent_sqs::idempotency::{Idempotency, Policy};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, BatchSettings};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{DeadLetter, Mapping, MappingSettings, MessageState, Queue, QueueSettings, SendRequest};

use super::outages::number_of;
use super::{queue, settings};
use harness::work::{Action, ScriptedWork};

/// Messages of a batch, all of one group.
const BATCH: usize = 10;

/// A queue of the template with a full batch of one group, and its dead-letter queue.
fn full_group() -> (Queue, Queue) {
    let dead = queue(settings("dead.fifo"));
    let max_receive_count = number_of("maxReceiveCount").try_into().unwrap();
    let dead_letter = Some(DeadLetter { queue: dead.clone(), max_receive_count });
    let (visibility_timeout, retention) =
        (Duration::from_secs(180), Duration::from_secs(number_of("MessageRetentionPeriod")));
    let queue = queue(QueueSettings { visibility_timeout, retention, dead_letter, ..settings("payments.fifo") });
    for n in 0..BATCH {
        let key = format!("pay_{n}");
        let message = SendRequest::new("12.50 EUR").group("a").deduplication_id(&*key);
        queue.send(message.attribute("Idempotency-Key", key)).unwrap();
    }
    (queue, dead)
}

/// Drains the queue with a work whose first `failing` messages use up all their attempts.
async fn drain(queue: &Queue, dead: &Queue, failing: usize) -> ScriptedWork {
    let fails = move |key: &str| (0..failing).any(|n| key == format!("pay_{n}"));
    let work = ScriptedWork::new(move |run| if fails(&run.key) { Action::FailRetryable } else { Action::Return(b"") });
    let mut settings = BatchSettings::default();
    settings.dead_letter_queue = Some(dead.dead_letter_queue());
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    Mapping::new(queue, MappingSettings::default()).drain(&Handler::new(batch, Some(queue.visibility()))).await;
    work
}

/// Number of messages that were deleted from their queue: done, or sent to the dead-letter queue by the function.
fn deleted(queue: &Queue) -> usize {
    queue.history().iter().filter(|message| message.state == MessageState::Deleted).count()
}

#[tokio::test(start_paused = true)]
async fn five_messages_of_a_fifo_group_may_use_up_all_attempts_and_the_others_are_done() {
    let (queue, dead) = full_group();
    let work = drain(&queue, &dead, 5).await;
    assert_eq!((deleted(&queue), dead.counts().sent), (BATCH, 5), "{:?}", queue.history());
    assert_eq!(work.runs().len(), 5 * usize::from(Policy::default().max_attempts) + 5);
}

#[tokio::test(start_paused = true)]
async fn behind_six_messages_of_a_fifo_group_that_use_up_all_attempts_sqs_moves_the_others() {
    let (queue, dead) = full_group();
    let work = drain(&queue, &dead, 6).await;
    assert!(deleted(&queue) < BATCH, "{:?}", queue.history());
    assert!(!work.runs().iter().any(|run| run.key == "pay_9"));
}
