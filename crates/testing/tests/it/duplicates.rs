//! Duplicates and reordering of standard queues.

use std::collections::HashSet;

use idempotent_sqs_testing::{DeadLetter, Queue, QueueSettings, SendRequest};
use tokio::time::advance;

use super::{SECOND, VISIBILITY, bodies, code, queue, receive, settings, with_dead_letters};

#[tokio::test(start_paused = true)]
async fn a_standard_queue_may_redeliver_a_deleted_message_and_does_not_dead_letter_it() {
    let (_, dead) = with_dead_letters("payments", 1);
    let dead_letter = Some(DeadLetter { queue: dead.clone(), max_receive_count: 1 });
    let queue = queue(QueueSettings { redelivery_rate: 1.0, dead_letter, ..settings("payments") });
    let id = queue.send("a").unwrap();
    for _ in 0..3 {
        let received = receive(&queue);
        assert_eq!(received.message_id, id);
        queue.delete(&received.receipt_handle).unwrap();
        assert_eq!(code(queue.change_visibility(&received.receipt_handle, SECOND)), "InvalidParameterValue");
        assert!(queue.receive(10).is_empty(), "not before its visibility timeout ends");
        advance(VISIBILITY).await;
    }
    assert!(dead.is_empty());
    assert_eq!((queue.counts().redelivered, queue.history()[0].redelivered), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_message_that_is_not_deleted_is_dead_lettered_in_the_end() {
    let (_, dead) = with_dead_letters("payments", 1);
    let dead_letter = Some(DeadLetter { queue: dead.clone(), max_receive_count: 2 });
    let queue = queue(QueueSettings { redelivery_rate: 1.0, dead_letter, ..settings("payments") });
    queue.send("a").unwrap();
    for is_deleted in [true, false, false] {
        let received = receive(&queue);
        if is_deleted {
            queue.delete(&received.receipt_handle).unwrap();
        }
        assert!(dead.is_empty());
        advance(VISIBILITY).await;
    }
    assert!(queue.receive(10).is_empty());
    assert_eq!(dead.visible(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_standard_queue_may_deliver_a_message_to_two_consumers_at_once() {
    let queue = queue(QueueSettings { concurrent_delivery_rate: 1.0, ..settings("payments") });
    queue.send("a").unwrap();
    let (one, other) = (receive(&queue), receive(&queue));
    assert_eq!(one.message_id, other.message_id);
    assert_ne!(one.receipt_handle, other.receipt_handle);
    assert_eq!((one.receive_count(), other.receive_count()), (1, 2));
    assert_eq!(queue.counts().concurrent_deliveries, 1);
    queue.delete(&one.receipt_handle).unwrap();
    assert!(!queue.is_empty());
    queue.delete(&other.receipt_handle).unwrap();
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn random_choices_have_their_rates_and_are_repeated_by_the_seed() {
    let course = |seed| {
        let queue = Queue::new(
            QueueSettings { redelivery_rate: 0.3, concurrent_delivery_rate: 0.2, ..settings("payments") },
            seed,
        );
        (0..1000).for_each(|n| drop(queue.send(format!("{n}")).unwrap()));
        let mut handles = Vec::new();
        while handles.len() < 1000 {
            handles.extend(queue.receive(10).into_iter().map(|message| message.receipt_handle));
        }
        for handle in &handles {
            queue.delete(handle).unwrap();
        }
        (handles, queue.counts())
    };
    let (handles, counts) = course(1);
    assert!((200..400).contains(&counts.redelivered), "{counts:?}");
    assert!((130..270).contains(&counts.concurrent_deliveries), "{counts:?}");
    assert_eq!((handles.clone(), counts), course(1));
    assert_ne!(handles, course(2).0);
}

/// Whether the message is visible once more after it was received. The others were deleted.
fn is_delivered_twice(seed: u64, earlier: usize, all_at_once: bool) -> bool {
    let queue = Queue::new(QueueSettings { concurrent_delivery_rate: 0.5, ..settings("payments") }, seed);
    (0..earlier).for_each(|_| drop(queue.send("earlier").unwrap()));
    queue.send("the message").unwrap();
    loop {
        for received in queue.receive(if all_at_once { 10 } else { 1 }) {
            if received.body == "the message" {
                return queue.receive(10).iter().any(|again| again.body == "the message");
            }
            queue.delete(&received.receipt_handle).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_choices_for_a_message_depend_on_its_place_and_not_on_what_happens_to_the_others() {
    for seed in 0..20 {
        assert_eq!(is_delivered_twice(seed, 3, true), is_delivered_twice(seed, 3, false), "seed {seed}");
    }
    assert!((0..20).any(|seed| is_delivered_twice(seed, 3, true) != is_delivered_twice(seed, 4, true)));
    assert!((0..20).any(|seed| is_delivered_twice(seed, 3, true) != is_delivered_twice(seed + 1, 3, true)));
}

#[tokio::test(start_paused = true)]
async fn a_standard_queue_has_no_order_and_does_not_block_groups() {
    let queue = queue(QueueSettings { max_reordering: SECOND, ..settings("payments") });
    (0..10).for_each(|n| drop(queue.send(SendRequest::new(format!("{n}")).group("tenant")).unwrap()));
    let (five, others) = (queue.receive(5), queue.receive(10));
    assert_eq!(others.len(), 5, "a group in flight holds nothing back");
    let received = [bodies(&five), bodies(&others)].concat();
    assert_ne!(received, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(received.iter().collect::<HashSet<_>>().len(), 10);
    assert!(five.iter().all(|message| message.group_id() == Some("tenant")));
}

#[tokio::test(start_paused = true)]
async fn reordering_is_limited() {
    let queue = queue(QueueSettings { max_reordering: SECOND, ..settings("payments") });
    queue.send("early").unwrap();
    advance(SECOND).await;
    (0..50).for_each(|_| drop(queue.send("late").unwrap()));
    assert_eq!(queue.receive(1)[0].body, "early");
}
