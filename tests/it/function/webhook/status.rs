//! The status of a response: done, permanent, unavailable or uncertain.

use std::time::{Duration, SystemTime};

use super::super::{Fixture, NO_FAILURES, pay};
use super::{deliver_twice, is_attempt};
use harness::event::event;
use harness::http::Answer;

#[tokio::test]
async fn any_2xx_status_is_done() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for (key, answer) in [
        ("200", Answer::with(200, &[], b"receipt 17")),
        ("200 without a body", Answer::status(200)),
        ("202", Answer::with(202, &[("Retry-After", "9")], b"later")),
        ("204", Answer::status(204)),
        ("299", Answer::status(299)),
    ] {
        let key = key.replace(' ', "-");
        assert!(deliver_twice(&fixture, &function, &key, answer).await.is_done(), "{key}");
    }
}

#[tokio::test]
async fn a_redirect_is_a_permanent_failure_and_is_never_followed() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let other_path = fixture.webhook.url().replace("hook", "elsewhere");
    for status in [301, 302, 303, 307, 308] {
        let answer = Answer::with(status, &[("Location", &other_path)], b"");
        assert!(deliver_twice(&fixture, &function, &status.to_string(), answer).await.is_permanent(), "{status}");
    }
    assert!(fixture.webhook.calls().iter().all(|call| call.path.starts_with("/hook")));
}

#[tokio::test]
async fn any_other_4xx_status_is_permanent_until_another_message_has_the_key() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for status in ["400", "401", "404", "410", "413", "422"] {
        let answer = Answer::with(status.parse().unwrap(), &[("Retry-After", "9")], b"no");
        let delivery = deliver_twice(&fixture, &function, status, answer).await;
        assert!(delivery.is_permanent(), "{status}: {delivery:?}");

        assert_eq!(function.invoke(event([pay(status, status).received(3)])).await, [status]);
        assert_eq!(fixture.webhook.calls_for(status), 1);
        assert_eq!(function.answer(event([pay("redriven", status)])).await, NO_FAILURES);
        assert!(is_attempt(&fixture.webhook.last_call(), "2", None));
    }
}

#[tokio::test]
async fn any_other_status_is_uncertain_and_the_next_attempt_is_a_recovery() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for status in [101, 408, 500, 501, 502, 504, 505, 507, 599, 600, 999] {
        let answer = Answer::with(status, &[("Retry-After", "120")], b"");
        let delivery = deliver_twice(&fixture, &function, &status.to_string(), answer).await;
        assert!(delivery.is_uncertain(), "{status}: {delivery:?}");
    }
}

#[tokio::test]
async fn statuses_409_425_429_and_503_mean_unavailable_and_the_attempt_is_not_counted() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for status in [409, 425, 429, 503] {
        let delivery = deliver_twice(&fixture, &function, &status.to_string(), Answer::status(status)).await;
        assert!(delivery.is_unavailable() && delivery.has_first_backoff(), "{status}: {delivery:?}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured_in_seconds_and_as_a_date_with_a_minimum_of_one_second() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let date = |from_now| httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(from_now));
    for (key, status, retry_after, visibility) in [
        ("seconds", 429, "120".to_owned(), 120..=120),
        ("still-at-work", 409, "30".to_owned(), 30..=30),
        ("at-once", 503, "0".to_owned(), 1..=2),
        ("date", 503, date(90), 80..=90),
        ("past", 425, "Wed, 21 Oct 2015 07:28:00 GMT".to_owned(), 1..=2),
        ("words", 503, "soon".to_owned(), 1..=2),
        ("empty", 503, String::new(), 1..=2),
        ("negative", 429, "-5".to_owned(), 1..=2),
        ("longer-than-sqs-accepts", 503, "86400".to_owned(), 42_000..=43_200),
        ("longer-than-any-number", 503, "18446744073709551615".to_owned(), 42_000..=43_200),
        ("longer-than-64-bits", 503, "100000000000000000000".to_owned(), 42_000..=43_200),
    ] {
        let answer = Answer::with(status, &[("Retry-After", &retry_after)], b"");
        let delivery = deliver_twice(&fixture, &function, key, answer).await;
        assert!(delivery.is_unavailable(), "{key}: {delivery:?}");
        assert!(delivery.visibility.is_some_and(|seconds| visibility.contains(&seconds)), "{key}: {delivery:?}");
    }
}

#[tokio::test]
async fn eight_429_responses_in_a_row_use_no_attempt_and_wait_longer_each_time() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::with(429, &[("Retry-After", "0")], b""));
    let function = fixture.function_with(&[("IDEMPOTENCY_MAX_ATTEMPTS", "3")]).await;
    for received in 1..=8 {
        assert_eq!(function.invoke(event([pay("m1", "pay_1").received(received)])).await, ["m1"]);
        assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
        let (visibility, step) = (fixture.sqs.take()["m1"], 1 << received);
        assert!((step / 2..=step).contains(&visibility), "{visibility} after receive {received}");
    }
    fixture.webhook.respond(Answer::status(200));
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(9)])).await, NO_FAILURES);
    assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
    assert_eq!(fixture.webhook.calls().len(), 9);
}

#[tokio::test]
async fn a_recovery_that_finds_the_webhook_unavailable_remains_a_recovery() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for (received, status) in [(1, 500), (2, 503), (3, 429), (4, 409), (5, 200)] {
        fixture.webhook.respond(Answer::status(status));
        let reported = function.invoke(event([pay("m1", "pay_1").received(received)])).await;
        assert_eq!(reported.is_empty(), status == 200, "{status}");
        let (attempt, recovery) = if received == 1 { ("1", None) } else { ("2", Some("true")) };
        assert!(is_attempt(&fixture.webhook.last_call(), attempt, recovery), "before status {status}");
    }
    assert_eq!(fixture.webhook.calls().len(), 5);
}

#[tokio::test]
async fn the_delay_grows_with_the_receive_count_until_the_attempts_are_used_up() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(500));
    let function = fixture.function_with(&[("IDEMPOTENCY_MAX_ATTEMPTS", "3")]).await;
    for received in 1..=4 {
        assert_eq!(function.invoke(event([pay("m1", "pay_1").received(received)])).await, ["m1"]);
        let (visibility, step) = (fixture.sqs.take()["m1"], 1 << received);
        assert!((step / 2..=step).contains(&visibility), "{visibility} after receive {received}");
    }
    let attempts: Vec<_> = fixture.webhook.calls().iter().map(|call| call.number("Idempotency-Attempt")).collect();
    assert_eq!(attempts, [1, 2, 3].map(Some));
}
