//! Which messages SQS accepts, how it stores them, and delays.

use std::time::Duration;

use idempotent_sqs_testing::{Attribute, QueueSettings, SendRequest};
use tokio::time::{Instant, advance};

use super::{SECOND, bodies, queue, receive, settings};

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

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#message-attribute-components>
#[tokio::test(start_paused = true)]
async fn the_name_of_an_attribute_has_letters_digits_underscores_hyphens_and_single_periods() {
    let queue = queue(settings("payments"));
    let send = |name: &str| queue.send(SendRequest::new("a").attribute(name, "pay_1")).map_err(|error| error.code);
    for good in ["Idempotency-Key", "a.b_c-1", "aws", "awsome.key", &"x".repeat(256)] {
        send(good).unwrap();
    }
    for bad in [".a", "a.", "a..b", "a b", "schl\u{fc}ssel", "AWS.key", "aws.key", "Amazon.key", &"x".repeat(257)] {
        assert_eq!(send(bad), Err("InvalidParameterValue"), "{bad:?}");
    }
}

/// "Amazon SQS removes leading and trailing zeroes":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#message-attribute-data-types>
#[tokio::test(start_paused = true)]
async fn a_number_loses_its_leading_and_trailing_zeroes() {
    let queue = queue(settings("payments"));
    for (sent, stored) in [
        ("007", "7"),
        ("12.50", "12.5"),
        ("-0.10", "-0.1"),
        (".5", "0.5"),
        ("100", "100"),
        ("1.0", "1"),
        ("0", "0"),
        ("00.0", "0"),
        ("1.50e10", "1.5e10"),
    ] {
        queue.send(SendRequest::new("a").attribute("Amount", Attribute::Number(sent.into()))).unwrap();
        let received = serde_json::to_value(receive(&queue)).unwrap();
        assert_eq!(received["messageAttributes"]["Amount"]["stringValue"], stored, "{sent}");
    }
    for bad in ["pay_1", "1,5", "NaN", "inf", "- 1"] {
        let message = SendRequest::new("a").attribute("Amount", Attribute::Number(bad.into()));
        assert_eq!(queue.send(message).unwrap_err().code, "InvalidParameterValue", "{bad}");
    }
}

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-delay-queues.html>,
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-timers.html>
#[tokio::test(start_paused = true)]
async fn a_delayed_message_is_received_after_its_delay_which_overrides_that_of_the_queue() {
    let queue = queue(QueueSettings { delay: 5 * SECOND, ..settings("payments") });
    queue.send("queue's").unwrap();
    queue.send(SendRequest::new("own").delay(10 * SECOND)).unwrap();
    queue.send(SendRequest::new("none").delay(Duration::ZERO)).unwrap();
    assert_eq!(bodies(&queue.receive(10)), ["none"]);
    assert_eq!((queue.visible(), queue.in_flight(), queue.delayed()), (0, 1, 2));
    assert_eq!(queue.next_change(), Some(Instant::now() + 5 * SECOND));
    advance(5 * SECOND).await;
    assert_eq!(bodies(&queue.receive(10)), ["queue's"]);
    advance(5 * SECOND).await;
    assert_eq!(bodies(&queue.receive(10)), ["own"]);
    let message = SendRequest::new("late").delay(Duration::from_secs(901));
    assert_eq!(queue.send(message).unwrap_err().code, "InvalidParameterValue");
}

/// "When you set `FifoQueue`, you can't set `DelaySeconds` per message":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
#[tokio::test(start_paused = true)]
async fn a_fifo_queue_delays_all_messages_or_none() {
    let queue = queue(QueueSettings { delay: SECOND, ..settings("payments.fifo") });
    let message = |delay| SendRequest::new("a").group("g").deduplication_id("d").delay(delay);
    assert_eq!(queue.send(message(SECOND)).unwrap_err().code, "InvalidParameterValue");
    queue.send(message(Duration::ZERO)).unwrap();
    assert!(queue.receive(10).is_empty());
    advance(SECOND).await;
    receive(&queue);
}
