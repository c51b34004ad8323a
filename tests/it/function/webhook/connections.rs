use std::time::{Duration, Instant};

use harness::with;
use idempotent_sqs::idempotency::{Acquire, Fence, Work};
use idempotent_sqs::sqs::Message;
use idempotent_sqs::webhook::WebhookSettings;
use idempotent_sqs::webhook::{self};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::super::{Fixture, NO_FAILURES, pay};
use super::{is_attempt, next_call, told};
use harness::event::event;
use harness::http::{Answer, TOKEN, Webhook};
use idempotent_sqs_testing::attempt;

#[tokio::test]
async fn a_webhook_that_hangs_may_have_done_it() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[("TARGET_TIMEOUT_MS", "200")]).await;
    let begun = Instant::now();
    assert!(told(&fixture, &function, "pay_1", Answer::Held).await.is_uncertain());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_webhook_that_resets_the_connection_after_the_request_may_have_done_it() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert!(told(&fixture, &function, "reset", Answer::Reset).await.is_uncertain());
    assert!(told(&fixture, &function, "closed", Answer::Cut(vec![])).await.is_uncertain());
}

#[tokio::test]
async fn a_webhook_whose_answer_has_no_readable_head_may_have_done_it() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for (key, answer) in [
        ("cut", "HTTP/1.1 200 OK\r\nContent-Le"),
        ("no-length", "HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n0123456789"),
        ("two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Length: 9\r\n\r\n0123456789"),
        ("another-language", "SSH-2.0-OpenSSH_9.7\r\n"),
    ] {
        let told = told(&fixture, &function, key, Answer::Cut(answer.into())).await;
        assert!(told.is_uncertain(), "{key}: {told:?}");
    }
}

/// An address that answers no SYN: its queue of connections that wait to be accepted is full.
struct BlackHole {
    listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl BlackHole {
    async fn open() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut waiting = Vec::new();
        let at_once = Duration::from_millis(200);
        while let Ok(connected) = timeout(at_once, TcpStream::connect(listener.local_addr().unwrap())).await {
            waiting.push(connected.unwrap());
        }
        Self { listener, _waiting: waiting }
    }

    fn url(&self) -> String {
        format!("http://{}/?token={TOKEN}", self.listener.local_addr().unwrap())
    }
}

/// A webhook at this address is called in vain, and the next delivery, to one that answers, is a first attempt.
async fn is_unavailable(url: &str, settings: &[(&str, &str)], invocation: Duration) {
    let fixture = Fixture::start().await;
    {
        let function = fixture.function_with(&[&[("TARGET_URL", url)], settings].concat()).await;
        let begun = Instant::now();
        assert_eq!(function.begin(event([pay("m1", "pay_1")]), invocation).failures().await, ["m1"]);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(matches!(fixture.sqs.take()["m1"], 1..=2));
        assert!(function.messages(1).await[0]["reason"].as_str().unwrap().starts_with("unavailable: "));
    }
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(2)])).await, NO_FAILURES);
    assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
    assert_eq!(fixture.webhook.calls().len(), 1);
}

const LONG: Duration = Duration::from_secs(20);

const SOON: (&str, &str) = ("TARGET_CONNECT_TIMEOUT_MS", "300");

#[tokio::test]
async fn a_webhook_that_refuses_the_connection_has_done_nothing() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    is_unavailable(&format!("http://{}/?token={TOKEN}", socket.local_addr().unwrap()), &[], LONG).await;
}

#[tokio::test]
async fn a_webhook_whose_name_is_not_found_has_done_nothing() {
    is_unavailable("http://webhook.invalid/", &[SOON], LONG).await;
}

#[tokio::test]
async fn a_webhook_that_answers_no_syn_has_done_nothing() {
    is_unavailable(&BlackHole::open().await.url(), &[SOON], LONG).await;
}

#[tokio::test]
async fn a_webhook_that_answers_no_syn_within_the_whole_timeout_has_done_nothing() {
    is_unavailable(&BlackHole::open().await.url(), &[("TARGET_TIMEOUT_MS", "300")], LONG).await;
}

#[tokio::test]
async fn a_webhook_that_answers_no_syn_before_the_invocation_ends_has_done_nothing() {
    is_unavailable(&BlackHole::open().await.url(), &[], Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_webhook_whose_tls_handshake_hangs_has_done_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    is_unavailable(&format!("https://{}/", silent.local_addr().unwrap()), &[SOON], LONG).await;
}

#[tokio::test]
async fn a_webhook_without_the_tls_of_its_address_has_done_nothing() {
    let plain = Webhook::start().await;
    is_unavailable(&plain.url().replace("http:", "https:"), &[], LONG).await;
    assert!(plain.calls().is_empty());
}

#[tokio::test]
async fn a_connection_is_kept_from_one_invocation_to_the_next() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for key in ["first", "second", "third"] {
        assert_eq!(function.answer(event([pay(key, key)])).await, NO_FAILURES);
    }
    assert_eq!(fixture.webhook.connections(), 1);
}

#[tokio::test]
async fn a_webhook_that_hung_up_while_the_function_was_frozen_is_called_as_if_nothing_happened() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for round in 0..5 {
        let (before, after) = (format!("before-{round}"), format!("after-{round}"));
        assert_eq!(function.answer(event([pay(&before, &before)])).await, NO_FAILURES);
        function.signal("-STOP");
        fixture.webhook.hang_up().await;
        let pending = function.begin(event([pay("m", &after)]), LONG);
        function.signal("-CONT");
        assert_eq!(pending.answer().await, NO_FAILURES);
        assert_eq!(fixture.webhook.calls_for(&after), 1);
        assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
    }
}

#[tokio::test]
async fn a_connection_that_was_idle_for_long_while_the_function_was_frozen_is_not_used_again() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("before", "before")])).await, NO_FAILURES);
    function.signal("-STOP");
    fixture.webhook.forget();
    sleep(Duration::from_millis(3200)).await;
    let pending = function.begin(event([pay("after", "after")]), LONG);
    function.signal("-CONT");
    assert_eq!(pending.answer().await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls_for("after"), 1);
    assert!(is_attempt(&fixture.webhook.last_call(), "1", None));
    assert_eq!(fixture.webhook.connections(), 2);
}

/// Where a whole machine is frozen, the clock that timeouts go by may stand still with it. Here it is tokio's own that
/// stands still.
#[tokio::test]
async fn a_connection_is_not_used_again_after_a_freeze_that_only_the_wall_clock_shows() {
    let receiver = Webhook::start().await;
    let settings = WebhookSettings::new(receiver.url().parse().unwrap());
    let webhook = webhook::Webhook::new(with!(settings, timeout = LONG, connect_timeout = LONG));
    // Its clock advances by itself where nothing runs.
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
    receiver.forget();
    std::thread::sleep(Duration::from_millis(1100));
    deliver("after").await;
    assert_eq!(receiver.connections(), 2);
    drop(awake);
    assert!(running.await.unwrap().is_err());
}

#[tokio::test]
async fn a_connection_that_is_reset_when_the_request_arrives_may_have_brought_it() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    assert_eq!(function.answer(event([pay("before", "before")])).await, NO_FAILURES);
    fixture.webhook.forget();
    assert_eq!(function.invoke(event([pay("pay_1", "pay_1")])).await, ["pay_1"]);
    assert_eq!(fixture.webhook.calls_for("pay_1"), 0);
    assert!(is_attempt(&next_call(&fixture, &function, "pay_1").await.unwrap(), "2", Some("true")));
}
