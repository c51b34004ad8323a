//! The simulated queue, the event source mapping and the faulty store, compared with the rules of AWS.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

/// A handler on a queue: what a user's own test does.
mod drive;
/// A store with faults: what each of them is.
mod faults;
/// Order, groups and deduplication.
mod fifo;
/// Batches, the event, and what each answer does to the messages.
mod mapping;
/// Visibility, receipts, the dead-letter queue, and what a standard queue is free to do.
mod queue;
/// How many receives a FIFO group uses up before its messages are done.
mod receives;

use std::time::{Duration, UNIX_EPOCH};

use idempotent_sqs_testing::{DeadLetter, Queue, QueueSettings, Received, Refused};

const SECOND: Duration = Duration::from_secs(1);

/// The visibility timeout of the queues here.
const VISIBILITY: Duration = Duration::from_secs(30);

/// No chance is left to these queues: they do as they are told.
fn settings(name: &str) -> QueueSettings {
    QueueSettings {
        name: name.into(),
        visibility: VISIBILITY,
        disorder: Duration::ZERO,
        old_handle_deletes: 0.0,
        made: UNIX_EPOCH + Duration::from_secs(1_795_080_483),
        ..QueueSettings::default()
    }
}

fn queue(settings: QueueSettings) -> Queue {
    Queue::new(settings, 7)
}

/// A queue, and its dead-letter queue, to which a message goes after so many receives.
fn with_dead_letters(name: &str, max_receive_count: u32) -> (Queue, Queue) {
    let dead = queue(settings(&format!("dead-{name}")));
    let dead_letter = Some(DeadLetter { queue: dead.clone(), max_receive_count });
    (queue(QueueSettings { dead_letter, ..settings(name) }), dead)
}

fn bodies(received: &[Received]) -> Vec<&str> {
    received.iter().map(|message| message.body.as_str()).collect()
}

fn code(answer: Result<(), Refused>) -> &'static str {
    answer.unwrap_err().code
}

/// The one message that is to be received.
fn receive(queue: &Queue) -> Received {
    let [received] = queue.receive(10).try_into().unwrap();
    received
}
