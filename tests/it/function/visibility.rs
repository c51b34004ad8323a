//! Changes of visibility timeouts (`sqs::visibility`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{Fixture, front_of, pay};
use harness::event::{Record, event};
use harness::http::{Answer, Sqs};
use harness::lambda::Function;

#[tokio::test]
async fn visibility_timeouts_are_changed_on_the_queue_of_the_arn_at_most_ten_in_a_call() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(400));
    let function = fixture.function().await;
    let records = (0..12).map(|n| pay(&format!("m{n}"), &format!("pay_{n}")));
    assert_eq!(function.invoke(event(records)).await.len(), 12);
    let calls = fixture.sqs.take_calls();
    let mut entries: Vec<_> = calls.iter().map(|call| call["Entries"].as_array().unwrap().len()).collect();
    entries.sort_unstable();
    assert_eq!(entries, [2, 10]);
    for call in calls {
        let ids: BTreeSet<_> = call["Entries"].as_array().unwrap().iter().map(|entry| entry["Id"].as_str()).collect();
        assert_eq!(ids.len(), call["Entries"].as_array().unwrap().len(), "SQS requires distinct ids");
        assert_eq!(call["QueueUrl"], "https://sqs.eu-central-1.amazonaws.com/123456789012/payments");
    }
}

#[tokio::test]
async fn the_url_of_a_queue_has_the_domain_of_its_partition() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(400));
    let function = fixture.function().await;
    for (partition, region, domain) in [
        ("aws-us-gov", "us-gov-west-1", "amazonaws.com"),
        ("aws-cn", "cn-north-1", "amazonaws.com.cn"),
        ("aws-eusc", "eusc-de-east-1", "amazonaws.eu"),
        ("aws-iso", "us-iso-east-1", "c2s.ic.gov"),
        ("aws-iso-b", "us-isob-east-1", "sc2s.sgov.gov"),
        ("aws-iso-e", "eu-isoe-west-1", "cloud.adc-e.uk"),
        ("aws-iso-f", "us-isof-south-1", "csp.hci.ic.gov"),
    ] {
        let arn = format!("arn:{partition}:sqs:{region}:123456789012:payments");
        function.invoke(event([pay("m1", region).with("eventSourceARN", arn.into())])).await;
        let [call] = fixture.sqs.take_calls().try_into().unwrap();
        assert_eq!(call["QueueUrl"], format!("https://sqs.{region}.{domain}/123456789012/payments"));
    }
}

#[tokio::test]
async fn a_failed_visibility_change_is_logged_and_does_not_fail_the_invocation() {
    for sqs in [Sqs::start_failing().await, Sqs::start_refusing().await] {
        let fixture = Fixture { sqs, ..Fixture::start().await };
        fixture.webhook.respond_for("pay_1", Answer::status(500));
        let function = fixture.function().await;
        assert_eq!(function.invoke(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await, ["m1"]);
        assert_eq!(fixture.sqs.take_calls().len(), 1);
        function.logs("visibility timeouts were not changed").await;
    }
}

#[tokio::test]
async fn only_a_call_that_failed_has_an_advice_about_rights_and_routes() {
    let valid = || pay("m1", "pay_1");
    for (sqs, record, has_advice) in [
        (Sqs::start_refusing().await, valid(), true),
        (Sqs::start_failing().await, valid(), false),
        (Sqs::start().await, valid().without("receiptHandle"), false),
    ] {
        let fixture = Fixture { sqs, ..Fixture::start().await };
        fixture.webhook.respond(Answer::status(500));
        let function = fixture.function().await;
        assert_eq!(function.invoke(event([record])).await, ["m1"]);
        let line = why_unchanged(&function).await;
        assert_eq!(line.contains(ADVICE), has_advice, "{line}");
        assert!(!line.contains("SdkBody"), "the raw response is not logged: {line}");
    }
}

#[tokio::test]
async fn a_response_does_not_wait_for_a_visibility_change_without_a_reply() {
    let fixture = Fixture { sqs: Sqs::start_silent().await, ..Fixture::start().await };
    fixture.webhook.respond_for("pay_1", Answer::status(500));
    let function = fixture.function().await;
    let began = Instant::now();
    assert_eq!(function.invoke(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await, ["m1"]);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    function.logs("visibility timeouts were not changed").await;
}

/// A change may take three seconds, if there is time. Here is less than one.
#[tokio::test]
async fn an_invocation_ends_in_time_although_a_visibility_change_has_no_reply() {
    let fixture = Fixture { sqs: Sqs::start_silent().await, ..Fixture::start().await };
    fixture.webhook.respond(Answer::status(500));
    let function = fixture.function().await;
    let began = Instant::now();
    let failures = function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(1)).failures().await;
    assert_eq!(failures, ["m1"]);
    assert!(began.elapsed() < Duration::from_millis(2900), "{:?}", began.elapsed());
    let line = why_unchanged(&function).await;
    assert!(line.contains("too little time was left") && !line.contains(ADVICE), "{line}");
}

/// The records of acquires without a reply are released until the time ends.
#[tokio::test]
async fn while_redis_does_not_respond_visibility_timeouts_are_changed_seconds_before_the_time_ends() {
    let fixture = Fixture { sqs: Sqs::start_silent().await, ..Fixture::start().await };
    let function = fixture.function().await;
    function.invoke(event([pay("m0", "pay_0")])).await;
    fixture.redis.signal("-STOP");
    function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(8)).error().await;
    assert_eq!(fixture.sqs.take().len(), 1);
    let line = why_unchanged(&function).await;
    assert!(line.contains("SQS did not reply in time") && line.contains(ADVICE), "{line}");
}

/// A message that is received before its record is released would be in conflict with its own acquire.
#[tokio::test]
async fn visibility_timeouts_are_changed_once_the_acquires_without_a_reply_are_released() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    function.invoke(event([pay("m0", "pay_0")])).await;
    fixture.redis.signal("-STOP");
    let invocation = function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(30));
    // Both tries of the acquire take two seconds.
    sleep(Duration::from_secs(4)).await;
    assert!(fixture.sqs.take().is_empty());
    fixture.redis.signal("-CONT");
    invocation.error().await;
    assert_eq!(fixture.sqs.take().len(), 1);
    assert_eq!(function.invoke(event([pay("m1", "pay_1").received(2)])).await, [""; 0]);
}

const ADVICE: &str = "check that the function may call";

/// The line of the log that says why visibility timeouts were not changed.
async fn why_unchanged(function: &Function) -> String {
    let text = "visibility timeouts were not changed";
    let log = function.logs(text).await;
    log.into_iter().find(|line| line.contains(text)).unwrap()
}

#[tokio::test]
async fn a_failed_message_without_receipt_handle_or_arn_is_still_reported() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(400));
    let function = fixture.function().await;
    let records = [
        pay("m1", "pay_1").without("receiptHandle"),
        pay("m2", "pay_2").without("eventSourceARN"),
        pay("m3", "pay_3").with("eventSourceARN", "payments".into()),
        pay("m4", "pay_4"),
    ];
    assert_eq!(function.invoke(event(records)).await, ["m1", "m2", "m3", "m4"]);
    assert_eq!(fixture.sqs.take(), [("m4".into(), 2)].into());
}

#[tokio::test]
async fn visibility_timeouts_are_not_changed_if_disabled() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(500));
    let function = fixture.function_with(&[("VISIBILITY_BACKOFF", "false")]).await;
    assert_eq!(function.invoke(event([pay("m1", "pay_1")])).await, ["m1"]);
    assert!(fixture.sqs.take_calls().is_empty());
    let lines = function.messages(1).await;
    assert!(lines[0]["retry_after_s"].is_null(), "{}", lines[0]);
}

/// A NAT gateway drops an idle connection without telling either side. New ones work.
#[tokio::test]
async fn a_visibility_timeout_is_not_changed_on_a_connection_that_was_idle_for_long() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(500));
    let (front, endpoint) = front_of(&fixture.sqs.url()).await;
    let function = fixture.function_with(&[("AWS_ENDPOINT_URL_SQS", &endpoint)]).await;
    assert_eq!(function.invoke(event([pay("m1", "pay_1")])).await, ["m1"]);
    assert_eq!(fixture.sqs.take().len(), 1);
    front.freeze();
    sleep(Duration::from_millis(3200)).await;
    assert_eq!(function.invoke(event([pay("m2", "pay_2")])).await, ["m2"]);
    assert_eq!(fixture.sqs.take().len(), 1);
}

#[tokio::test]
async fn a_large_batch_waits_for_three_seconds_at_most_for_changes_without_a_reply() {
    let mut lasted = Vec::new();
    for sqs in [Sqs::start().await, Sqs::start_silent().await] {
        let fixture = Fixture { sqs, ..Fixture::start().await };
        let function = fixture.function().await;
        // Nothing is called but SQS for messages without a key.
        let records = (0..10_000).map(|number| Record::new(&format!("m{number}")).key(""));
        let began = Instant::now();
        let failures = function.begin(event(records), Duration::from_secs(60)).failures().await;
        lasted.push(began.elapsed());
        assert_eq!(failures.len(), 10_000);
    }
    assert!(lasted[1] < lasted[0] + Duration::from_secs(4), "{lasted:?}");
}

/// Nothing has failed, and the group waits for the message.
#[tokio::test]
async fn a_message_of_a_group_that_could_be_cut_off_is_not_sent_and_comes_at_once() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("pay_1", Answer::Held);
    let function = fixture.function_with(&[("TARGET_TIMEOUT_MS", "4500")]).await;
    let records = [pay("m1", "pay_1").group("a"), pay("m2", "pay_2").group("a")];
    let invocation = function.begin(event(records), Duration::from_secs(6));
    fixture.webhook.called(1).await;
    // More than half of the five seconds for work.
    sleep(Duration::from_millis(2700)).await;
    fixture.webhook.respond(Answer::status(200));
    fixture.webhook.respond_for("pay_1", Answer::status(200));
    assert_eq!(invocation.failures().await, ["m2"]);
    assert_eq!(fixture.sqs.take(), [("m2".into(), 0)].into());
    assert_eq!(function.invoke(event([pay("m2", "pay_2").group("a").received(2)])).await, [""; 0]);
    assert_eq!(fixture.webhook.calls_for("pay_2"), 1);
}
