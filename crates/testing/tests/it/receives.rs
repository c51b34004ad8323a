//! The receives that a FIFO group uses up before its messages are done.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use idempotent_sqs::idempotency::{Idempotency, Policy};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, BatchSettings};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{DeadLetter, Mapping, MappingSettings, MessageState, Queue, QueueSettings, SendRequest};
use tokio::time::Instant;

use super::{queue, settings};
use harness::work::{Action, ScriptedWork};

/// Messages of a batch, all of one group.
const BATCH: usize = 10;

/// Default `maxReceiveCount` of template.yaml for a queue of this type.
fn default_of(queue_type: &str) -> u32 {
    let template = harness::workspace("template.yaml");
    let template = std::fs::read_to_string(template).unwrap();
    let defaults = template.split("\n  MaxReceiveCountByQueueType:\n").nth(1).expect("template.yaml has the defaults");
    let (_, default) = defaults.split_once(&format!("{queue_type}: {{ Default: ")).unwrap();
    default.split_once(" }").unwrap().0.parse().unwrap()
}

/// A FIFO queue as in the template, with a full batch of one group.
fn full_group(max_receive_count: u32) -> Queue {
    let dead = queue(settings("dead.fifo"));
    let dead_letter = Some(DeadLetter { queue: dead, max_receive_count });
    let visibility_timeout = Duration::from_secs(180);
    let queue = queue(QueueSettings { visibility_timeout, dead_letter, ..settings("payments.fifo") });
    for n in 0..BATCH {
        let key = format!("pay_{n}");
        let message = SendRequest::new("12.50 EUR").group("a").deduplication_id(&*key);
        queue.send(message.attribute("Idempotency-Key", key)).unwrap();
    }
    queue
}

/// Number of messages that are done in the end. The others are dead letters.
async fn done(queue: &Queue, told: &ScriptedWork) -> usize {
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), told, BatchSettings::default());
    let mapping = Mapping::new(queue, MappingSettings::default());
    mapping.drain(&Handler::new(batch, Some(queue.visibility()))).await;
    queue.history().iter().filter(|message| message.state == MessageState::Deleted).count()
}

/// A receiver that refuses each message this number of times, as with status 429, and then accepts it.
fn refused(times: usize) -> ScriptedWork {
    let runs = Mutex::new(HashMap::<String, usize>::new());
    ScriptedWork::new(move |run| {
        let mut runs = runs.lock().unwrap();
        let number = runs.entry(run.key.clone()).or_default();
        *number += 1;
        if *number <= times { Action::FailUnavailable } else { Action::Return(b"") }
    })
}

#[tokio::test(start_paused = true)]
async fn eight_refusals_of_each_message_of_a_fifo_group_cause_no_dead_letter() {
    let queue = full_group(default_of("fifo"));
    assert_eq!(done(&queue, &refused(8)).await, BATCH, "{:?}", queue.history());
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_and_all_attempts_of_a_fifo_group_cause_no_dead_letter() {
    let queue = full_group(default_of("fifo"));
    let (since, last) = (Instant::now(), Policy::default().max_attempts);
    let told = ScriptedWork::new(move |run| match run.attempt {
        _ if since.elapsed() < Duration::from_hours(1) => Action::FailUnavailable,
        attempt if attempt < last => Action::FailRetryable,
        _ => Action::Return(b""),
    });
    assert_eq!(done(&queue, &told).await, BATCH, "{:?}", queue.history());
}

#[tokio::test(start_paused = true)]
async fn with_the_default_of_a_standard_queue_six_refusals_dead_letter_a_message_that_never_ran() {
    let (queue, told) = (full_group(default_of("standard")), refused(6));
    assert_eq!(done(&queue, &told).await, 8);
    let mut ran: Vec<_> = told.runs().into_iter().map(|run| run.key).collect();
    ran.dedup();
    assert_eq!(ran.len(), 9, "{ran:?}");
}
