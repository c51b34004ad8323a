//! Receives, visibility timeouts, receipt handles, retention, and what SQS refuses.

use std::time::Duration;

use idempotent_sqs_testing::{Mapping, MappingSettings, MessageState, QueueSettings, SendRequest};
use tokio::time::{Instant, advance};

use super::{SECOND, VISIBILITY, code, queue, receive, settings};

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
    assert_eq!(queue.receive(10).len(), 10);
    assert_eq!(queue.receive(10).len(), 2);
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

/// "Any attempt to change the visibility timeout […] might result in an error":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
#[tokio::test(start_paused = true)]
async fn the_last_receipt_handle_may_change_an_expired_visibility_timeout_of_a_standard_queue() {
    for (name, succeeds) in [("payments", true), ("payments.fifo", false)] {
        let queue = queue(QueueSettings { expired_handle_change_rate: 1.0, ..settings(name) });
        let message = SendRequest::new("a").group("g");
        queue.send(if succeeds { message } else { message.deduplication_id("d") }).unwrap();
        let received = receive(&queue);
        advance(VISIBILITY).await;
        assert_eq!(queue.change_visibility(&received.receipt_handle, SECOND).is_ok(), succeeds, "{name}");
        assert_eq!(queue.receive(10).is_empty(), succeeds, "{name}");
    }
}

/// "Amazon SQS never returns more messages than this value (however, fewer messages might be returned)":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>
#[tokio::test(start_paused = true)]
async fn a_receive_may_return_fewer_messages_than_are_visible() {
    let queue = queue(QueueSettings { partial_receive_rate: 1.0, ..settings("payments") });
    (0..100).for_each(|n| drop(queue.send(format!("{n}")).unwrap()));
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < 100 {
        sizes.push(queue.receive(10).len());
    }
    assert!(sizes.iter().all(|size| (1..=10).contains(size)), "{sizes:?}");
    assert!((15..30).contains(&sizes.len()), "{sizes:?}");
}

/// "For most standard queues […] a maximum of approximately 120,000 in flight messages […] Amazon SQS returns the
/// `OverLimit` error message. […] For FIFO queues […] returns no error messages":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
#[tokio::test(start_paused = true)]
async fn at_most_120_000_messages_are_in_flight() {
    let queue = queue(settings("payments"));
    (0..120_001).for_each(|_| drop(queue.send("a").unwrap()));
    let settings = MappingSettings { batch_size: 10_000, batching_window: SECOND, ..MappingSettings::default() };
    let mapping = Mapping::new(&queue, settings);
    let mut batches = Vec::new();
    while let Some(batch) = mapping.poll() {
        batches.push(batch);
    }
    assert_eq!((queue.in_flight(), queue.visible()), (120_000, 1));
    assert_eq!(queue.receive_for(1, VISIBILITY).unwrap_err().code, "OverLimit");
    queue.delete(&batches[0].messages()[0].receipt_handle).unwrap();
    assert_eq!(queue.receive_for(2, VISIBILITY).unwrap().len(), 1);
}

/// "Amazon SQS automatically deletes messages left in a queue longer than the retention period configured for the
/// queue": <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html>
#[tokio::test(start_paused = true)]
async fn with_120_000_messages_in_flight_the_next_is_received_when_one_of_them_is_visible_or_expires() {
    let (retention, visibility_timeout) = (60 * SECOND, 45 * SECOND);
    let queue = queue(QueueSettings { retention, visibility_timeout, ..settings("payments") });
    (0..120_001).for_each(|_| drop(queue.send("a").unwrap()));
    let expire = Instant::now() + retention;
    let settings = MappingSettings { batch_size: 10_000, batching_window: SECOND, ..MappingSettings::default() };
    let mapping = Mapping::new(&queue, settings);
    // The visibility timeouts of the second round would end after the retention.
    for next in [Instant::now() + visibility_timeout, expire] {
        while mapping.poll().is_some() {}
        assert_eq!((queue.visible(), queue.next_change()), (1, Some(next)));
        queue.changed().await;
        assert!(Instant::now() >= next);
    }
    assert!(queue.is_empty());
}

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
#[test]
fn the_name_of_a_queue_has_up_to_80_letters_digits_hyphens_and_underscores() {
    for good in ["a", "A-1_b.fifo", &"x".repeat(80)] {
        drop(queue(settings(good)));
    }
    for bad in ["", ".fifo", "a.b", "a/b", &"x".repeat(81)] {
        assert!(std::panic::catch_unwind(|| queue(settings(bad))).is_err(), "{bad:?}");
    }
}
