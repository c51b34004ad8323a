use std::time::{Duration, Instant};

use super::super::{NO_FAILURES, Stage, pay};
use super::{is_attempt, told};
use crate::support::event::event;
use crate::support::http::{Answer, TOKEN};

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
async fn a_webhook_whose_answer_has_no_readable_head_may_have_done_it() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    for (key, answer) in [
        ("cut", "HTTP/1.1 200 OK\r\nContent-Le"),
        ("no-length", "HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n0123456789"),
        ("two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Length: 9\r\n\r\n0123456789"),
        ("another-language", "SSH-2.0-OpenSSH_9.7\r\n"),
    ] {
        let told = told(&stage, &function, key, Answer::Cut(answer.into())).await;
        assert!(told.is_uncertain(), "{key}: {told:?}");
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
    assert!(is_attempt(&stage.webhook.last_call(), "1", None));
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
