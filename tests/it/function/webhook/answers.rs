use std::time::{Duration, SystemTime};

use super::super::{Fixture, NO_FAILURES, pay};
use super::{is_attempt, told};
use harness::event::event;
use harness::http::Answer;

#[tokio::test]
async fn any_2xx_is_done() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for (key, answer) in [
        ("200", Answer::with(200, &[], b"receipt 17")),
        ("200 and nothing", Answer::status(200)),
        ("202", Answer::with(202, &[("Retry-After", "9")], b"later")),
        ("204", Answer::status(204)),
        ("299", Answer::status(299)),
    ] {
        let key = key.replace(' ', "-");
        assert!(told(&fixture, &function, &key, answer).await.is_done(), "{key}");
    }
}

#[tokio::test]
async fn a_redirection_is_permanent_and_never_followed() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let elsewhere = fixture.webhook.url().replace("hook", "elsewhere");
    for status in [301, 302, 303, 307, 308] {
        let answer = Answer::with(status, &[("Location", &elsewhere)], b"");
        assert!(told(&fixture, &function, &status.to_string(), answer).await.is_permanent(), "{status}");
    }
    assert!(fixture.webhook.calls().iter().all(|call| call.path.starts_with("/hook")));
}

#[tokio::test]
async fn any_other_4xx_is_permanent_until_another_message_brings_the_key() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for status in ["400", "401", "404", "410", "413", "422"] {
        let answer = Answer::with(status.parse().unwrap(), &[("Retry-After", "9")], b"no");
        let told = told(&fixture, &function, status, answer).await;
        assert!(told.is_permanent(), "{status}: {told:?}");

        assert_eq!(function.invoke(event([pay(status, status).received(3)])).await, [status]);
        assert_eq!(fixture.webhook.calls_for(status), 1);
        assert_eq!(function.answer(event([pay("redriven", status)])).await, NO_FAILURES);
        assert!(is_attempt(&fixture.webhook.last_call(), "2", None));
    }
}

#[tokio::test]
async fn any_other_status_may_have_taken_effect_and_the_next_attempt_is_a_recovery() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for status in [101, 408, 500, 501, 502, 504, 505, 507, 599, 600, 999] {
        let answer = Answer::with(status, &[("Retry-After", "120")], b"");
        let told = told(&fixture, &function, &status.to_string(), answer).await;
        assert!(told.is_uncertain(), "{status}: {told:?}");
    }
}

#[tokio::test]
async fn a_webhook_that_is_unavailable_or_still_at_work_has_done_nothing_and_the_attempt_is_not_counted() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for status in [409, 425, 429, 503] {
        let told = told(&fixture, &function, &status.to_string(), Answer::status(status)).await;
        assert!(told.is_unavailable() && told.backs_off_first(), "{status}: {told:?}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured_in_seconds_and_as_a_date_and_is_at_least_a_second() {
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
        ("negative", 429, "-5".to_owned(), 1..=2),
        ("longer-than-sqs-takes", 503, "86400".to_owned(), 42_000..=43_200),
        ("longer-than-any-number", 503, "18446744073709551615".to_owned(), 42_000..=43_200),
    ] {
        let answer = Answer::with(status, &[("Retry-After", &retry_after)], b"");
        let told = told(&fixture, &function, key, answer).await;
        assert!(told.is_unavailable(), "{key}: {told:?}");
        assert!(told.visibility.is_some_and(|asked| visibility.contains(&asked)), "{key}: {told:?}");
    }
}

#[tokio::test]
async fn eight_refusals_in_a_row_use_up_no_attempt_and_wait_longer_each_time() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::with(429, &[("Retry-After", "0")], b""));
    let function = fixture.function_with(&[("IDEMPOTENCY_MAX_ATTEMPTS", "3")]).await;
    for received in 1..=8 {
        assert_eq!(function.invoke(event([pay("m1", "pay_1").received(received)])).await, ["m1"]);
        assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
        let (asked, step) = (fixture.sqs.take()["m1"], 1 << received);
        assert!((step / 2..=step).contains(&asked), "{asked} after receive {received}");
    }
    fixture.webhook.answers(Answer::status(200));
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(9)])).await, NO_FAILURES);
    assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
    assert_eq!(fixture.webhook.calls().len(), 9);
}

#[tokio::test]
async fn a_recovery_that_meets_an_unavailable_webhook_stays_a_recovery() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for (received, status) in [(1, 500), (2, 503), (3, 429), (4, 409), (5, 200)] {
        fixture.webhook.answers(Answer::status(status));
        let reported = function.invoke(event([pay("m1", "pay_1").received(received)])).await;
        assert_eq!(reported.is_empty(), status == 200, "{status}");
        let (attempt, recovery) = if received == 1 { ("1", None) } else { ("2", Some("true")) };
        assert!(is_attempt(&fixture.webhook.last_call(), attempt, recovery), "at the answer {status}");
    }
    assert_eq!(fixture.webhook.calls().len(), 5);
}

#[tokio::test]
async fn the_wait_grows_with_the_receives_until_the_attempts_are_used_up() {
    let fixture = Fixture::start().await;
    fixture.webhook.answers(Answer::status(500));
    let function = fixture.function_with(&[("IDEMPOTENCY_MAX_ATTEMPTS", "3")]).await;
    for received in 1..=4 {
        assert_eq!(function.invoke(event([pay("m1", "pay_1").received(received)])).await, ["m1"]);
        let (asked, step) = (fixture.sqs.take()["m1"], 1 << received);
        assert!((step / 2..=step).contains(&asked), "{asked} after receive {received}");
    }
    let attempts: Vec<_> = fixture.webhook.calls().iter().map(|call| call.number("Idempotency-Attempt")).collect();
    assert_eq!(attempts, [1, 2, 3].map(Some));
}
