//! Connections to the webhook: none, cut off early, reused, and closed while the function was frozen.

use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

use super::super::{Fixture, NO_FAILURES, pay};
use super::{deliver_twice, is_attempt, next_call};
use harness::event::event;
use harness::http::{Answer, TOKEN, Webhook, fill_queue};
use harness::with;
use idempotent_sqs::idempotency::{Acquire, Fence, Work, WorkErrorKind};
use idempotent_sqs::sqs::Message;
use idempotent_sqs::webhook::{self, WebhookSettings};
use idempotent_sqs_testing::{attempt, claim};

#[tokio::test]
async fn a_webhook_that_does_not_respond_is_uncertain() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[("TARGET_TIMEOUT_MS", "1000")]).await;
    let started = Instant::now();
    assert!(deliver_twice(&fixture, &function, "pay_1", Answer::Held).await.is_uncertain());
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_reset_after_the_request_is_uncertain() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert!(deliver_twice(&fixture, &function, "reset", Answer::Reset).await.is_uncertain());
    assert!(deliver_twice(&fixture, &function, "closed", Answer::Cut(vec![])).await.is_uncertain());
}

#[tokio::test]
async fn a_response_without_a_readable_head_is_uncertain() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for (key, answer) in [
        ("cut", "HTTP/1.1 200 OK\r\nContent-Le"),
        ("no-length", "HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n0123456789"),
        ("two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Length: 9\r\n\r\n0123456789"),
        ("another-protocol", "SSH-2.0-OpenSSH_9.7\r\n"),
    ] {
        let delivery = deliver_twice(&fixture, &function, key, Answer::Cut(answer.into())).await;
        assert!(delivery.is_uncertain(), "{key}: {delivery:?}");
    }
}

/// An address that does not answer a SYN, because its queue of connections to accept is full.
struct FullBacklog {
    listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl FullBacklog {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let queued = fill_queue(&listener).await;
        Self { listener, _queued: queued }
    }

    fn url(&self) -> String {
        format!("http://{}/?token={TOKEN}", self.listener.local_addr().unwrap())
    }
}

/// Asserts that a webhook at this URL is unavailable, and that the next delivery, to a working one, is a first attempt.
async fn assert_unavailable(url: &str, settings: &[(&str, &str)], invocation: Duration) {
    let fixture = Fixture::start().await;
    {
        let function = fixture.function_with(&[&[("TARGET_URL", url)], settings].concat()).await;
        let started = Instant::now();
        assert_eq!(function.begin(event([pay("m1", "pay_1")]), invocation).failures().await, ["m1"]);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert!(matches!(fixture.sqs.take()["m1"], 1..=2));
        assert!(function.messages(1).await[0]["reason"].as_str().unwrap().starts_with("unavailable: "));
    }
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(2)])).await, NO_FAILURES);
    assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
    assert_eq!(fixture.webhook.calls().len(), 1);
}

const LONG: Duration = Duration::from_secs(20);

const SHORT_CONNECT_TIMEOUT: (&str, &str) = ("TARGET_CONNECT_TIMEOUT_MS", "300");

#[tokio::test]
async fn a_refused_connection_is_unavailable() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_unavailable(&format!("http://{}/?token={TOKEN}", socket.local_addr().unwrap()), &[], LONG).await;
}

/// Whether sending has begun cannot be seen if the body is empty or the key is long.
#[tokio::test]
async fn a_refused_connection_is_unavailable_also_without_a_body_and_with_a_long_key() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", socket.local_addr().unwrap());
    let webhook = webhook::Webhook::new(WebhookSettings::new(url.parse().unwrap()));
    for (key, body) in [("pay_1", ""), (&*"k".repeat(70_000), "payload")] {
        let error = webhook.run(&claim(key), &Message::new("m1", body)).await.unwrap_err();
        assert!(matches!(error.kind(), WorkErrorKind::Unavailable { .. }), "{error}");
    }
}

#[tokio::test]
async fn an_unknown_host_name_is_unavailable() {
    assert_unavailable("http://webhook.invalid/", &[SHORT_CONNECT_TIMEOUT], LONG).await;
}

#[tokio::test]
async fn no_answer_to_a_syn_within_the_connect_timeout_is_unavailable() {
    assert_unavailable(&FullBacklog::open().await.url(), &[SHORT_CONNECT_TIMEOUT], LONG).await;
}

#[tokio::test]
async fn no_answer_to_a_syn_within_the_whole_timeout_is_unavailable() {
    assert_unavailable(&FullBacklog::open().await.url(), &[("TARGET_TIMEOUT_MS", "300")], LONG).await;
}

#[tokio::test]
async fn no_answer_to_a_syn_before_the_invocation_ends_is_unavailable() {
    assert_unavailable(&FullBacklog::open().await.url(), &[], Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_tls_handshake_that_hangs_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    assert_unavailable(&format!("https://{}/", listener.local_addr().unwrap()), &[SHORT_CONNECT_TIMEOUT], LONG).await;
}

#[tokio::test]
async fn a_server_without_tls_at_an_https_url_is_unavailable() {
    let plain = Webhook::start().await;
    assert_unavailable(&plain.url().replace("http:", "https:"), &[], LONG).await;
    assert!(plain.calls().is_empty());
}

#[tokio::test]
async fn a_connection_is_reused_by_the_next_invocation() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for key in ["first", "second", "third"] {
        assert_eq!(function.answer(event([pay(key, key)])).await, NO_FAILURES);
    }
    assert_eq!(fixture.webhook.connections(), 1);
}

#[tokio::test]
async fn a_connection_closed_during_a_freeze_is_replaced() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for round in 0..5 {
        let (before, after) = (format!("before-{round}"), format!("after-{round}"));
        assert_eq!(function.answer(event([pay(&before, &before)])).await, NO_FAILURES);
        function.signal("-STOP");
        fixture.webhook.close_connections().await;
        let pending = function.begin(event([pay("m", &after)]), LONG);
        function.signal("-CONT");
        assert_eq!(pending.answer().await, NO_FAILURES);
        assert_eq!(fixture.webhook.calls_for(&after), 1);
        assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
    }
}

#[tokio::test]
async fn a_connection_that_was_idle_for_long_during_a_freeze_is_not_reused() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("before", "before")])).await, NO_FAILURES);
    function.signal("-STOP");
    fixture.webhook.reset_connections();
    sleep(Duration::from_millis(3200)).await;
    let pending = function.begin(event([pay("after", "after")]), LONG);
    function.signal("-CONT");
    assert_eq!(pending.answer().await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls_for("after"), 1);
    assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
    assert_eq!(fixture.webhook.connections(), 2);
}

/// If a machine is frozen, the monotonic clock of timeouts may stop with it. Here tokio's clock is paused instead.
#[tokio::test]
async fn a_connection_is_not_reused_after_a_freeze_that_only_the_wall_clock_shows() {
    let receiver = Webhook::start().await;
    let settings = WebhookSettings::new(receiver.url().parse().unwrap());
    let webhook = webhook::Webhook::new(with!(settings, timeout = LONG, connect_timeout = LONG));
    // A blocking task keeps tokio from advancing the paused clock when all tasks are idle.
    let (awake, running) = std::sync::mpsc::channel::<()>();
    let running = tokio::task::spawn_blocking(move || running.recv());
    tokio::time::pause();
    let deliver = async |key| {
        let Acquire::Acquired(claim) = Acquire::claimed(attempt(key), Fence(1), 1, false) else { panic!("{key}") };
        let message = with!(Message::default(), body = Some("payload".into()));
        webhook.run(&claim, &message).await.unwrap();
        assert_eq!(receiver.calls_for(key), 1);
    };
    deliver("before").await;
    receiver.reset_connections();
    std::thread::sleep(Duration::from_millis(1100));
    deliver("after").await;
    assert_eq!(receiver.connections(), 2);
    drop(awake);
    assert!(running.await.unwrap().is_err());
}

/// Other messages of the batch may have more time.
#[tokio::test(start_paused = true)]
async fn a_message_without_time_for_a_response_is_not_sent_and_its_webhook_is_not_unavailable() {
    let webhook = webhook::Webhook::new(WebhookSettings::new("http://127.0.0.1:1".parse().unwrap()));
    let request = with!(attempt("pay_1"), lease = Duration::from_millis(50));
    let Acquire::Acquired(claim) = Acquire::claimed(request, Fence(1), 1, false) else { panic!("a first claim") };
    let error = webhook.run(&claim, &Message::new("m", "payload")).await.unwrap_err();
    assert_eq!(error.kind(), WorkErrorKind::Busy { after: None }, "{error}");
}

#[tokio::test]
async fn a_reset_when_the_request_arrives_is_uncertain() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("before", "before")])).await, NO_FAILURES);
    fixture.webhook.reset_connections();
    assert_eq!(function.invoke(event([pay("pay_1", "pay_1")])).await, ["pay_1"]);
    assert_eq!(fixture.webhook.calls_for("pay_1"), 0);
    assert!(is_attempt(&next_call(&fixture, &function, "pay_1").await.unwrap(), "2", Some("true")));
}

#[tokio::test]
async fn the_timeout_of_a_webhook_may_have_any_length() {
    let receiver = Webhook::start().await;
    let settings = WebhookSettings::new(receiver.url().parse().unwrap());
    let work = webhook::Webhook::new(with!(settings, timeout = Duration::MAX, connect_timeout = Duration::MAX));
    assert!(work.run(&claim("pay_1"), &Message::new("m1", "{}")).await.is_ok());
    assert_eq!(receiver.calls().len(), 1);
}
