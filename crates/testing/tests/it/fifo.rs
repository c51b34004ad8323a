//! FIFO queues: order, groups and deduplication.

use std::time::Duration;

use harness::with;
use idempotent_sqs::idempotency::{Idempotency, Policy};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, BatchSettings, KeySource};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{DeduplicationScope, Mapping, MappingSettings, Queue, QueueSettings, SendRequest};
use tokio::time::{Instant, advance};

use super::{SECOND, VISIBILITY, bodies, code, queue, receive, settings, with_dead_letters};
use harness::work::{Action, ScriptedWork};

const MINUTE: Duration = Duration::from_mins(1);

fn fifo() -> Queue {
    queue(settings("payments.fifo"))
}

/// Each message is in the group of its first letter.
fn send(queue: &Queue, messages: &[&str]) {
    for body in messages {
        queue.send(SendRequest::new(*body).group(&body[..1]).deduplication_id(*body)).unwrap();
    }
}

fn delete(queue: &Queue, receipt_handles: &[&str]) {
    for handle in receipt_handles {
        queue.delete(handle).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_receive_returns_all_messages_of_a_group_in_order_before_the_next_group() {
    let queue = fifo();
    send(&queue, &["a1", "b1", "a2", "c1", "b2", "a3"]);
    assert_eq!(bodies(&queue.receive(5)), ["a1", "a2", "a3", "b1", "b2"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_is_blocked_while_a_message_of_it_is_in_flight() {
    let queue = fifo();
    send(&queue, &["a1", "a2", "a3", "b1"]);
    let first = queue.receive(2);
    assert_eq!(bodies(&first), ["a1", "a2"]);
    assert_eq!(bodies(&queue.receive(10)), ["b1"], "a3 is held back, another group is not");
    delete(&queue, &[&first[0].receipt_handle]);
    assert!(queue.receive(10).is_empty(), "a2 is in flight");
    delete(&queue, &[&first[1].receipt_handle]);
    assert_eq!(bodies(&queue.receive(10)), ["a3"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_redelivered_before_later_messages_of_its_group() {
    let queue = fifo();
    send(&queue, &["a1", "a2", "a3"]);
    drop(queue.receive(1));
    advance(VISIBILITY).await;
    assert_eq!(bodies(&queue.receive(10)), ["a1", "a2", "a3"]);
}

/// "The visibility timeout of one message" in
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html>:
/// no more messages of the group "unless you delete the message or it becomes visible".
#[tokio::test(start_paused = true)]
async fn a_message_in_flight_blocks_the_later_messages_of_its_group_and_not_the_earlier_ones() {
    for (in_flight, free) in [(0, vec![]), (1, vec!["a1"]), (2, vec!["a1", "a2"])] {
        let queue = fifo();
        send(&queue, &["a1", "a2", "a3"]);
        for (index, message) in queue.receive(10).iter().enumerate() {
            let after = if index == in_flight { 90 * SECOND } else { Duration::ZERO };
            queue.change_visibility(&message.receipt_handle, after).unwrap();
        }
        send(&queue, &["a4"]);
        let next = if in_flight == 0 { 90 * SECOND } else { Duration::ZERO };
        assert_eq!(queue.next_change(), Some(Instant::now() + next), "{in_flight}");
        assert_eq!(bodies(&queue.receive(10)), free, "{in_flight}");
        advance(90 * SECOND).await;
        assert_eq!(bodies(&queue.receive(10)), ["a1", "a2", "a3", "a4"], "{in_flight}");
    }
}

/// "Messages in different message groups might be processed out of order":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
#[tokio::test(start_paused = true)]
async fn groups_have_no_order_and_messages_of_a_group_keep_theirs() {
    let queue = queue(QueueSettings { max_reordering: SECOND, ..settings("payments.fifo") });
    send(&queue, &["a1", "b1", "c1", "d1", "e1", "f1", "f2"]);
    let received = queue.receive(10);
    let received = bodies(&received);
    assert_ne!(received, ["a1", "b1", "c1", "d1", "e1", "f1", "f2"]);
    let first = received.iter().position(|body| *body == "f1").unwrap();
    assert_eq!(received[first + 1], "f2");
}

#[tokio::test(start_paused = true)]
async fn a_delete_after_the_visibility_timeout_fails() {
    let queue = fifo();
    send(&queue, &["a1"]);
    let old = receive(&queue).receipt_handle;
    advance(VISIBILITY).await;
    assert_eq!(code(queue.delete(&old)), "InvalidParameterValue");
    let last = receive(&queue).receipt_handle;
    assert_eq!(code(queue.delete(&old)), "InvalidParameterValue");
    queue.delete(&last).unwrap();
    queue.delete(&last).unwrap();
    assert!(queue.is_empty());
    assert_eq!(queue.history()[0].deletes, 1);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_queue_does_not_duplicate_deliveries() {
    let queue =
        queue(QueueSettings { redelivery_rate: 1.0, concurrent_delivery_rate: 1.0, ..settings("payments.fifo") });
    send(&queue, &["a1"]);
    let handle = receive(&queue).receipt_handle;
    assert!(queue.receive(10).is_empty());
    queue.delete(&handle).unwrap();
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_send_is_deduplicated_for_five_minutes_also_after_a_delete() {
    let queue = fifo();
    let again = || queue.send(SendRequest::new("other").group("b").deduplication_id("a1")).unwrap();
    send(&queue, &["a1"]);
    let received = receive(&queue);
    queue.delete(&received.receipt_handle).unwrap();
    advance(5 * MINUTE - SECOND).await;
    assert_eq!(again(), received.message_id);
    assert!(queue.is_empty());
    advance(SECOND).await;
    assert_ne!(again(), received.message_id);
    assert_eq!(receive(&queue).body, "other");
    assert_eq!((queue.counts().sent, queue.counts().deduplicated, queue.history()[0].sends), (2, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn within_message_groups_the_same_deduplication_id_in_another_group_is_another_message() {
    let deduplication_scope = DeduplicationScope::MessageGroup;
    let queue = queue(QueueSettings { deduplication_scope, ..settings("payments.fifo") });
    let send = |group: &str, body: &str| queue.send(SendRequest::new(body).group(group).deduplication_id("1")).unwrap();
    let first = send("a", "a1");
    assert_ne!(send("b", "b1"), first);
    assert_eq!(send("a", "a2"), first);
    assert_eq!(bodies(&queue.receive(10)), ["a1", "b1"]);
    assert_eq!((queue.counts().sent, queue.counts().deduplicated), (2, 1));
    advance(5 * MINUTE).await;
    assert_ne!(send("a", "a3"), first);
}

#[tokio::test(start_paused = true)]
async fn by_content_within_message_groups_equal_bodies_of_two_groups_are_two_messages() {
    let queue = queue(QueueSettings {
        content_based_deduplication: true,
        deduplication_scope: DeduplicationScope::MessageGroup,
        ..settings("payments.fifo")
    });
    let send = |group: &str| queue.send(SendRequest::new("12.50 EUR").group(group)).unwrap();
    let first = send("a");
    assert_ne!(send("b"), first);
    assert_eq!(send("a"), first);
}

/// A producer's own key for both would be one work; here SQS's id is the key.
#[tokio::test(start_paused = true)]
async fn equal_deduplication_ids_of_two_groups_are_two_works() {
    let deduplication_scope = DeduplicationScope::MessageGroup;
    for at_once in [true, false] {
        let queue = queue(QueueSettings { deduplication_scope, ..settings("payments.fifo") });
        let told = ScriptedWork::always(Action::Return(b""));
        let keys = vec![KeySource::DeduplicationId];
        let batch = with!(BatchSettings::default(), keys = keys);
        let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &told, batch);
        let handler = Handler::new(batch, Some(queue.visibility()));
        let mapping = Mapping::new(&queue, MappingSettings::default());
        for group in ["DE-4711", "DE-4712"] {
            queue.send(SendRequest::new("12.50 EUR").group(group).deduplication_id("1")).unwrap();
            if !at_once {
                mapping.drain(&handler).await;
            }
        }
        mapping.drain(&handler).await;
        assert_eq!((told.runs().len(), queue.counts().deleted), (2, 2), "at once: {at_once}");
    }
}

#[tokio::test(start_paused = true)]
async fn content_based_deduplication_uses_only_the_body() {
    let queue = queue(QueueSettings { content_based_deduplication: true, ..settings("payments.fifo") });
    let first = queue.send(SendRequest::new("a").group("a").attribute("Idempotency-Key", "pay_1")).unwrap();
    let second = queue.send(SendRequest::new("a").group("b").attribute("Idempotency-Key", "pay_2")).unwrap();
    assert_eq!(first, second);
    assert_ne!(queue.send(SendRequest::new("b").group("a")).unwrap(), first);
    let sha256_of_a = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
    assert_eq!(queue.receive(1)[0].deduplication_id(), Some(sha256_of_a));
}

#[tokio::test(start_paused = true)]
async fn a_message_needs_a_group_and_a_deduplication_id() {
    let queue = fifo();
    let code = |message: SendRequest| queue.send(message).unwrap_err().code;
    assert_eq!(code(SendRequest::new("a").deduplication_id("d")), "MissingParameter");
    assert_eq!(code(SendRequest::new("a").group("g")), "InvalidParameterValue");
}

#[tokio::test(start_paused = true)]
async fn ids_are_of_up_to_128_letters_digits_and_punctuation() {
    let (fifo, standard) = (fifo(), queue(settings("payments")));
    let all_marks = r##"!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"##;
    for good in [all_marks, "7", &"x".repeat(128)] {
        fifo.send(SendRequest::new("a").group(good).deduplication_id(good)).unwrap();
        standard.send(SendRequest::new("a").group(good)).unwrap();
    }
    for bad in ["", "DE 4711", "z\u{fc}rich", "a\n", &"x".repeat(129)] {
        for message in [
            SendRequest::new("b").group(bad).deduplication_id("d"),
            SendRequest::new("b").group("g").deduplication_id(bad),
        ] {
            assert_eq!(fifo.send(message).unwrap_err().code, "InvalidParameterValue", "{bad:?}");
        }
        assert_eq!(
            standard.send(SendRequest::new("b").group(bad)).unwrap_err().code,
            "InvalidParameterValue",
            "{bad:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_frees_its_group_and_loses_its_deduplication_id() {
    let (queue, dead) = with_dead_letters("payments.fifo", 1);
    send(&queue, &["a1", "a2"]);
    let first = queue.receive(1).remove(0);
    advance(VISIBILITY).await;
    assert_eq!(bodies(&queue.receive(10)), ["a2"]);
    dead.redrive_to(&queue).unwrap();
    advance(VISIBILITY).await;
    let received = receive(&queue);
    assert_eq!(received.body, "a1", "a2 has followed it to the dead-letter queue");
    assert_ne!(received.message_id, first.message_id);
    assert_eq!(received.deduplication_id(), Some(first.message_id.as_str()), "AWS puts the messageId in its place");
}
