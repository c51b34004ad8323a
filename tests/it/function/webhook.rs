//! The webhook: its requests, and how its responses are reported, recorded and retried.

mod connections;
mod response_body;
mod status;

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Fixture, NO_FAILURES, pay};
use harness::event::{Record, event};
use harness::http::{Answer, Request, TOKEN};
use harness::lambda::Function;

/// The result of a delivery, and the request that the next delivery causes.
#[derive(Debug)]
struct Delivery {
    /// Whether the message was reported as failed.
    reported: bool,
    /// The new visibility timeout, in seconds.
    visibility: Option<u64>,
    /// The request to the webhook at the next delivery.
    next: Option<Request>,
}

/// Delivers a message twice. The webhook's response is first `answer` and then 200.
async fn deliver_twice(fixture: &Fixture, function: &Function, key: &str, answer: Answer) -> Delivery {
    fixture.webhook.respond_for(key, answer);
    let before = fixture.webhook.calls_for(key);
    let reported = !function.invoke(event([pay(key, key)])).await.is_empty();
    assert_eq!(fixture.webhook.calls_for(key), before + 1);
    let visibility = fixture.sqs.take().remove(key);
    fixture.webhook.respond_for(key, Answer::status(200));
    let next = next_call(fixture, function, key).await;
    Delivery { reported, visibility, next }
}

/// Delivers the message again. Returns the request to the webhook, if there is one.
async fn next_call(fixture: &Fixture, function: &Function, key: &str) -> Option<Request> {
    let calls = fixture.webhook.calls().len();
    function.invoke(event([pay(key, key).received(2)])).await;
    fixture.sqs.take();
    let next = fixture.webhook.calls().get(calls).cloned();
    assert!(fixture.webhook.calls().len() <= calls + 1);
    next
}

impl Delivery {
    /// The message is deleted, and its next delivery is a duplicate.
    fn is_done(&self) -> bool {
        !self.reported && self.visibility.is_none() && self.next.is_none()
    }

    /// The message is reported and does not run again.
    fn is_permanent(&self) -> bool {
        self.reported && self.has_first_backoff() && self.next.is_none()
    }

    /// The attempt is not counted, and the next one is not a recovery.
    fn is_unavailable(&self) -> bool {
        self.reported && self.next.as_ref().is_some_and(|next| is_attempt(next, "1", None))
    }

    /// The attempt is counted, and the next one is a recovery.
    fn is_uncertain(&self) -> bool {
        let next = self.next.as_ref();
        self.reported && self.has_first_backoff() && next.is_some_and(|next| is_attempt(next, "2", Some("true")))
    }

    /// The message is redelivered after the first step of the backoff: 2 seconds, of which half is jitter.
    fn has_first_backoff(&self) -> bool {
        matches!(self.visibility, Some(1..=2))
    }
}

fn is_attempt(call: &Request, number: &str, recovery: Option<&str>) -> bool {
    call.header("Idempotency-Attempt") == Some(number) && call.header("Idempotency-Recovery") == recovery
}

#[tokio::test]
async fn the_webhook_receives_the_body_unchanged_and_the_attempt_in_headers() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let body = "{ \"amount\":\t1250.00, \"name\": \"Gr\u{f6}\u{df}e \u{1F4B6}\", \"esc\": \"\\u00f6\\/\" }\r\n";
    assert_eq!(function.answer(event([pay("m1", "pay_1").body(body)])).await, NO_FAILURES);
    let call = fixture.webhook.last_call();
    assert_eq!((&*call.method, &*call.path), ("POST", &*format!("/hook?token={TOKEN}")));
    assert_eq!(call.body, body.as_bytes());
    assert_eq!(call.header("Content-Type"), Some("application/json"));
    assert_eq!(call.header("Idempotency-Key"), Some("pay_1"));
    assert_eq!(call.header("Idempotency-Attempt"), Some("1"));
    assert_eq!(call.header("Idempotency-Recovery"), None);
    assert!(call.number("Idempotency-Fence").unwrap() > 1_700_000_000_000_000);
}

#[tokio::test]
async fn the_webhook_receives_the_receive_count_if_sqs_sends_it() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(503));
    let function = fixture.function().await;
    for received in [1, 7] {
        function.invoke(event([pay("m1", "pay_1").received(received)])).await;
        assert_eq!(fixture.webhook.last_call().number("Idempotency-Receive-Count"), Some(received.into()));
    }
    function.invoke(event([pay("m1", "pay_1").with("attributes", json!({}))])).await;
    assert_eq!(fixture.webhook.calls().len(), 3);
    assert_eq!(fixture.webhook.last_call().header("Idempotency-Receive-Count"), None);
}

#[tokio::test]
async fn a_body_that_is_not_json_is_sent_as_text() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for (at, body) in ["plain", "{\"half\":", "", "two 2", "\u{feff}{}"].into_iter().enumerate() {
        let id = format!("m{at}");
        assert_eq!(function.answer(event([pay(&id, &id).body(body)])).await, NO_FAILURES);
        let call = fixture.webhook.last_call();
        assert_eq!(call.body, body.as_bytes());
        assert_eq!(call.header("Content-Type"), Some("text/plain; charset=utf-8"), "{body:?}");
    }
}

#[tokio::test]
async fn the_key_is_the_producers_or_else_the_message_id_even_on_fifo_queues() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let in_group = Record::new("m2").group("b").deduplication_id("d");
    let event = event([pay("m1", "pay_1").group("a"), in_group, Record::new("m3")]);
    assert_eq!(function.answer(event).await, NO_FAILURES);
    for key in ["pay_1", "m2", "m3"] {
        assert_eq!(fixture.webhook.calls_for(key), 1, "{key}");
    }
}

#[tokio::test]
async fn the_same_deduplication_id_in_two_groups_is_two_keys() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[("IDEMPOTENCY_KEY", "deduplicationId")]).await;
    let record = |id: &str, group: &str| Record::new(id).group(group).deduplication_id("d");
    assert_eq!(function.answer(event([record("m1", "a"), record("m2", "b"), record("m3", "a")])).await, NO_FAILURES);
    assert_eq!(function.answer(event([record("m4", "b"), record("m5", "c")])).await, NO_FAILURES);
    for key in ["a%20d", "b%20d", "c%20d"] {
        assert_eq!(fixture.webhook.calls_for(key), 1, "{key}");
    }
}

#[tokio::test]
async fn a_webhook_slower_than_the_invocation_is_cancelled_in_time_to_respond() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("slow", Answer::Held);
    let function = fixture.function_with(&[("BATCH_CONCURRENCY", "2")]).await;
    let event = |received| event(["slow", "quick", "slow-too"].map(|key| pay(key, key).received(received)));
    fixture.webhook.respond_for("slow-too", Answer::Held);

    let timeout = Duration::from_secs(4);
    let started = Instant::now();
    assert_eq!(function.begin(event(1), timeout).failures().await, ["slow", "slow-too"]);
    assert!(started.elapsed() < timeout, "{:?}", started.elapsed());

    fixture.webhook.respond_for("slow", Answer::status(200));
    fixture.webhook.respond_for("slow-too", Answer::status(200));
    assert_eq!(function.answer(event(2)).await, NO_FAILURES);
    let calls = fixture.webhook.calls();
    let recoveries: Vec<_> = calls.iter().filter(|call| call.header("Idempotency-Recovery").is_some()).collect();
    assert_eq!((recoveries.len(), calls.len()), (2, 5));
    assert!(recoveries.iter().all(|call| call.header("Idempotency-Attempt") == Some("2")));
}

#[tokio::test]
async fn a_message_without_time_to_start_is_redelivered_as_a_first_attempt() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("slow", Answer::Held);
    let function = fixture.function_with(&[("BATCH_CONCURRENCY", "1")]).await;
    let event = |received| event(["slow", "late"].map(|key| pay(key, key).received(received)));
    assert_eq!(function.begin(event(1), Duration::from_secs(1)).failures().await, ["slow", "late"]);
    assert_eq!(fixture.webhook.calls_for("late"), 0);

    fixture.webhook.respond_for("slow", Answer::status(200));
    assert_eq!(function.answer(event(2)).await, NO_FAILURES);
    let late = fixture.webhook.last_call();
    assert_eq!(late.header("Idempotency-Key"), Some("late"));
    assert_eq!(late.header("Idempotency-Attempt"), Some("1"));
    assert_eq!(late.header("Idempotency-Recovery"), None);
}
