//! Batches, events, and the effect of each response on the messages.

use std::fs;
use std::time::{Duration, SystemTime};

use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{self, Batch, BatchSettings};
use idempotent_sqs::{Claim, Idempotency, MemoryStore, Message, Policy, WorkError, work_fn};
use idempotent_sqs_testing::{
    Attribute, BatchOutcome, Invocation, InvocationResult, Mapping, MappingSettings, Queue, QueueSettings, SendRequest,
};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::{SECOND, VISIBILITY, bodies, queue, receive, settings};

/// The function's timeout.
const TIMEOUT: Duration = Duration::from_secs(6);

fn mapping(queue: &Queue) -> Mapping {
    Mapping::new(queue, MappingSettings { function_timeout: TIMEOUT, ..MappingSettings::default() })
}

fn with_messages(count: usize) -> Queue {
    let queue = queue(settings("payments"));
    (0..count).for_each(|n| drop(queue.send(format!("{n}")).unwrap()));
    queue
}

fn returned(response: impl AsRef<[u8]>) -> InvocationResult {
    InvocationResult::Returned(response.as_ref().to_vec())
}

/// Number of messages, of three, that a response deletes. The response may depend on the batch.
fn deleted_of_three(settings: MappingSettings, result: impl FnOnce(&Invocation) -> InvocationResult) -> usize {
    let queue = with_messages(3);
    let invocation = Mapping::new(&queue, settings).poll().unwrap();
    assert_eq!(invocation.messages().len(), 3);
    let result = result(&invocation);
    invocation.finish(result);
    queue.counts().deleted
}

fn deleted_by(response: &str) -> usize {
    deleted_of_three(MappingSettings::default(), |_| returned(response))
}

#[tokio::test(start_paused = true)]
async fn a_response_without_failures_deletes_every_message() {
    for response in [r#"{"batchItemFailures":[]}"#, r#"{"batchItemFailures":null}"#, "{}", "null", ""] {
        assert_eq!(deleted_by(response), 3, "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_without_batch_item_failures_or_with_a_misspelt_name_deletes_every_message() {
    for response in [
        r#"{"statusCode":200}"#,
        r#"{"BatchItemFailures":[{"itemIdentifier":"x"}]}"#,
        r#"{"batch_item_failures":[{"itemIdentifier":"x"}]}"#,
        r#"[{"itemIdentifier":"x"}]"#,
    ] {
        assert_eq!(deleted_by(response), 3, "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_with_an_invalid_identifier_deletes_nothing() {
    for failure in [
        r#"{"itemIdentifier":""}"#,
        r#"{"itemIdentifier":null}"#,
        r#"{"itemIdentifier":7}"#,
        r#"{"itemIdentifier":"of another batch"}"#,
        r#"{"ItemIdentifier":"x"}"#,
        r#"{"messageId":"x"}"#,
        r#""x""#,
    ] {
        let response = |invocation: &Invocation| {
            let good = json!({ "itemIdentifier": invocation.messages()[0].message_id });
            returned(format!(r#"{{"batchItemFailures":[{good},{failure}]}}"#))
        };
        assert_eq!(deleted_of_three(MappingSettings::default(), response), 0, "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_json_deletes_nothing() {
    for response in ["ok", "{", r#"{"batchItemFailures":["#, r#"{"batchItemFailures":{}}"#] {
        assert_eq!(deleted_by(response), 0, "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_and_a_timeout_delete_nothing() {
    for result in [InvocationResult::Failed, InvocationResult::TimedOut] {
        assert_eq!(deleted_of_three(MappingSettings::default(), |_| result), 0);
    }
    let queue = with_messages(3);
    let mapping = mapping(&queue);
    drop(mapping.poll().unwrap());
    assert_eq!((queue.counts().deleted, mapping.counts().invocations), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_response_after_the_deadline_is_a_timeout() {
    for (late, deleted) in [(TIMEOUT - Duration::from_millis(1), 3), (TIMEOUT, 0)] {
        let queue = with_messages(3);
        let mapping = mapping(&queue);
        let invocation = mapping.poll().unwrap();
        advance(late).await;
        invocation.finish(returned("{}"));
        assert_eq!((queue.counts().deleted, mapping.counts().failed), (deleted, usize::from(deleted == 0)));
    }
}

#[tokio::test(start_paused = true)]
async fn without_report_batch_item_failures_every_response_deletes_every_message() {
    let settings = || MappingSettings { report_batch_item_failures: false, ..MappingSettings::default() };
    let naming_all = |invocation: &Invocation| {
        let names = invocation.messages().iter().map(|message| json!({ "itemIdentifier": message.message_id }));
        returned(json!({ "batchItemFailures": names.collect::<Vec<_>>() }).to_string())
    };
    assert_eq!(deleted_of_three(settings(), naming_all), 3);
    assert_eq!(deleted_of_three(settings(), |_| returned("no JSON")), 3);
    assert_eq!(deleted_of_three(settings(), |_| InvocationResult::Failed), 0);
    assert_eq!(deleted_of_three(MappingSettings::default(), naming_all), 0);
}

#[tokio::test(start_paused = true)]
async fn a_named_message_is_redelivered_when_its_visibility_timeout_ends() {
    let queue = with_messages(3);
    let mapping = mapping(&queue);
    let invocation = mapping.poll().unwrap();
    let ids: Vec<_> = invocation.messages().iter().map(|message| message.message_id.clone()).collect();
    // Naming a message twice is valid.
    let failure = json!({ "itemIdentifier": ids[1] });
    let outcome = invocation.finish(returned(json!({ "batchItemFailures": [failure, failure] }).to_string()));
    let (deleted, retained) = (vec![ids[0].clone(), ids[2].clone()], vec![ids[1].clone()]);
    assert_eq!(outcome, BatchOutcome::Processed { deleted, retained });
    advance(VISIBILITY - Duration::from_millis(1)).await;
    assert!(mapping.poll().is_none());
    advance(Duration::from_millis(1)).await;
    let again = mapping.poll().unwrap();
    assert_eq!((again.messages()[0].message_id.as_str(), again.messages()[0].receive_count()), (ids[1].as_str(), 2));
    assert_eq!(mapping.counts().failed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_response_deletes_with_an_old_receipt_handle_which_may_have_no_effect() {
    let queue = with_messages(1);
    let settings = MappingSettings { function_timeout: VISIBILITY, ..MappingSettings::default() };
    let mapping = Mapping::new(&queue, settings);
    let slow = mapping.poll().unwrap();
    queue.change_visibility(&slow.messages()[0].receipt_handle, SECOND).unwrap();
    advance(SECOND).await;
    let other = receive(&queue);
    slow.finish(returned("{}"));
    assert!(!queue.is_empty());
    queue.delete(&other.receipt_handle).unwrap();
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_batch_closes_at_its_size_and_at_six_megabytes() {
    let queue = with_messages(25);
    let mapping_of_seven = Mapping::new(&queue, MappingSettings { batch_size: 7, ..MappingSettings::default() });
    assert_eq!(mapping_of_seven.poll().unwrap().messages().len(), 7);
    let settings = MappingSettings { batch_size: 100, batching_window: SECOND, ..MappingSettings::default() };
    let of_a_hundred = Mapping::new(&queue, settings);
    assert_eq!(of_a_hundred.poll().unwrap().messages().len(), 18);
    assert!(of_a_hundred.poll().is_none());
    (0..10).for_each(|_| drop(queue.send("x".repeat(1024 * 1024)).unwrap()));
    let invocation = of_a_hundred.poll().unwrap();
    assert_eq!(invocation.messages().len(), 5);
    assert!(invocation.event().len() <= 6 * 1024 * 1024);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_batch_uses_up_a_receive_without_an_invocation() {
    let queue = with_messages(3);
    let mapping = Mapping::new(&queue, MappingSettings { throttle_rate: 1.0, ..MappingSettings::default() });
    assert!(mapping.poll().is_none());
    assert_eq!((mapping.counts().throttled, mapping.counts().invocations), (1, 0));
    assert!(queue.receive(10).is_empty());
    advance(VISIBILITY).await;
    assert!(queue.receive(10).iter().all(|message| message.receive_count() == 2));
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_delete_is_lost_is_redelivered_also_on_a_fifo_queue() {
    for name in ["payments", "payments.fifo"] {
        let settings = settings(name);
        let queue = queue(QueueSettings { content_based_deduplication: settings.is_fifo(), ..settings });
        queue.send(SendRequest::new("a").group("g")).unwrap();
        let mapping = Mapping::new(&queue, MappingSettings { delete_loss_rate: 1.0, ..MappingSettings::default() });
        let outcome = mapping.poll().unwrap().finish(returned("{}"));
        assert!(
            matches!(outcome, BatchOutcome::Processed { deleted, retained } if deleted.is_empty() && retained.len() == 1)
        );
        assert_eq!(mapping.counts().lost_deletes, 1);
        advance(VISIBILITY).await;
        assert_eq!(bodies(&queue.receive(1)), ["a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn several_mappings_share_a_queue() {
    let queue = with_messages(4);
    let settings = MappingSettings { batch_size: 2, ..MappingSettings::default() };
    let (one, other) = (Mapping::new(&queue, settings.clone()), Mapping::new(&queue, settings));
    let at_once = [one.poll().unwrap(), other.clone().poll().unwrap()];
    assert!(one.poll().is_none() && other.poll().is_none());
    for invocation in at_once {
        invocation.finish(returned("{}"));
    }
    assert!(queue.is_empty());
}

#[test]
#[should_panic(expected = "visibility timeout")]
fn a_function_timeout_above_the_visibility_timeout_is_rejected() {
    let settings = MappingSettings { function_timeout: VISIBILITY + SECOND, ..MappingSettings::default() };
    drop(Mapping::new(&queue(settings_of_fifo()), settings));
}

#[test]
#[should_panic(expected = "1 to 10 messages")]
fn a_batch_size_above_ten_on_a_fifo_queue_is_rejected() {
    let settings = MappingSettings { batch_size: 11, ..MappingSettings::default() };
    drop(Mapping::new(&queue(settings_of_fifo()), settings));
}

fn settings_of_fifo() -> QueueSettings {
    settings("payments.fifo")
}

#[tokio::test(start_paused = true)]
async fn an_event_has_the_format_of_aws() {
    let queue = queue(settings("payments"));
    let id = queue.send(SendRequest::new(r#"{"amount":1250}"#).attribute("Idempotency-Key", "pay_1")).unwrap();
    advance(Duration::from_millis(31)).await;
    let invocation = mapping(&queue).poll().unwrap();
    let handle = &invocation.messages()[0].receipt_handle;
    let expected = format!(
        "{{\"Records\":[{{\"messageId\":\"{id}\",\"receiptHandle\":\"{handle}\",\
         \"body\":\"{{\\\"amount\\\":1250}}\",\"attributes\":{{\"ApproximateReceiveCount\":\"1\",\
         \"SentTimestamp\":\"1795080483000\",\"SenderId\":\"AROA4YSNI2G3IITN5XVKT:producer\",\
         \"ApproximateFirstReceiveTimestamp\":\"1795080483031\"}},\"messageAttributes\":{{\"Idempotency-Key\":\
         {{\"stringValue\":\"pay_1\",\"stringListValues\":[],\"binaryListValues\":[],\"dataType\":\"String\"}}}},\
         \"md5OfMessageAttributes\":\"f708429b3b751657157591da316bb668\",\
         \"md5OfBody\":\"f9057e104af659864db3d673508f1f92\",\"eventSource\":\"aws:sqs\",\
         \"eventSourceARN\":\"arn:aws:sqs:eu-central-1:123456789012:payments\",\"awsRegion\":\"eu-central-1\"}}]}}"
    );
    assert_eq!(invocation.event(), expected);
    assert_eq!((id.len(), &id[14..15]), (36, "4"), "a UUID of version 4: {id}");
    let messages = sqs::messages(&expected);
    assert_eq!(messages.unwrap()[0].receive_count, Some(1));
}

/// The record without the fields that differ from one send to the next.
fn without_unique_fields(mut record: Value) -> Value {
    for field in ["messageId", "receiptHandle"] {
        record[field] = json!("unique");
    }
    for field in ["SentTimestamp", "SenderId", "SequenceNumber", "ApproximateFirstReceiveTimestamp"] {
        if let Some(value) = record["attributes"].get_mut(field) {
            *value = json!("unique");
        }
    }
    record
}

#[tokio::test(start_paused = true)]
async fn the_sample_events_are_reproduced_including_checksums() {
    for sample in ["first-delivery", "mixed", "fifo", "sns-envelope", "redrive"] {
        let path = harness::workspace(&format!("events/{sample}.json"));
        let event: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        for record in event["Records"].as_array().unwrap() {
            let name = record["eventSourceARN"].as_str().unwrap().rsplit(':').next().unwrap();
            let queue = queue(settings(name));
            let mut message = SendRequest::new(record["body"].as_str().unwrap());
            let system = |name: &str| record["attributes"][name].as_str();
            if let Some(group) = system("MessageGroupId") {
                message = message.group(group);
            }
            if let Some(id) = system("MessageDeduplicationId") {
                message = message.deduplication_id(id);
            }
            for (name, value) in record["messageAttributes"].as_object().unwrap() {
                let text = value["stringValue"].as_str().unwrap_or_default().to_owned();
                message = message.attribute(
                    name,
                    match value["dataType"].as_str().unwrap() {
                        "String" => Attribute::String(text),
                        "Number" => Attribute::Number(text),
                        _ => Attribute::Binary(bytes_of(&value["binaryValue"])),
                    },
                );
            }
            queue.send(message).unwrap();
            let sent: Value = serde_json::from_str(&mapping(&queue).poll().unwrap().event()).unwrap();
            assert_eq!(
                without_unique_fields(sent["Records"][0].clone()),
                without_unique_fields(record.clone()),
                "{sample}"
            );
        }
    }
}

fn bytes_of(base64: &Value) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = base64.as_str().unwrap().trim_end_matches('=').chars();
    let values = digits.map(|digit| DIGITS.find(digit).unwrap());
    let bits: Vec<_> = values.flat_map(|value| (0..6).rev().map(move |bit| value >> bit & 1 == 1)).collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
}

/// "Lambda continues to retry the message until the message's timestamp exceeds your queue's visibility timeout":
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#services-sqs-backoff-strategy>
#[tokio::test(start_paused = true)]
async fn an_invocation_may_begin_late_and_end_after_its_messages_are_received_again() {
    let queue = queue(settings("payments.fifo"));
    queue.send(SendRequest::new("a").group("g").deduplication_id("d")).unwrap();
    let settings =
        MappingSettings { function_timeout: VISIBILITY, invocation_delay: VISIBILITY, ..MappingSettings::default() };
    let late = Mapping::new(&queue, settings).poll().unwrap();
    let received = tokio::time::Instant::now();
    assert!((received..received + VISIBILITY).contains(&late.begins()));
    assert_eq!(late.deadline(), late.begins() + VISIBILITY);
    advance(VISIBILITY).await;
    assert_eq!(receive(&queue).receive_count(), 2);
    let BatchOutcome::Processed { deleted, retained } = late.finish(InvocationResult::Returned(b"{}".to_vec())) else {
        panic!("it ends before its deadline");
    };
    assert_eq!((deleted.len(), retained.len()), (0, 1), "its receipt handle has expired");
}

/// AWS retries a throttled invocation until the visibility timeout of its messages ends, and SQS counts the 12 hours of
/// a visibility timeout from the receive:
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#services-sqs-backoff-strategy>
#[tokio::test(start_paused = true)]
async fn a_message_whose_invocation_began_late_waits_as_long_as_sqs_allows() {
    let hours = |count: u64| Duration::from_secs(count * 3600);
    // Delays of messages that were first received days ago are limited.
    let new = QueueSettings { created_at: SystemTime::now(), ..settings("payments") };
    let queue = Queue::new(QueueSettings { visibility_timeout: hours(2), ..new }, 7);
    queue.send("1").unwrap();
    let late = MappingSettings { invocation_delay: hours(2), ..MappingSettings::default() };
    let work = work_fn(move |_: &Claim, _: &Message| async move {
        Err::<Vec<u8>, _>(WorkError::retryable_after("closed until tomorrow", hours(24)))
    });
    let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    let handler = Handler::new(Batch::new(idempotency, work, BatchSettings::default()), Some(queue.visibility()));
    let invocation = Mapping::new(&queue, late).poll().unwrap();
    let received = Instant::now();
    let began = invocation.begins();
    assert!(began - received > Duration::from_secs(1200), "it begins late");
    invocation.run(&handler).await;
    let total = queue.next_change().unwrap() - received;
    assert!(total > hours(11) && total <= hours(12), "{total:?}");
}

#[test]
fn an_event_has_at_most_6_mib_of_json() {
    for (body, fit) in [("a", 5), ("\"", 2)] {
        let queue = queue(settings("payments"));
        (0..7).for_each(|_| drop(queue.send(body.repeat(1 << 20)).unwrap()));
        let invocation = mapping(&queue).poll().unwrap();
        assert_eq!(invocation.messages().len(), fit, "{body}");
        assert!(invocation.event().len() <= 6 << 20, "{} bytes", invocation.event().len());
    }
}

#[test]
fn messages_may_be_reordered_without_a_limit() {
    for name in ["payments", "payments.fifo"] {
        let queue = queue(QueueSettings { max_reordering: Duration::MAX, ..settings(name) });
        for id in ["1", "2", "3"] {
            let message = SendRequest::new(id);
            let is_fifo = queue.settings().is_fifo();
            queue.send(if is_fifo { message.group(id).deduplication_id(id) } else { message }).unwrap();
        }
        assert_eq!(queue.receive(10).len(), 3, "{name}");
    }
}
