//! The simulated queue, the event source mapping and the faulty store, compared with the rules of AWS.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

mod conformance;
mod dead_letters;
mod drive;
mod duplicates;
mod faults;
mod fifo;
mod limits;
mod mapping;
mod outages;
mod queue;
mod receives;
mod sends;

use std::time::{Duration, UNIX_EPOCH};

use idempotent_sqs_testing::{DeadLetter, Queue, QueueSettings, ReceivedMessage, SqsError};

const SECOND: Duration = Duration::from_secs(1);

/// Visibility timeout of the queues.
const VISIBILITY: Duration = Duration::from_secs(30);

/// Settings without randomness.
fn settings(name: &str) -> QueueSettings {
    QueueSettings {
        name: name.into(),
        visibility_timeout: VISIBILITY,
        max_reordering: Duration::ZERO,
        stale_handle_delete_rate: 0.0,
        expired_handle_change_rate: 0.0,
        created_at: UNIX_EPOCH + Duration::from_secs(1_795_080_483),
        ..QueueSettings::default()
    }
}

fn queue(settings: QueueSettings) -> Queue {
    Queue::new(settings, 7)
}

/// A queue, and its dead-letter queue, which gets messages after this number of receives.
fn with_dead_letters(name: &str, max_receive_count: u32) -> (Queue, Queue) {
    let dead = queue(settings(&format!("dead-{name}")));
    let dead_letter = Some(DeadLetter { queue: dead.clone(), max_receive_count });
    (queue(QueueSettings { dead_letter, ..settings(name) }), dead)
}

fn bodies(received: &[ReceivedMessage]) -> Vec<&str> {
    received.iter().map(|message| message.body.as_str()).collect()
}

fn code(answer: Result<(), SqsError>) -> &'static str {
    answer.unwrap_err().code
}

/// The only visible message.
fn receive(queue: &Queue) -> ReceivedMessage {
    let [received] = queue.receive(10).try_into().unwrap();
    received
}
