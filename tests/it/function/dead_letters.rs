//! Dead letters that the function sends (`sqs::dead_letter_queue`).

use std::time::{Duration, Instant, SystemTime};

use redis::AsyncCommands;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::{Fixture, NO_FAILURES, front_of, pay};
use harness::event::{MARKER, Record, event};
use harness::http::{Answer, TOKEN};
use harness::soon;

pub(super) const QUEUE: (&str, &str) =
    ("DEAD_LETTER_QUEUE_URL", "https://sqs.eu-central-1.amazonaws.com/123456789012/dead-letters");

const FIFO_QUEUE: (&str, &str) =
    ("DEAD_LETTER_QUEUE_URL", "https://sqs.eu-central-1.amazonaws.com/123456789012/dead-letters.fifo");

fn letter(sent: &Value) -> Value {
    let attribute = &sent["MessageAttributes"]["Idempotency-Dead-Letter"];
    assert_eq!(attribute["DataType"], "String");
    serde_json::from_str(attribute["StringValue"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_message_that_cannot_succeed_is_sent_to_the_dead_letter_queue_and_reported_as_done() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("pay_1", Answer::status(422));
    let function = fixture.function_with(&[QUEUE]).await;
    let bytes = json!({ "binaryValue": "AJ//", "stringListValues": [], "binaryListValues": [], "dataType": "Binary" });
    let mut record = pay("m1", "pay_1").attribute("Image", bytes).received(3);
    record = record.first_received(SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_080_483_148));
    record = record.with("body", "payload".into()).trace_header("Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700");
    assert_eq!(function.answer(event([record.clone(), pay("m2", "pay_2")])).await, NO_FAILURES);

    let [sent] = fixture.sqs.sent().try_into().unwrap();
    assert_eq!((&sent["QueueUrl"], &sent["MessageBody"]), (&json!(QUEUE.1), &json!("payload")));
    let key = json!({ "DataType": "String", "StringValue": "pay_1" });
    assert_eq!(sent["MessageAttributes"]["Idempotency-Key"], key);
    assert_eq!(sent["MessageAttributes"]["Image"], json!({ "DataType": "Binary", "BinaryValue": "AJ//" }));
    assert_eq!((&sent["MessageGroupId"], &sent["MessageDeduplicationId"]), (&Value::Null, &Value::Null));
    let trace = json!({ "DataType": "String", "StringValue": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700" });
    assert_eq!(sent["MessageSystemAttributes"]["AWSTraceHeader"], trace);
    let mut letter = letter(&sent);
    assert!(letter["fence"].take().as_u64().is_some() && letter["last_receive"].take().is_string());
    let expected = json!({
        "outcome": "FAILED_PERMANENTLY",
        "reason": "failed permanently: the webhook returned 422",
        "key": "pay_1",
        "attempts": 1,
        "fence": null,
        "source_queue_arn": "arn:aws:sqs:eu-central-1:123456789012:payments",
        "message_id": "m1",
        "first_receive": "2026-11-19T09:28:03.148Z",
        "last_receive": null,
        "function": "payments",
        "version": "$LATEST",
    });
    assert_eq!(letter, expected);

    // A redelivery, for example because the response was lost.
    assert_eq!(function.answer(event([record])).await, NO_FAILURES);
    assert_eq!((fixture.sqs.sent().len(), fixture.webhook.calls_for("pay_1")), (1, 1));
    let lines = function.messages(3).await;
    assert_eq!(lines[0]["disposition"], "dead_letter");
    assert!(lines[0]["reason"].as_str().unwrap().ends_with("moved to the dead-letter queue"), "{}", lines[0]);
    assert!(fixture.sqs.take_calls().is_empty(), "no visibility timeout is changed");
}

#[tokio::test]
async fn a_fifo_group_continues_after_its_dead_letter() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("bad", Answer::status(400));
    let function = fixture.function_with(&[FIFO_QUEUE]).await;
    let group = [pay("m1", "good").group("g"), pay("m2", "bad").group("g"), pay("m3", "next").group("g")];
    assert_eq!(function.answer(event(group)).await, NO_FAILURES);
    let [sent] = fixture.sqs.sent().try_into().unwrap();
    assert_eq!((&sent["MessageGroupId"], &sent["MessageDeduplicationId"]), (&json!("g"), &json!("m2")));
    assert_eq!(fixture.webhook.calls_for("next"), 1);
}

#[tokio::test]
async fn sqs_is_called_by_way_of_the_proxy_of_the_environment() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("pay_1", Answer::status(422));
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy_url = format!("http://{}", proxy.local_addr().unwrap());
    let settings = [QUEUE, ("HTTPS_PROXY", &*proxy_url), ("AWS_ENDPOINT_URL_SQS", "https://sqs.internal")];
    let function = fixture.function_with(&settings).await;
    let _pending = function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(9));
    let mut request = String::new();
    let (connection, _) = soon(proxy.accept()).await.unwrap();
    soon(BufReader::new(connection).read_line(&mut request)).await.unwrap();
    assert_eq!(request, "CONNECT sqs.internal:443 HTTP/1.1\r\n");
}

#[tokio::test]
async fn a_refused_dead_letter_leaves_the_message_in_its_queue_with_a_backoff() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("pay_1", Answer::status(400));
    fixture.sqs.refuse_sends(true);
    let function = fixture.function_with(&[QUEUE]).await;
    for received in [8, 9] {
        let records = event([pay("m1", "pay_1").received(received), pay("m2", "pay_2")]);
        assert_eq!(function.invoke(records).await, ["m1"]);
        let delay = fixture.sqs.take()["m1"];
        assert!((1 << (received - 1)..=1 << received).contains(&delay), "{delay}");
    }
    function.logs("sqs:SendMessage").await;
    fixture.sqs.refuse_sends(false);
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(10)])).await, NO_FAILURES);
    let [sent] = fixture.sqs.sent().try_into().unwrap();
    assert_eq!(letter(&sent)["outcome"], "FAILED");
    assert_eq!(fixture.webhook.calls_for("pay_1"), 1);
}

#[tokio::test]
async fn the_reason_of_a_letter_that_was_refused_is_in_the_log_as_the_letter_says() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(422));
    let function = fixture.function_with(&[QUEUE]).await;
    fixture.sqs.refuse_sends(true);
    assert_eq!(function.invoke(event([pay("m1", "pay_1")])).await, ["m1"]);
    fixture.sqs.refuse_sends(false);
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(2)])).await, NO_FAILURES);
    let letter = letter(&fixture.sqs.sent()[0]);
    assert!(letter["reason"].as_str().unwrap().ends_with("the log of the key has the reason"), "{letter}");
    let lines = function.messages(3).await;
    let line = lines.iter().find(|line| line["outcome"] == "ACQUIRED").unwrap();
    assert_eq!((&line["idempotency_key"], &line["message_id"]), (&json!("pay_1"), &json!("m1")));
    assert!(line["reason"].as_str().unwrap().starts_with("failed permanently: the webhook returned 422"), "{line}");
}

#[tokio::test]
async fn a_function_killed_after_it_sent_a_letter_sends_it_again_and_loses_nothing() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("pay_1", Answer::status(400));
    fixture.sqs.hold_sends(true);
    let function = fixture.function_with(&[QUEUE]).await;
    let records = || event([pay("m1", "pay_1")]);
    let _killed = function.begin(records(), Duration::from_secs(2));
    fixture.sqs.until_sent(1).await;
    drop(function);
    fixture.sqs.hold_sends(false);
    let function = fixture.function_with(&[QUEUE]).await;
    harness::until(async || function.answer(records()).await == NO_FAILURES).await;
    assert_eq!((fixture.sqs.sent().len(), fixture.webhook.calls_for("pay_1")), (2, 1));
}

#[tokio::test]
async fn a_letter_contains_neither_the_payload_nor_the_address_of_the_webhook() {
    let fixture = Fixture::start().await;
    for answer in [Answer::status(302), Answer::with(404, &[("Location", "http://secret/")], MARKER.as_bytes())] {
        fixture.webhook.respond(answer);
        let function = fixture.function_with(&[QUEUE]).await;
        let records =
            [Record::new("m1"), Record::new("m2").attribute("Idempotency-Key", json!({ "binaryValue": "AJ//" }))];
        assert_eq!(function.answer(event(records)).await, NO_FAILURES);
    }
    let sent = fixture.sqs.sent();
    assert!(sent.len() >= 2, "{sent:?}");
    for sent in sent {
        let letter = letter(&sent).to_string();
        assert!(!letter.contains(MARKER) && !letter.contains(TOKEN) && !letter.contains("://"), "{letter}");
    }
}

#[tokio::test]
async fn a_letter_without_a_reply_is_sent_once_in_a_delivery_and_the_response_does_not_wait_for_it() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("pay_1", Answer::status(400));
    fixture.sqs.hold_sends(true);
    let function = fixture.function_with(&[QUEUE]).await;
    let began = Instant::now();
    assert_eq!(function.invoke(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await, ["m1"]);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(fixture.sqs.sent().len(), 1);
    fixture.sqs.hold_sends(false);
    fixture.sqs.fail_sends(true);
    assert_eq!(function.invoke(event([pay("m1", "pay_1")])).await, ["m1"]);
    assert_eq!(fixture.sqs.sent().len(), 2, "it is unknown whether the first one was sent");
    fixture.sqs.fail_sends(false);
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.sqs.sent().len(), 3);
}

#[tokio::test]
async fn a_value_that_is_not_a_record_under_the_key_of_a_letter_deletes_no_message() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(400));
    let () = fixture.redis.connection().await.set("payments:dead-letter:m1", "not a record").await.unwrap();
    let function = fixture.function_with(&[QUEUE]).await;
    assert_eq!(function.invoke(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await, ["m1"]);
    let [sent] = fixture.sqs.sent().try_into().unwrap();
    assert_eq!(letter(&sent)["message_id"], "m2");
    function.logs("a dead letter was not sent").await;
}

/// A NAT gateway drops an idle connection without telling either side. New ones work.
#[tokio::test]
async fn a_letter_is_not_sent_on_a_connection_that_was_idle_for_long() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(422));
    let (front, endpoint) = front_of(&fixture.sqs.url()).await;
    let function = fixture.function_with(&[QUEUE, ("AWS_ENDPOINT_URL_SQS", &endpoint)]).await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    assert_eq!(fixture.sqs.sent().len(), 1);
    front.freeze();
    sleep(Duration::from_millis(3200)).await;
    assert_eq!(function.answer(event([pay("m2", "pay_2")])).await, NO_FAILURES);
    assert_eq!((fixture.sqs.sent().len(), front.connections()), (2, 2));
}

#[tokio::test]
async fn letters_that_are_sent_soon_after_each_other_share_a_connection() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(422));
    let (front, endpoint) = front_of(&fixture.sqs.url()).await;
    let function = fixture.function_with(&[QUEUE, ("AWS_ENDPOINT_URL_SQS", &endpoint)]).await;
    for id in ["m1", "m2", "m3", "m4", "m5"] {
        assert_eq!(function.answer(event([pay(id, id)])).await, NO_FAILURES);
    }
    // On a slow machine, the first one may be too old for the last letter.
    assert!(front.connections() <= 2, "{}", front.connections());
}

#[tokio::test]
async fn a_letter_is_sent_at_once_although_its_connection_was_closed_during_a_freeze() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(422));
    let (front, endpoint) = front_of(&fixture.sqs.url()).await;
    let function = fixture.function_with(&[QUEUE, ("AWS_ENDPOINT_URL_SQS", &endpoint)]).await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    function.signal("-STOP");
    front.cut();
    let next = function.begin(event([pay("m2", "pay_2")]), harness::TIMEOUT);
    function.signal("-CONT");
    assert_eq!(next.answer().await, NO_FAILURES);
}

#[tokio::test]
async fn a_letter_that_is_not_sent_without_certificates_says_what_to_check() {
    let fixture = Fixture::start().await;
    let directory = tempfile::tempdir().unwrap();
    let settings =
        [QUEUE, ("SSL_CERT_DIR", directory.path().to_str().unwrap()), ("IDEMPOTENCY_KEY", "attribute:Other")];
    let function = fixture.function_with(&settings).await;
    assert_eq!(function.invoke(event([pay("m1", "pay_1")])).await, ["m1"]);
    let lines = function.logs("a dead letter was not sent").await;
    let line = lines.iter().find(|line| line.contains("a dead letter was not sent")).unwrap();
    assert!(line.contains("check that SSL_CERT_FILE or SSL_CERT_DIR"), "{line}");
}
