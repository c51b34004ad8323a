//! Payloads and results in S3.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::{Fixture, NO_FAILURES, front_of, pay};
use harness::event::{MARKER, Record, event, pointer};
use harness::http::Answer;
use harness::s3::S3;
use harness::soon;
use idempotent_sqs::RedisSettings;
use idempotent_sqs::idempotency::Failure;
use idempotent_sqs::stores::redis::records::{RecordStateView, Records};

const BUCKET: &str = "payloads";

/// A record whose payload is in S3, as the extended client sends it.
fn with_pointer(record: Record, bucket: &str, name: &str) -> Record {
    let size = json!({ "stringValue": "300000", "stringListValues": [], "binaryListValues": [], "dataType": "Number" });
    record.body(&pointer(bucket, name)).attribute("ExtendedPayloadSize", size)
}

fn payload(amount: u32) -> String {
    json!({ "amount": amount, "note": MARKER.repeat(20_000) }).to_string()
}

#[tokio::test]
async fn a_payload_in_s3_is_sent_once_and_the_same_payload_again_is_a_duplicate() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let settings = [("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url())];
    let function = fixture.function_with(&settings).await;
    s3.put("/payloads/one", payload(1250));
    s3.put("/payloads/two", payload(1250));
    s3.put("/payloads/three", payload(99));
    for (id, name, answer) in [
        ("m1", "one", NO_FAILURES),
        ("m2", "two", NO_FAILURES),
        ("m3", "three", r#"{"batchItemFailures":[{"itemIdentifier":"m3"}]}"#),
    ] {
        assert_eq!(function.answer(event([with_pointer(pay(id, "pay_1"), BUCKET, name)])).await, answer, "{name}");
    }
    let lines = function.messages(3).await;
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["ACQUIRED", "DUPLICATE", "MISMATCH"]);
    assert_eq!(fixture.webhook.calls().len(), 1);
    assert_eq!(fixture.webhook.last_call().body, payload(1250).as_bytes());
    assert_eq!(s3.take_calls(), ["GET /payloads/one", "GET /payloads/two", "GET /payloads/three"]);
}

#[tokio::test]
async fn a_payload_with_hundreds_of_metadata_entries_is_fetched() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let function = fixture.function_with(&[("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url())]).await;
    let entries = (0..500).map(|number| format!("x-amz-meta-{number:x}: a\r\n")).collect::<Vec<_>>().concat();
    let payload = payload(1250);
    let answer = format!("HTTP/1.1 200 OK\r\n{entries}Content-Length: {}\r\n\r\n{payload}", payload.len());
    s3.next(Answer::Whole(answer.into()));
    assert_eq!(function.answer(event([with_pointer(pay("m1", "pay_1"), BUCKET, "one")])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.last_call().body, payload.as_bytes());
}

#[tokio::test]
async fn a_payload_whose_body_ends_too_early_is_not_sent_but_read_again() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let function = fixture.function_with(&[("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url())]).await;
    let payload = payload(1250);
    let message = || event([with_pointer(pay("m1", "pay_1"), BUCKET, "one")]);
    for head in [format!("Content-Length: {}\r\n", payload.len() + 1), "Transfer-Encoding: chunked\r\n".to_owned()] {
        let chunk =
            if head.starts_with('T') { format!("{:x}\r\n{payload}\r\n", payload.len()) } else { payload.clone() };
        s3.next(Answer::Cut(format!("HTTP/1.1 200 OK\r\n{head}\r\n{chunk}").into()));
        assert_eq!(function.invoke(message()).await, ["m1"]);
        assert!(fixture.webhook.calls().is_empty(), "{head}");
    }
    s3.put("/payloads/one", &*payload);
    assert_eq!(function.answer(message()).await, NO_FAILURES);
    assert_eq!(fixture.webhook.last_call().body, payload.as_bytes());
}

#[tokio::test]
async fn a_pointer_is_followed_only_into_allowed_buckets() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let endpoint = ("AWS_ENDPOINT_URL_S3", &*s3.url());
    for (settings, reason) in [
        (vec![endpoint], "PAYLOAD_BUCKETS names no bucket"),
        (vec![endpoint, ("PAYLOAD_BUCKETS", "others, more")], "in a bucket that PAYLOAD_BUCKETS does not name"),
    ] {
        let function = fixture.function_with(&settings).await;
        let messages = [with_pointer(pay("m1", "pay_1"), "secrets", "one"), pay("m2", reason)];
        assert_eq!(function.invoke(event(messages)).await, ["m1"]);
        let lines = function.messages(2).await;
        let line = lines.iter().find(|line| line["message_id"] == "m1").unwrap();
        assert!(line["reason"].as_str().unwrap().contains(reason), "{line}");
        assert_eq!((&line["outcome"], &line["retry_after_s"]), (&json!("UNREADABLE"), &json!(2.0)));
    }
    assert!(s3.take_calls().is_empty());
}

#[tokio::test]
async fn a_pointer_cannot_leave_its_bucket() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let function = fixture.function_with(&[("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url())]).await;
    s3.put("/secrets/one", payload(1250));
    let messages = ["../secrets/one", "a/../../secrets/one"].map(|name| with_pointer(Record::new("m1"), BUCKET, name));
    for message in messages {
        assert_eq!(function.invoke(event([message])).await, ["m1"]);
    }
    assert!(s3.take_calls().is_empty());
    assert!(fixture.webhook.calls().is_empty());
}

#[tokio::test]
async fn a_payload_that_cannot_be_read_affects_only_its_own_message() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let settings = [("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url()), ("PAYLOAD_MAX_BYTES", "400000")];
    let function = fixture.function_with(&[&settings[..], &[("BATCH_CONCURRENCY", "1")]].concat()).await;
    s3.put("/payloads/large", vec![b'x'; 400_001]);
    s3.put("/payloads/bytes", [0xff, 0xfe]);
    s3.refuse_next(403, "AccessDenied");
    for _ in 0..3 {
        s3.refuse_next(503, "SlowDown");
    }
    let bad = ["refused", "unavailable", "large", "bytes", "missing"];
    let messages = bad.map(|name| with_pointer(pay(name, name), BUCKET, name)).into_iter().chain([pay("good", "good")]);
    assert_eq!(function.invoke(event(messages)).await, bad);
    let lines = function.messages(6).await;
    let reason_and_delay = |id: &str| {
        let line = lines.iter().find(|line| line["message_id"] == id).unwrap();
        (line["reason"].as_str().unwrap().to_owned(), line["retry_after_s"].clone())
    };
    for (id, reason) in [
        ("refused", "could not be read: S3 rejected the request: AccessDenied"),
        ("unavailable", "could not be read: S3 is unavailable: it returned 503"),
        ("large", "larger than the 400000 bytes of PAYLOAD_MAX_BYTES"),
        ("bytes", "is not text"),
        ("missing", "no longer in S3"),
    ] {
        let (logged, delay) = reason_and_delay(id);
        assert!(logged.contains(reason), "{id}: {logged}");
        assert_eq!(delay, json!(2.0), "{id}");
    }
    assert_eq!(fixture.webhook.calls().len(), 1);
}

#[tokio::test]
async fn a_temporary_error_of_s3_is_retried() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let function = fixture.function_with(&[("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url())]).await;
    s3.put("/payloads/one", payload(1250));
    s3.refuse_next(503, "SlowDown");
    s3.next(Answer::Reset);
    assert_eq!(function.answer(event([with_pointer(pay("m1", "pay_1"), BUCKET, "one")])).await, NO_FAILURES);
    assert_eq!(s3.take_calls().len(), 3);
    s3.refuse_next(429, "TooManyRequests");
    assert_eq!(function.answer(event([with_pointer(pay("m2", "pay_2"), BUCKET, "one")])).await, NO_FAILURES);
    assert_eq!(s3.take_calls().len(), 2);
}

#[tokio::test]
async fn a_redirection_is_not_followed() {
    let (fixture, s3, other) = (Fixture::start().await, S3::start().await, S3::start().await);
    let function = fixture.function_with(&[("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url())]).await;
    other.put("/payloads/one", payload(1250));
    let location = format!("{}/payloads/one", other.url());
    s3.next(Answer::with(307, &[("Location", &location)], b"<Error><Code>TemporaryRedirect</Code></Error>"));
    assert_eq!(function.invoke(event([with_pointer(pay("m1", "pay_1"), BUCKET, "one")])).await, ["m1"]);
    assert!(other.take_calls().is_empty() && fixture.webhook.calls().is_empty());
}

#[tokio::test]
async fn a_payload_of_unknown_length_is_read_up_to_the_limit() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let settings = [("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url()), ("PAYLOAD_MAX_BYTES", "400000")];
    let function = fixture.function_with(&settings).await;
    let without_length = |bytes: usize| Answer::Cut([b"HTTP/1.1 200 OK\r\n\r\n", &*vec![b'x'; bytes]].concat());
    s3.next(without_length(400_000));
    assert_eq!(function.answer(event([with_pointer(pay("m1", "pay_1"), BUCKET, "one")])).await, NO_FAILURES);
    s3.next(without_length(400_001));
    assert_eq!(function.invoke(event([with_pointer(pay("m2", "pay_2"), BUCKET, "two")])).await, ["m2"]);
    assert_eq!(fixture.webhook.calls().len(), 1);
}

#[tokio::test]
async fn a_large_webhook_response_is_stored_in_s3_under_its_key_and_fence() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let answer = vec![b'x'; 100_000];
    fixture.webhook.respond(Answer::with(200, &[], &answer));
    let bucket = [("RESULT_BUCKET", "results"), ("RESULT_PREFIX", "kept/"), ("AWS_ENDPOINT_URL_S3", &*s3.url())];
    let function = fixture.function_with(&bucket).await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    let fence = fixture.webhook.last_call().number("Idempotency-Fence").unwrap();
    let path = format!("/results/kept/payments/pay_1/{fence}");
    assert_eq!(s3.objects(), [(path.clone(), answer)].into());
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(2)])).await, NO_FAILURES);
    assert_eq!(s3.take_calls(), [format!("PUT {path}")], "the result of a duplicate is not fetched");
}

#[tokio::test]
async fn a_result_rejected_by_s3_is_logged_and_the_message_is_done() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    fixture.webhook.respond(Answer::with(200, &[], &[b'x'; 5000]));
    s3.refuse_next(403, "AccessDenied");
    let bucket = [("RESULT_BUCKET", "results"), ("AWS_ENDPOINT_URL_S3", &*s3.url())];
    let function = fixture.function_with(&bucket).await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    function.logs("a large result was not kept").await;
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(2)])).await, NO_FAILURES);
    assert_eq!((fixture.webhook.calls().len(), s3.objects().len()), (1, 0));
}

/// A NAT gateway drops an idle connection without telling either side. New ones work.
#[tokio::test]
async fn a_payload_is_read_by_a_second_try_if_the_first_one_has_no_answer() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let (front, url) = front_of(&s3.url()).await;
    let function = fixture.function_with(&[("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &url)]).await;
    s3.put("/payloads/one", payload(1250));
    assert_eq!(function.answer(event([with_pointer(pay("m1", "pay_1"), BUCKET, "one")])).await, NO_FAILURES);
    front.freeze();
    assert_eq!(function.answer(event([with_pointer(pay("m2", "pay_2"), BUCKET, "one")])).await, NO_FAILURES);
}

#[tokio::test]
async fn a_large_result_is_kept_by_a_second_try_if_the_first_one_has_no_answer() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    fixture.webhook.respond(Answer::with(200, &[], &[b'x'; 5000]));
    let (front, url) = front_of(&s3.url()).await;
    let function = fixture.function_with(&[("RESULT_BUCKET", "results"), ("AWS_ENDPOINT_URL_S3", &url)]).await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    front.freeze();
    assert_eq!(function.answer(event([pay("m2", "pay_2")])).await, NO_FAILURES);
    assert_eq!(s3.objects().len(), 2);
}

#[tokio::test]
async fn a_payload_is_not_read_on_a_connection_that_was_idle_for_long() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let (front, url) = front_of(&s3.url()).await;
    let function = fixture.function_with(&[("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &url)]).await;
    s3.put("/payloads/one", payload(1250));
    assert_eq!(function.answer(event([with_pointer(pay("m1", "pay_1"), BUCKET, "one")])).await, NO_FAILURES);
    front.freeze();
    sleep(Duration::from_millis(3200)).await;
    let began = Instant::now();
    assert_eq!(function.answer(event([with_pointer(pay("m2", "pay_2"), BUCKET, "one")])).await, NO_FAILURES);
    assert!(began.elapsed() < Duration::from_millis(2500), "the first try has an answer: {:?}", began.elapsed());
}

/// The bucket is created anew, or the endpoint is wrong: that concerns every message.
#[tokio::test]
async fn a_404_that_is_not_about_the_object_is_no_failure_of_its_message() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let function = fixture.function_with(&[("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url())]).await;
    let message = |count| event([with_pointer(pay("m1", "pay_1"), BUCKET, "one").received(count)]);
    s3.refuse_next(404, "NoSuchBucket");
    assert_eq!(function.invoke(message(1)).await, ["m1"]);
    s3.next(Answer::with(404, &[], b"no such page"));
    assert_eq!(function.invoke(message(2)).await, ["m1"]);
    s3.put("/payloads/one", payload(1250));
    assert_eq!(function.answer(message(3)).await, NO_FAILURES);
    let lines = function.messages(3).await;
    for (line, reason) in lines.iter().zip(["rejected the request: NoSuchBucket", "rejected the request: 404"]) {
        assert!(line["reason"].as_str().unwrap().ends_with(reason), "{line}");
    }
    assert_eq!(fixture.webhook.last_call().header("Idempotency-Attempt"), Some("1"));
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/DeleteMarker.html>
#[tokio::test]
async fn an_object_with_a_delete_marker_is_missing() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let function = fixture.function_with(&[("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url())]).await;
    s3.next(Answer::with(404, &[("x-amz-delete-marker", "true")], b""));
    assert_eq!(function.invoke(event([with_pointer(pay("m1", "pay_1"), BUCKET, "one")])).await, ["m1"]);
    let line = function.messages(1).await.remove(0);
    assert!(line["reason"].as_str().unwrap().contains("no longer in S3"), "{line}");
}

#[tokio::test]
async fn the_endpoint_variables_of_the_aws_sdk_select_the_host_of_s3() {
    let fixture = Fixture::start().await;
    let ignore = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "True");
    for (settings, host) in [
        (vec![("AWS_USE_FIPS_ENDPOINT", "true")], "payloads.s3-fips.us-east-1.amazonaws.com"),
        (vec![("AWS_USE_DUALSTACK_ENDPOINT", "true")], "payloads.s3.dualstack.us-east-1.amazonaws.com"),
        (vec![ignore, ("AWS_ENDPOINT_URL_S3", "https://s3.example")], "payloads.s3.us-east-1.amazonaws.com"),
        (vec![ignore, ("AWS_ENDPOINT_URL", "https://s3.example")], "payloads.s3.us-east-1.amazonaws.com"),
    ] {
        // A proxy is asked for the host, and connects to none.
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", proxy.local_addr().unwrap());
        let shared = [("AWS_REGION", "us-east-1"), ("PAYLOAD_BUCKETS", BUCKET), ("HTTPS_PROXY", &*url)];
        let function = fixture.function_with(&[&settings[..], &shared].concat()).await;
        let _pending = function.begin(event([with_pointer(pay("m1", "pay_1"), BUCKET, "one")]), Duration::from_secs(9));
        let (connection, _) = soon(proxy.accept()).await.unwrap();
        let mut line = String::new();
        soon(BufReader::new(connection).read_line(&mut line)).await.unwrap();
        assert_eq!(line, format!("CONNECT {host}:443 HTTP/1.1\r\n"), "{settings:?}");
    }
}

/// The look-up leaves a record without an attempt.
#[tokio::test]
async fn a_key_that_was_only_looked_up_is_clean_and_its_next_delivery_is_the_first_attempt() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let settings = [("PAYLOAD_BUCKETS", BUCKET), ("AWS_ENDPOINT_URL_S3", &s3.url())];
    let function = fixture.function_with(&settings).await;
    assert_eq!(function.invoke(event([with_pointer(Record::new("m1"), BUCKET, "one")])).await, ["m1"]);
    let records = Records::new(&RedisSettings::new(fixture.redis.url().parse().unwrap(), "payments")).unwrap();
    let keys = records.scan().await.unwrap().next().await.unwrap().unwrap().records;
    let [(key, record)] = keys.try_into().unwrap();
    let clean = RecordStateView::Failed(Failure { uncertain: false, permanent: false });
    assert_eq!((key.as_str(), record.state, record.attempts), ("m1", clean, 0));
    s3.put("/payloads/one", payload(1250));
    let again = event([with_pointer(Record::new("m1"), BUCKET, "one").received(2)]);
    assert_eq!(function.answer(again).await, NO_FAILURES);
    let call = fixture.webhook.last_call();
    assert_eq!([call.header("Idempotency-Attempt"), call.header("Idempotency-Recovery")], [Some("1"), None]);
}
