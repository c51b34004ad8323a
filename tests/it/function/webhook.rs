use std::time::{Duration, Instant, SystemTime};

use super::{NO_FAILURES, Stage, pay};
use crate::support::event::{Record, event};
use crate::support::http::{Answer, Request, TOKEN};
use crate::support::lambda::Function;

/// One delivery that the webhook answers so, and the next delivery, that it answers with 200.
struct Told {
    reported: bool,
    visibility: Option<u64>,
    /// What the webhook heard of the next delivery, if it was called.
    next: Option<Request>,
}

async fn told(stage: &Stage, function: &Function, key: &str, answer: Answer) -> Told {
    stage.webhook.answers_for(key, answer);
    let before = stage.webhook.calls_for(key);
    let reported = !function.invoke(event([pay(key, key)])).await.is_empty();
    assert_eq!(stage.webhook.calls_for(key), before + 1);
    let visibility = stage.sqs.take().remove(key);

    stage.webhook.answers_for(key, Answer::status(200));
    let calls = stage.webhook.calls().len();
    function.invoke(event([pay(key, key).received(2)])).await;
    let next = stage.webhook.calls().get(calls).cloned();
    Told { reported, visibility, next }
}

impl Told {
    fn is_done(&self) -> bool {
        !self.reported && self.visibility.is_none() && self.next.is_none()
    }

    fn is_permanent(&self) -> bool {
        self.reported && self.visibility == Some(0) && self.next.is_none()
    }

    fn comes_again(&self, recovery: Option<&str>) -> bool {
        let Some(next) = &self.next else { return false };
        self.reported
            && next.header("Idempotency-Attempt") == Some("2")
            && next.header("Idempotency-Recovery") == recovery
    }

    fn is_clean(&self) -> bool {
        self.comes_again(None)
    }

    fn is_uncertain(&self) -> bool {
        self.comes_again(Some("true")) && self.backs_off_first()
    }

    /// By the first step of the back-off, of which half is jitter.
    fn backs_off_first(&self) -> bool {
        matches!(self.visibility, Some(1..=2))
    }
}

#[tokio::test]
async fn the_webhook_gets_the_body_as_it_is_and_all_that_is_known_of_the_attempt() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    let body = "{ \"amount\":\t1250.00, \"name\": \"Gr\u{f6}\u{df}e \u{1F4B6}\", \"esc\": \"\\u00f6\\/\" }\r\n";
    assert_eq!(function.answer(event([pay("m1", "pay_1").body(body)])).await, NO_FAILURES);
    let call = stage.webhook.last_call();
    assert_eq!((&*call.method, &*call.path), ("POST", &*format!("/hook?token={TOKEN}")));
    assert_eq!(call.body, body.as_bytes());
    assert_eq!(call.header("Content-Type"), Some("application/json"));
    assert_eq!(call.header("Idempotency-Key"), Some("pay_1"));
    assert_eq!(call.header("Idempotency-Attempt"), Some("1"));
    assert_eq!(call.header("Idempotency-Recovery"), None);
    assert!(call.number("Idempotency-Fence").unwrap() > 1_700_000_000_000_000);
}

#[tokio::test]
async fn what_is_not_json_is_announced_as_text() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    for (at, body) in ["plain", "{\"half\":", "", "two 2", "\u{feff}{}"].into_iter().enumerate() {
        let id = format!("m{at}");
        assert_eq!(function.answer(event([pay(&id, &id).body(body)])).await, NO_FAILURES);
        let call = stage.webhook.last_call();
        assert_eq!(call.body, body.as_bytes());
        assert_eq!(call.header("Content-Type"), Some("text/plain; charset=utf-8"), "{body:?}");
    }
}

#[tokio::test]
async fn the_key_is_the_producers_own_else_the_messages_id_on_fifo_queues_too() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    let of_a_group = Record::new("m2").group("b").deduplication_id("d");
    let event = event([pay("m1", "pay_1").group("a"), of_a_group, Record::new("m3")]);
    assert_eq!(function.answer(event).await, NO_FAILURES);
    for key in ["pay_1", "m2", "m3"] {
        assert_eq!(stage.webhook.calls_for(key), 1, "{key}");
    }
}

#[tokio::test]
async fn the_same_deduplication_id_in_two_groups_is_two_keys_where_the_settings_make_it_the_key() {
    let stage = Stage::start().await;
    let function = stage.function_with(&[("IDEMPOTENCY_KEY", "deduplicationId")]).await;
    let record = |id: &str, group: &str| Record::new(id).group(group).deduplication_id("d");
    assert_eq!(function.answer(event([record("m1", "a"), record("m2", "b"), record("m3", "a")])).await, NO_FAILURES);
    assert_eq!(function.answer(event([record("m4", "b"), record("m5", "c")])).await, NO_FAILURES);
    for key in ["a%20d", "b%20d", "c%20d"] {
        assert_eq!(stage.webhook.calls_for(key), 1, "{key}");
    }
}

#[tokio::test]
async fn any_2xx_is_done() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    for (key, answer) in [
        ("200", Answer::with(200, &[], b"receipt 17")),
        ("200 and nothing", Answer::status(200)),
        ("202", Answer::with(202, &[("Retry-After", "9")], b"later")),
        ("204", Answer::status(204)),
    ] {
        let key = key.replace(' ', "-");
        assert!(told(&stage, &function, &key, answer).await.is_done(), "{key}");
    }
}

#[tokio::test]
async fn a_redirection_is_permanent_and_never_followed() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    let elsewhere = stage.webhook.url().replace("hook", "elsewhere");
    for status in [301, 302, 303, 307, 308] {
        let answer = Answer::with(status, &[("Location", &elsewhere)], b"");
        assert!(told(&stage, &function, &status.to_string(), answer).await.is_permanent(), "{status}");
    }
    assert!(stage.webhook.calls().iter().all(|call| call.path.starts_with("/hook")));
}

#[tokio::test]
async fn any_other_4xx_is_permanent_until_another_message_brings_the_key() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    for status in ["400", "401", "404", "409", "413", "422"] {
        let answer = Answer::with(status.parse().unwrap(), &[("Retry-After", "9")], b"no");
        assert!(told(&stage, &function, status, answer).await.is_permanent(), "{status}");

        assert_eq!(function.invoke(event([pay(status, status).received(3)])).await, [status]);
        assert_eq!(stage.sqs.take(), [(status.into(), 0)].into());
        assert_eq!(function.answer(event([pay("redriven", status)])).await, NO_FAILURES);
        let redriven = stage.webhook.last_call();
        assert_eq!(redriven.header("Idempotency-Attempt"), Some("2"));
        assert_eq!(redriven.header("Idempotency-Recovery"), None);
    }
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_is_no_recovery() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    for status in [408, 425, 429, 500, 502, 503, 504] {
        let told = told(&stage, &function, &status.to_string(), Answer::status(status)).await;
        assert!(told.is_clean() && told.backs_off_first(), "{status}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured_in_seconds_and_as_a_date() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    let date = |from_now| httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(from_now));
    for (key, status, retry_after, visibility) in [
        ("seconds", 429, "120".to_owned(), 120..=120),
        ("at-once", 503, "0".to_owned(), 0..=0),
        ("date", 503, date(90), 80..=90),
        ("past", 408, "Wed, 21 Oct 2015 07:28:00 GMT".to_owned(), 0..=0),
        ("words", 500, "soon".to_owned(), 1..=2),
        ("negative", 429, "-5".to_owned(), 1..=2),
        ("longer-than-sqs-takes", 503, "86400".to_owned(), 42_000..=43_200),
        ("longer-than-any-number", 503, "18446744073709551615".to_owned(), 42_000..=43_200),
    ] {
        let answer = Answer::with(status, &[("Retry-After", &retry_after)], b"");
        let told = told(&stage, &function, key, answer).await;
        assert!(told.is_clean(), "{key}");
        assert!(told.visibility.is_some_and(|asked| visibility.contains(&asked)), "{key}: {:?}", told.visibility);
    }
}

#[tokio::test]
async fn the_wait_grows_with_the_attempts_until_they_are_used_up() {
    let stage = Stage::start().await;
    stage.webhook.answers(Answer::status(500));
    let function = stage.function().await;
    for (attempt, wait) in [(1, 1..=2), (2, 2..=4), (3, 4..=8), (4, 8..=16), (5, 0..=0)] {
        assert_eq!(function.invoke(event([pay("m1", "pay_1").received(attempt)])).await, ["m1"]);
        assert_eq!(stage.webhook.last_call().number("Idempotency-Attempt"), Some(attempt.into()));
        let asked = stage.sqs.take()["m1"];
        assert!(wait.contains(&asked), "{asked} after attempt {attempt}");
    }
    assert_eq!(function.invoke(event([pay("m1", "pay_1").received(6)])).await, ["m1"]);
    assert_eq!(stage.webhook.calls().len(), 5);
    assert_eq!(stage.sqs.take(), [("m1".into(), 0)].into());
}

#[tokio::test]
async fn a_webhook_that_hangs_may_have_done_it() {
    let stage = Stage::start().await;
    let function = stage.function_with(&[("TARGET_TIMEOUT_MS", "200")]).await;
    let begun = Instant::now();
    assert!(told(&stage, &function, "pay_1", Answer::Held).await.is_uncertain());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_webhook_that_resets_the_connection_after_the_request_may_have_done_it() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    assert!(told(&stage, &function, "reset", Answer::Reset).await.is_uncertain());
    assert!(told(&stage, &function, "closed", Answer::Cut(vec![])).await.is_uncertain());
}

#[tokio::test]
async fn a_webhook_whose_answer_is_cut_off_may_have_done_it() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    for (key, answer) in [
        ("head", "HTTP/1.1 200 OK\r\nContent-Le"),
        ("body", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
        ("chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n"),
        ("another-language", "SSH-2.0-OpenSSH_9.7\r\n"),
    ] {
        assert!(told(&stage, &function, key, Answer::Cut(answer.into())).await.is_uncertain(), "{key}");
    }
}

#[tokio::test]
async fn a_webhook_that_refuses_the_connection_has_done_nothing() {
    let stage = Stage::start().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = format!("http://{}/?token={TOKEN}", socket.local_addr().unwrap());
    {
        let function = stage.function_with(&[("TARGET_URL", &nobody)]).await;
        assert_eq!(function.invoke(event([pay("m1", "pay_1")])).await, ["m1"]);
        assert!(matches!(stage.sqs.take()["m1"], 1..=2));
    }
    let function = stage.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(2)])).await, NO_FAILURES);
    let next = stage.webhook.last_call();
    assert_eq!(next.header("Idempotency-Attempt"), Some("2"));
    assert_eq!(next.header("Idempotency-Recovery"), None);
}

#[tokio::test]
async fn an_answer_of_5_mib_is_done_at_once_and_not_kept() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    let large = Answer::with(200, &[], &vec![b'x'; 5 << 20]);
    assert!(told(&stage, &function, "large", large).await.is_done());
    assert!(told(&stage, &function, "small", Answer::with(200, &[], &[b'x'; 4096])).await.is_done());

    let mut redis = stage.redis.connection().await;
    let kept: (usize, usize) =
        redis::pipe().strlen("payments:large").strlen("payments:small").query_async(&mut redis).await.unwrap();
    assert_eq!(kept.1, kept.0 + 4096);
}

#[tokio::test]
async fn an_answer_too_large_to_be_kept_is_not_waited_for() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 5 << 20, "x".repeat(8192));
    let begun = Instant::now();
    assert!(told(&stage, &function, "pay_1", Answer::Whole(start.into())).await.is_done());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_webhook_slower_than_the_invocation_is_cut_off_in_time_to_answer() {
    let stage = Stage::start().await;
    stage.webhook.answers_for("slow", Answer::Held);
    let function = stage.function_with(&[("BATCH_CONCURRENCY", "2")]).await;
    let event = |received| event(["slow", "quick", "slow-too"].map(|key| pay(key, key).received(received)));
    stage.webhook.answers_for("slow-too", Answer::Held);

    let timeout = Duration::from_secs(4);
    let begun = Instant::now();
    assert_eq!(function.begin(event(1), timeout).failures().await, ["slow", "slow-too"]);
    assert!(begun.elapsed() < timeout, "{:?}", begun.elapsed());

    stage.webhook.answers_for("slow", Answer::status(200));
    stage.webhook.answers_for("slow-too", Answer::status(200));
    assert_eq!(function.answer(event(2)).await, NO_FAILURES);
    let calls = stage.webhook.calls();
    let again: Vec<_> = calls.iter().filter(|call| call.header("Idempotency-Recovery").is_some()).collect();
    assert_eq!((again.len(), calls.len()), (2, 5));
    assert!(again.iter().all(|call| call.header("Idempotency-Attempt") == Some("2")));
}

#[tokio::test]
async fn what_no_time_was_left_for_comes_again_as_if_for_the_first_time() {
    let stage = Stage::start().await;
    stage.webhook.answers_for("slow", Answer::Held);
    let function = stage.function_with(&[("BATCH_CONCURRENCY", "1")]).await;
    let event = |received| event(["slow", "late"].map(|key| pay(key, key).received(received)));
    assert_eq!(function.begin(event(1), Duration::from_secs(1)).failures().await, ["slow", "late"]);
    assert_eq!(stage.webhook.calls_for("late"), 0);
    assert!(!stage.sqs.take().contains_key("late"));

    stage.webhook.answers_for("slow", Answer::status(200));
    assert_eq!(function.answer(event(2)).await, NO_FAILURES);
    let late = stage.webhook.last_call();
    assert_eq!(late.header("Idempotency-Key"), Some("late"));
    assert_eq!(late.header("Idempotency-Attempt"), Some("1"));
    assert_eq!(late.header("Idempotency-Recovery"), None);
}

#[tokio::test]
async fn a_webhook_that_hung_up_while_the_function_was_frozen_is_called_as_if_nothing_happened() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    for round in 0..5 {
        let before = format!("before-{round}");
        assert_eq!(function.answer(event([pay(&before, &before)])).await, NO_FAILURES);
        function.signal("-STOP");
        stage.webhook.hang_up();
        let pending = function.begin(event([pay("m", &format!("after-{round}"))]), Duration::from_secs(20));
        function.signal("-CONT");
        assert_eq!(pending.answer().await, NO_FAILURES);
    }
}
