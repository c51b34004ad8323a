//! Visibility timeouts, receipt handles, dead-letter queues, and duplicates of standard queues.

use std::collections::HashSet;
use std::time::Duration;

use idempotent_sqs_testing::{Attribute, DeadLetter, MessageState, Queue, QueueSettings, SendRequest};
use tokio::time::{Instant, advance};

use super::{SECOND, VISIBILITY, bodies, code, queue, receive, settings, with_dead_letters};

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn a_received_message_is_invisible_until_its_visibility_timeout_ends_and_counts_its_receives() {
    let queue = queue(settings("payments"));
    queue.send("a").unwrap();
    for count in 1..=3 {
        assert_eq!(receive(&queue).receive_count(), count);
        assert!(queue.receive(10).is_empty());
        assert_eq!(queue.next_change(), Some(Instant::now() + VISIBILITY));
        advance(VISIBILITY - Duration::from_millis(1)).await;
        assert!(queue.receive(10).is_empty(), "never sooner");
        advance(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_message_is_not_delivered_again() {
    let queue = queue(settings("payments"));
    queue.send("a").unwrap();
    queue.delete(&receive(&queue).receipt_handle).unwrap();
    assert!(queue.is_empty());
    assert_eq!(queue.next_change(), None);
    let entry = &queue.history()[0];
    assert_eq!((entry.sends, entry.receives, entry.deletes, &entry.state), (1, 1, 1, &MessageState::Deleted));
}

#[tokio::test(start_paused = true)]
async fn a_receive_returns_at_most_ten_messages() {
    let queue = queue(settings("payments"));
    (0..12).for_each(|n| drop(queue.send(format!("{n}")).unwrap()));
    assert_eq!(queue.receive(100).len(), 10);
    assert_eq!(queue.receive(100).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_last_receipt_handle_deletes_also_after_its_visibility_timeout() {
    let queue = queue(settings("payments"));
    queue.send("a").unwrap();
    let received = receive(&queue);
    advance(HOUR).await;
    queue.delete(&received.receipt_handle).unwrap();
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delete_with_an_old_receipt_handle_succeeds_and_may_have_no_effect() {
    for (chance, is_empty) in [(0.0, false), (1.0, true)] {
        let queue = queue(QueueSettings { stale_handle_delete_rate: chance, ..settings("payments") });
        queue.send("a").unwrap();
        let old = receive(&queue);
        advance(VISIBILITY).await;
        let last = receive(&queue);
        queue.delete(&old.receipt_handle).unwrap();
        assert_eq!(queue.is_empty(), is_empty);
        queue.delete(&last.receipt_handle).unwrap();
        assert!(queue.is_empty());
        assert_eq!(queue.counts().ignored_deletes, usize::from(!is_empty));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_receipt_handle_is_rejected() {
    let (queue, other) = (queue(settings("payments")), queue(settings("others")));
    other.send("a").unwrap();
    let foreign = receive(&other).receipt_handle;
    for handle in ["", "AQEB", &foreign] {
        assert_eq!(code(queue.delete(handle)), "ReceiptHandleIsInvalid");
        assert_eq!(code(queue.change_visibility(handle, SECOND)), "ReceiptHandleIsInvalid");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_visibility_timeout_counts_from_the_call_and_applies_to_one_receive() {
    let queue = queue(settings("payments"));
    queue.send("a").unwrap();
    for after in [0, 5, 900].map(Duration::from_secs) {
        let received = receive(&queue);
        advance(10 * SECOND).await;
        queue.change_visibility(&received.receipt_handle, after).unwrap();
        assert_eq!(queue.next_change(), Some(Instant::now() + after));
        advance(after).await;
    }
    receive(&queue);
    assert_eq!(queue.next_change(), Some(Instant::now() + VISIBILITY), "the queue's own again");
}

#[tokio::test(start_paused = true)]
async fn a_receive_can_have_its_own_visibility_timeout() {
    let queue = queue(settings("payments"));
    queue.send("a").unwrap();
    let [received] = queue.receive_for(10, 5 * VISIBILITY).unwrap().try_into().unwrap();
    assert_eq!(queue.next_change(), Some(Instant::now() + 5 * VISIBILITY));
    queue.change_visibility(&received.receipt_handle, Duration::ZERO).unwrap();
    assert_eq!(queue.receive_for(1, 12 * HOUR + SECOND).unwrap_err().code, "InvalidParameterValue");
    receive(&queue);
    assert_eq!(queue.next_change(), Some(Instant::now() + VISIBILITY), "the queue's own again");
}

#[tokio::test(start_paused = true)]
async fn messages_are_counted_as_visible_or_in_flight() {
    let queue = queue(settings("payments.fifo"));
    let counts = || (queue.visible(), queue.in_flight());
    for id in ["1", "2", "3"] {
        queue.send(SendRequest::new("a").group("g").deduplication_id(id)).unwrap();
    }
    assert_eq!(counts(), (3, 0));
    let [first] = queue.receive(1).try_into().unwrap();
    assert_eq!(counts(), (2, 1), "those that wait for it are visible");
    advance(VISIBILITY).await;
    assert_eq!(counts(), (3, 0));
    assert_eq!(code(queue.delete(&first.receipt_handle)), "InvalidParameterValue");
    queue.delete(&queue.receive(1)[0].receipt_handle).unwrap();
    assert_eq!(counts(), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_trace_header_is_delivered_as_a_system_attribute() {
    let queue = queue(settings("payments"));
    queue.send(SendRequest::new("a").trace_header("Root=1-5759e988")).unwrap();
    let message = serde_json::to_value(receive(&queue)).unwrap();
    assert_eq!(message["attributes"]["AWSTraceHeader"], "Root=1-5759e988");
    assert_eq!(message["messageAttributes"], serde_json::json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_visibility_timeout_ends_at_most_twelve_hours_after_the_receive() {
    let queue = queue(settings("payments"));
    queue.send("a").unwrap();
    let handle = receive(&queue).receipt_handle;
    assert_eq!(code(queue.change_visibility(&handle, 12 * HOUR + SECOND)), "InvalidParameterValue");
    assert_eq!(code(queue.change_visibility("unknown", 12 * HOUR + SECOND)), "InvalidParameterValue");
    queue.change_visibility(&handle, 12 * HOUR).unwrap();
    advance(HOUR).await;
    assert_eq!(code(queue.change_visibility(&handle, 11 * HOUR + SECOND)), "InvalidParameterValue");
    assert_eq!(queue.next_change(), Some(Instant::now() + 11 * HOUR), "a refused change changes nothing");
    queue.change_visibility(&handle, 11 * HOUR).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_visibility_timeout_is_changed_only_by_the_receipt_handle_in_flight() {
    let queue = queue(settings("payments"));
    queue.send("a").unwrap();
    let old = receive(&queue);
    advance(VISIBILITY).await;
    assert_eq!(code(queue.change_visibility(&old.receipt_handle, SECOND)), "MessageNotInflight");
    let last = receive(&queue);
    assert_eq!(code(queue.change_visibility(&old.receipt_handle, SECOND)), "InvalidParameterValue");
    queue.change_visibility(&last.receipt_handle, SECOND).unwrap();
    queue.delete(&last.receipt_handle).unwrap();
    assert_eq!(code(queue.change_visibility(&last.receipt_handle, SECOND)), "InvalidParameterValue");
}

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
async fn a_message_expires_with_its_retention_also_in_flight() {
    let queue = queue(QueueSettings { retention: HOUR, visibility_timeout: 2 * HOUR, ..settings("payments") });
    queue.send("a").unwrap();
    queue.send("b").unwrap();
    drop(queue.receive(1));
    advance(HOUR - SECOND).await;
    assert!(!queue.is_empty());
    advance(SECOND).await;
    assert!(queue.receive(10).is_empty() && queue.is_empty());
    assert!(queue.history().iter().all(|entry| entry.state == MessageState::Expired));
    assert_eq!(queue.counts().expired, 2);
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

#[tokio::test(start_paused = true)]
async fn invalid_messages_are_rejected() {
    let queue = queue(settings("payments"));
    let code = |message: SendRequest| queue.send(message).unwrap_err().code;
    assert_eq!(code("".into()), "MissingParameter");
    assert_eq!(code("x".repeat(1024 * 1024 + 1).into()), "InvalidParameterValue");
    assert_eq!(code(SendRequest::new("x".repeat(1024 * 1024 - 9)).attribute("key", "text")), "InvalidParameterValue");
    assert_eq!(code(SendRequest::new("a").deduplication_id("d")), "InvalidParameterValue");
    queue.send("x".repeat(1024 * 1024)).unwrap();
    assert_eq!(queue.counts().sent, 1);
}

#[tokio::test(start_paused = true)]
async fn at_most_ten_attributes_with_names_and_values_are_accepted() {
    let queue = queue(settings("payments"));
    let with = |count: u8| (0..count).fold(SendRequest::new("a"), |message, n| message.attribute(n.to_string(), "x"));
    let code = |message: SendRequest| queue.send(message).unwrap_err().code;
    for nameless_or_empty in
        [("", "pay_1".into()), ("Idempotency-Key", "".into()), ("Bytes", Attribute::Binary(vec![]))]
    {
        let (name, value) = nameless_or_empty;
        assert_eq!(code(SendRequest::new("a").attribute(name, value)), "InvalidParameterValue", "{name}");
    }
    assert_eq!(code(with(11)), "InvalidParameterValue");
    queue.send(with(10)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn characters_outside_of_xml_are_rejected_in_bodies_and_attributes() {
    let queue = queue(settings("payments"));
    let code = |message: SendRequest| queue.send(message).unwrap_err().code;
    for bad in ["\0", "\u{8}", "\u{1f}", "\u{fffe}", "\u{ffff}"] {
        assert_eq!(code(bad.into()), "InvalidMessageContents", "{bad:?}");
        assert!(queue.send(SendRequest::new("a").attribute("Idempotency-Key", bad)).is_err(), "{bad:?}");
    }
    let good = "\t\n\r \u{d7ff}\u{e000}\u{fffd}\u{10000}\u{10ffff}";
    queue.send(SendRequest::new(good).attribute("Idempotency-Key", good)).unwrap();
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

#[tokio::test(start_paused = true)]
async fn changed_returns_when_a_message_may_be_visible() {
    let queue = queue(settings("payments"));
    let started = Instant::now();
    let sender = async {
        tokio::time::sleep(SECOND).await;
        queue.send("a").unwrap();
    };
    tokio::join!(queue.changed(), sender);
    assert_eq!(started.elapsed(), SECOND);
    queue.changed().await;
    assert_eq!(started.elapsed(), SECOND, "it is visible already");
    receive(&queue);
    queue.changed().await;
    assert_eq!(started.elapsed(), SECOND + VISIBILITY);
    assert_eq!(receive(&queue).receive_count(), 2);
}

#[test]
#[should_panic(expected = "type")]
fn a_dead_letter_queue_of_another_type_is_rejected() {
    let dead_letter = Some(DeadLetter { queue: queue(settings("dead")), max_receive_count: 1 });
    drop(queue(QueueSettings { dead_letter, ..settings("payments.fifo") }));
}

#[test]
fn threads_share_a_queue_and_its_dead_letter_queue_without_deadlock() {
    let instant = Duration::from_millis(1);
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
