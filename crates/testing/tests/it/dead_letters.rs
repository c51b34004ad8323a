//! Redrive policies, redrives and dead-letter queues.

use std::time::Duration;

use idempotent_sqs_testing::{DeadLetter, MessageState, QueueSettings, SendRequest};
use tokio::time::advance;

use super::{SECOND, VISIBILITY, bodies, queue, receive, settings, with_dead_letters};

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn a_message_received_too_often_is_moved_to_the_dead_letter_queue_unchanged() {
    let (queue, dead) = with_dead_letters("payments", 2);
    let id = queue.send(SendRequest::new("a").attribute("Idempotency-Key", "pay_1")).unwrap();
    for _ in 0..2 {
        assert_eq!(receive(&queue).message_id, id);
        assert!(dead.is_empty());
        advance(VISIBILITY).await;
    }
    assert!(queue.receive(10).is_empty());
    assert!(queue.is_empty());
    let received = receive(&dead);
    assert_eq!((received.message_id, received.body.as_str()), (id, "a"));
    let entry = &queue.history()[0];
    assert_eq!((entry.receives, entry.dead_letters), (3, 1));
    assert_eq!(entry.state, MessageState::Queue("dead-payments".into()));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_has_its_source_arn_and_keeps_its_receive_count() {
    let (queue, dead) = with_dead_letters("payments", 1);
    queue.send("a").unwrap();
    receive(&queue);
    advance(VISIBILITY).await;
    assert!(queue.receive(10).is_empty());
    let json = serde_json::to_value(receive(&dead)).unwrap();
    assert_eq!(json["attributes"]["DeadLetterQueueSourceArn"], queue.arn());
    assert_eq!(json["attributes"]["ApproximateReceiveCount"], "2");
    assert_eq!(json["eventSourceARN"], dead.arn());
}

#[tokio::test(start_paused = true)]
async fn a_redrive_sends_the_same_work_again_as_a_new_message() {
    let (queue, dead) = with_dead_letters("payments", 1);
    let old_id = queue.send(SendRequest::new("a").attribute("Idempotency-Key", "pay_1").group("tenant")).unwrap();
    let first = serde_json::to_value(receive(&queue)).unwrap();
    advance(HOUR).await;
    assert!(queue.receive(10).is_empty());
    assert_eq!(dead.redrive_to(&queue), Ok(1));
    assert!(dead.is_empty());
    let received = receive(&queue);
    assert_ne!(received.message_id, old_id);
    assert_eq!(received.receive_count(), 1);
    let again = serde_json::to_value(&received).unwrap();
    for same in ["body", "messageAttributes", "md5OfBody", "md5OfMessageAttributes"] {
        assert_eq!(again[same], first[same]);
    }
    assert_eq!(received.group_id(), Some("tenant"));
    let sent = |record: &serde_json::Value| -> u64 {
        record["attributes"]["SentTimestamp"].as_str().unwrap().parse().unwrap()
    };
    assert_eq!(sent(&again) - sent(&first), 3_600_000);
    assert_eq!(again["attributes"].get("DeadLetterQueueSourceArn"), None);
    let entry = &queue.history()[0];
    assert_eq!(entry.message_ids, [old_id, received.message_id]);
    assert_eq!((queue.history().len(), entry.sends, entry.receives), (1, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn the_history_shows_that_a_message_expired_in_a_queue_that_it_was_redriven_to() {
    let (payments, dead) = with_dead_letters("payments", 1);
    let [other, last] = ["other", "last"].map(|name| queue(settings(name)));
    payments.send("a").unwrap();
    receive(&payments);
    advance(VISIBILITY).await;
    assert!(payments.receive(10).is_empty());
    assert_eq!((dead.redrive_to(&other), other.redrive_to(&last)), (Ok(1), Ok(1)));
    advance(last.settings().retention - SECOND).await;
    assert_eq!(payments.history()[0].state, MessageState::Queue("last".into()));
    advance(SECOND).await;
    assert_eq!(payments.history()[0].state, MessageState::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_redrive_skips_messages_in_flight_and_needs_a_queue_of_the_same_type() {
    let (one, other) = (queue(settings("dead")), queue(settings("payments")));
    one.send("a").unwrap();
    let received = receive(&one);
    one.send("b").unwrap();
    assert_eq!(one.redrive_to(&other), Ok(1));
    assert_eq!(bodies(&other.receive(10)), ["b"]);
    one.delete(&received.receipt_handle).unwrap();
    assert!(one.is_empty());
    assert!(one.redrive_to(&queue(settings("payments.fifo"))).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_redrive_skips_deleted_messages_that_will_be_redelivered() {
    let dead = queue(QueueSettings { redelivery_rate: 1.0, ..settings("dead") });
    dead.send("a").unwrap();
    dead.delete(&receive(&dead).receipt_handle).unwrap();
    advance(VISIBILITY).await;
    assert_eq!(dead.redrive_to(&queue(settings("payments"))), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn the_retention_of_a_dead_letter_continues_on_standard_queues_and_restarts_on_fifo_queues() {
    for (name, lasts) in [("payments", HOUR), ("payments.fifo", 3 * HOUR)] {
        let retention = 3 * HOUR;
        let dead = queue(QueueSettings { retention, ..settings(&format!("dead-{name}")) });
        let dead_letter = Some(DeadLetter { queue: dead.clone(), max_receive_count: 1 });
        let queue = queue(QueueSettings { dead_letter, ..settings(name) });
        let message = SendRequest::new("a").group("g");
        queue.send(if name.ends_with("fifo") { message.deduplication_id("d") } else { message }).unwrap();
        receive(&queue);
        advance(2 * HOUR).await;
        assert!(queue.receive(10).is_empty());
        advance(lasts - SECOND).await;
        assert!(!dead.is_empty(), "{name}");
        advance(SECOND).await;
        assert_eq!(queue.history()[0].state, MessageState::Expired, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_queue_with_a_dead_letter_queue_counts_its_own_receives() {
    let (dead, last) = with_dead_letters("dead", 2);
    let dead_letter = Some(DeadLetter { queue: dead.clone(), max_receive_count: 2 });
    let queue = queue(QueueSettings { dead_letter, ..settings("payments") });
    queue.send("a").unwrap();
    for (queue, counts) in [(&queue, [1, 2]), (&dead, [3, 4])] {
        for count in counts {
            assert_eq!(receive(queue).receive_count(), count, "the message's own goes on");
            advance(VISIBILITY).await;
        }
        assert!(queue.receive(10).is_empty());
    }
    assert_eq!(receive(&last).receive_count(), 5);
}

#[test]
#[should_panic(expected = "type")]
fn a_dead_letter_queue_of_another_type_is_rejected() {
    let dead_letter = Some(DeadLetter { queue: queue(settings("dead")), max_receive_count: 1 });
    drop(queue(QueueSettings { dead_letter, ..settings("payments.fifo") }));
}

#[test]
fn threads_share_a_queue_and_its_dead_letter_queue_without_deadlock() {
    let instant = Duration::ZERO;
    let dead = queue(QueueSettings { visibility_timeout: instant, ..settings("dead") });
    let dead_letter = Some(DeadLetter { queue: dead.clone(), max_receive_count: 2 });
    let shared = queue(QueueSettings { dead_letter, visibility_timeout: instant, ..settings("payments") });
    (0..200).for_each(|n| drop(shared.send(format!("{n}")).unwrap()));
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let (shared, dead) = (shared.clone(), dead.clone());
            threads.spawn(move || {
                for round in 0..1000 {
                    for message in shared.receive(10) {
                        if (round + thread) % 3 == 0 {
                            shared.delete(&message.receipt_handle).unwrap();
                        }
                    }
                    dead.redrive_to(&shared).unwrap();
                }
            });
        }
    });
    let states = shared.history().into_iter().map(|entry| entry.state);
    let remaining = states.filter(|state| *state != MessageState::Deleted).count();
    assert_eq!(remaining + shared.counts().deleted, 200);
    assert!(shared.counts().redriven > 0 && shared.counts().deleted > 0);
}
