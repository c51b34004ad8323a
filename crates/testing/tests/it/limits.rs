//! Settings and calls that AWS rejects.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use idempotent_sqs_testing::{
    Attribute, DeadLetter, DeduplicationScope, Mapping, MappingSettings, Queue, QueueSettings, SendRequest,
};

use super::{SECOND, VISIBILITY, queue, settings};

const HOUR: Duration = Duration::from_hours(1);
const HALF: Duration = Duration::from_millis(500);

/// Whether there can be such a queue.
fn is_queue(name: &str, change: impl FnOnce(&mut QueueSettings)) -> bool {
    let mut settings = settings(name);
    change(&mut settings);
    catch_unwind(AssertUnwindSafe(|| drop(queue(settings)))).is_ok()
}

/// Whether there can be such a mapping of the queue.
fn is_mapping(queue: &Queue, change: impl FnOnce(&mut MappingSettings)) -> bool {
    let mut settings = MappingSettings::default();
    change(&mut settings);
    catch_unwind(AssertUnwindSafe(|| drop(Mapping::new(queue, settings)))).is_ok()
}

/// "Valid values: An integer from 0 to 43,200 (12 hours)", "from 60 seconds (1 minute) to 1,209,600 seconds (14 days)",
/// "from 0 to 900 seconds (15 minutes)":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
#[test]
fn the_times_of_a_queue_are_whole_seconds_within_their_limits() {
    let visibility = |time| is_queue("payments", |settings| settings.visibility_timeout = time);
    let retention = |time| is_queue("payments", |settings| settings.retention = time);
    let delay = |time| is_queue("payments", |settings| settings.delay = time);
    assert!([Duration::ZERO, SECOND, 12 * HOUR].into_iter().all(visibility));
    assert!(![HALF, 3 * HALF, 12 * HOUR + SECOND].into_iter().any(visibility));
    assert!([60 * SECOND, 14 * 24 * HOUR].into_iter().all(retention));
    assert!(![59 * SECOND, 60 * SECOND + HALF, 14 * 24 * HOUR + SECOND].into_iter().any(retention));
    assert!([Duration::ZERO, 900 * SECOND].into_iter().all(delay));
    assert!(![HALF, 901 * SECOND].into_iter().any(delay));
}

/// "The following attributes apply only to FIFO (first-in-first-out) queues", "only to high throughput for FIFO
/// queues": <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
#[test]
fn only_a_fifo_queue_deduplicates() {
    for (name, is_fifo) in [("payments", false), ("payments.fifo", true)] {
        assert_eq!(is_queue(name, |settings| settings.content_based_deduplication = true), is_fifo);
        let by_group = |settings: &mut QueueSettings| settings.deduplication_scope = DeduplicationScope::MessageGroup;
        assert_eq!(is_queue(name, by_group), is_fifo);
    }
}

/// "allowAll – (Default) Any source queues in this Amazon Web Services account in the same Region":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
#[test]
fn a_dead_letter_queue_has_the_type_the_account_and_the_region_of_its_source() {
    let with = |name: &str, change: fn(&mut QueueSettings), max_receive_count| {
        let mut dead = settings(name);
        change(&mut dead);
        let dead_letter = Some(DeadLetter { queue: queue(dead), max_receive_count });
        is_queue("payments", |settings| settings.dead_letter = dead_letter)
    };
    assert!(with("dead", |_| {}, 1) && with("dead", |_| {}, 1000));
    assert!(!with("dead", |_| {}, 0) && !with("dead", |_| {}, 1001));
    assert!(!with("dead.fifo", |_| {}, 1));
    assert!(!with("dead", |settings| settings.account = "210987654321".into(), 1));
    assert!(!with("dead", |settings| settings.region = "eu-west-1".into(), 1));
}

/// "Valid values: 1 to 10", "Valid values: An integer from 0 to 43200":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>,
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
#[tokio::test(start_paused = true)]
async fn a_receive_is_of_one_to_ten_messages_for_whole_seconds() {
    let queue = queue(settings("payments"));
    (0..11).for_each(|_| drop(queue.send("a").unwrap()));
    for (max, time) in [(0, SECOND), (11, SECOND), (1, HALF), (1, SECOND + HALF), (1, 12 * HOUR + SECOND)] {
        assert_eq!(queue.receive_for(max, time).unwrap_err().code, "InvalidParameterValue", "{max} {time:?}");
    }
    for max in [0, 11] {
        assert!(catch_unwind(AssertUnwindSafe(|| queue.receive(max))).is_err(), "{max}");
    }
    assert_eq!(queue.counts().received, 0);
    let received = queue.receive_for(1, 12 * HOUR).unwrap().remove(0);
    let changed = queue.change_visibility(&received.receipt_handle, SECOND + HALF);
    assert_eq!(changed.unwrap_err().code, "InvalidParameterValue");
    assert_eq!(queue.in_flight(), 1);
}

/// "The length of time, in seconds, for which to delay a specific message. Valid values: 0 to 900":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
#[tokio::test(start_paused = true)]
async fn the_delay_of_a_message_is_whole_seconds_up_to_15_minutes() {
    let queue = queue(settings("payments"));
    for delay in [HALF, 3 * HALF, 901 * SECOND] {
        assert_eq!(queue.send(SendRequest::new("a").delay(delay)).unwrap_err().code, "InvalidParameterValue");
    }
    queue.send(SendRequest::new("a").delay(900 * SECOND)).unwrap();
}

/// "A number can have up to 38 digits of precision, and it can be between 10^-128 and 10^+126":
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#message-attribute-data-types>
#[tokio::test(start_paused = true)]
async fn a_number_has_up_to_38_digits_and_is_between_the_powers_of_ten_that_sqs_documents() {
    let queue = queue(settings("payments"));
    let send = |number: &str| queue.send(SendRequest::new("a").attribute("Amount", Attribute::Number(number.into())));
    let nines = "9".repeat(38);
    let (of_zeroes, in_the_middle) =
        (format!("{nines}{}", "0".repeat(80)), format!("-{}.{}", &nines[..19], &nines[19..]));
    let (least, great) = (format!("0.{}1", "0".repeat(127)), format!("1{}", "0".repeat(126)));
    for good in [
        "1e126",
        "-1E+126",
        "9.9e125",
        "1e-128",
        "-1e-128",
        "0e999",
        "-0",
        "+5",
        "5.",
        ".5",
        &nines,
        &of_zeroes,
        &in_the_middle,
        &least,
        &great,
    ] {
        assert!(send(good).is_ok(), "{good}");
    }
    let more = "9".repeat(39);
    let (less, greater) = (format!("0.{}1", "0".repeat(128)), format!("1{}", "0".repeat(127)));
    let precise = format!("1.{}1", "0".repeat(37));
    for bad in [
        "1.1e126",
        "2e126",
        "1e127",
        "1e300",
        "1e99999999999999999999",
        "9e-129",
        "1e-99999999999999999999",
        &more,
        &less,
        &greater,
        &precise,
        "+-1",
        "infinity",
        "NaN",
        "",
        ".",
        "-",
        "e5",
        "1e",
        "1e+",
        "1e5.0",
        "1_000",
        "0x10",
        " 1",
        "1 ",
    ] {
        assert_eq!(send(bad).map_err(|error| error.code), Err("InvalidParameterValue"), "{bad}");
    }
}

/// "in increments of 1 second up to a maximum value of 900 seconds (15 minutes)", and of "5,400 seconds (90 minutes)"
/// on Lambda Managed Instances: <https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html>,
/// <https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html>
#[test]
fn a_function_times_out_after_one_second_to_90_minutes_and_within_the_visibility_timeout() {
    let queue = queue(QueueSettings { visibility_timeout: 12 * HOUR, ..settings("payments") });
    let timeout = |time| is_mapping(&queue, |settings| settings.function_timeout = time);
    assert!([SECOND, 900 * SECOND, 5400 * SECOND].into_iter().all(timeout));
    assert!(![Duration::ZERO, HALF, 5401 * SECOND].into_iter().any(timeout));
    let short = super::queue(settings("payments"));
    assert!(is_mapping(&short, |settings| settings.function_timeout = VISIBILITY));
    assert!(!is_mapping(&short, |settings| settings.function_timeout = VISIBILITY + SECOND));
}

/// "For standard queues the max is 10,000. For FIFO queues the max is 10", "when you set `BatchSize` to a value greater
/// than 10, you must set `MaximumBatchingWindowInSeconds` to at least 1", "from 0 seconds to 300 seconds in increments
/// of seconds": <https://docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html>, "Batching window is
/// not supported for FIFO queues": <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-parameters.html>
#[test]
fn a_batch_of_more_than_ten_messages_needs_a_batching_window() {
    let (standard, fifo) = (queue(settings("payments")), queue(settings("payments.fifo")));
    let is_mapping = |queue, batch_size, batching_window| {
        is_mapping(queue, |settings| (settings.batch_size, settings.batching_window) = (batch_size, batching_window))
    };
    for (size, window) in [(1, Duration::ZERO), (10, Duration::ZERO), (1, 300 * SECOND), (11, SECOND), (10_000, SECOND)]
    {
        assert!(is_mapping(&standard, size, window), "{size} {window:?}");
    }
    for (size, window) in [(0, SECOND), (11, Duration::ZERO), (10_001, SECOND), (10, HALF), (11, 301 * SECOND)] {
        assert!(!is_mapping(&standard, size, window), "{size} {window:?}");
    }
    assert!(is_mapping(&fifo, 10, Duration::ZERO));
    assert!(!is_mapping(&fifo, 11, SECOND) && !is_mapping(&fifo, 10, SECOND));
}

/// A reserved concurrency of 0 throttles every invocation:
/// <https://docs.aws.amazon.com/lambda/latest/dg/configuration-concurrency.html>
#[test]
fn a_mapping_without_invocations_is_rejected() {
    let queue = queue(settings("payments"));
    assert!(is_mapping(&queue, |settings| settings.concurrency = 1));
    assert!(!is_mapping(&queue, |settings| settings.concurrency = 0));
}
