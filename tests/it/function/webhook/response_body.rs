//! The body of a 2xx response, which is the result.

use std::time::{Duration, Instant};

use redis::AsyncCommands;

use super::super::{Fixture, NO_FAILURES, pay};
use super::deliver_twice;
use harness::event::event;
use harness::http::{Answer, Webhook};
use harness::s3::S3;
use harness::with;
use idempotent_sqs::idempotency::Outcome;
use idempotent_sqs::sqs::Message;
use idempotent_sqs::webhook::{self, WebhookSettings};
use idempotent_sqs::{Delivery, Idempotency, Key, MemoryStore, Policy};

/// Whether the result in the record of this key contains this text.
async fn is_kept(fixture: &Fixture, key: &str, text: &str) -> bool {
    let record: Vec<u8> = fixture.redis.connection().await.get(format!("payments:{key}")).await.unwrap();
    assert!(!record.is_empty(), "{key}");
    record.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn the_body_of_a_2xx_is_the_result() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nrece\r\n6\r\nipt 17\r\n0\r\n\r\n";
    for (key, answer) in [
        ("length", Answer::with(201, &[], b"receipt 17")),
        ("chunked", Answer::Whole(chunked.into())),
        ("until-the-end", Answer::Cut("HTTP/1.0 200 OK\r\n\r\nreceipt 17".into())),
    ] {
        assert!(deliver_twice(&fixture, &function, key, answer).await.is_done(), "{key}");
        assert!(is_kept(&fixture, key, "receipt 17").await, "{key}");
    }
}

/// The tests enable decompression in `reqwest`, as another crate of a program may.
#[tokio::test]
async fn no_compressed_response_is_asked_for_and_its_bytes_are_kept_as_they_are() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let answer = Answer::with(200, &[("Content-Encoding", "gzip")], b"receipt 17");
    assert!(deliver_twice(&fixture, &function, "pay_1", answer).await.is_done());
    assert!(is_kept(&fixture, "pay_1", "receipt 17").await);
    assert_eq!(fixture.webhook.calls()[0].header("Accept-Encoding"), None);
}

#[tokio::test]
async fn a_2xx_with_hundreds_of_headers_is_done() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let headers = (0..900).map(|number| format!("X-{number}: a\r\n")).collect::<Vec<_>>().concat();
    let answer = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 7\r\n\r\nreceipt");
    assert!(deliver_twice(&fixture, &function, "many", Answer::Whole(answer.into())).await.is_done());
    assert!(is_kept(&fixture, "many", "receipt").await);
}

#[tokio::test]
async fn a_2xx_whose_body_is_incomplete_or_malformed_is_done_and_its_body_is_not_kept() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[("TARGET_TIMEOUT_MS", "500")]).await;
    let started = Instant::now();
    let (length, chunks) = ("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n");
    for (key, answer) in [
        ("cut", Answer::Cut(format!("{length}receipt").into())),
        ("cut-at-once", Answer::Cut(length.into())),
        ("cut-between-chunks", Answer::Cut(format!("HTTP/1.1 200 OK\r\n{chunks}7\r\nreceipt\r\n").into())),
        ("malformed-chunk", Answer::Whole(format!("HTTP/1.1 202 OK\r\n{chunks}7\r\nreceipt\r\nno\r\n").into())),
        ("stalled", Answer::Whole(format!("{length}receipt").into())),
        ("dripping", Answer::Dripping(format!("{length}receipt").into())),
    ] {
        let delivery = deliver_twice(&fixture, &function, key, answer).await;
        assert!(delivery.is_done(), "{key}: {delivery:?}");
        assert!(!is_kept(&fixture, key, "receipt").await, "{key}");
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    function.logs("the webhook's response is incomplete").await;
}

#[tokio::test]
async fn the_log_of_an_incomplete_answer_of_the_webhook_does_not_advise_to_check_the_rights_to_s3() {
    let (fixture, s3) = (Fixture::start().await, S3::start().await);
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nreceipt";
    fixture.webhook.respond_for("pay_1", Answer::Cut(cut.into()));
    let settings = [("RESULT_BUCKET", "results"), ("AWS_ENDPOINT_URL_S3", &*s3.url())];
    let function = fixture.function_with(&settings).await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    function.messages(1).await;
    let log = function.logs("a large result was not kept").await;
    assert!(log.iter().all(|line| !line.contains("s3:PutObject")), "{log:?}");
    assert!(s3.take_calls().is_empty());
}

#[tokio::test]
async fn a_2xx_is_done_even_if_the_invocation_ends_before_its_body() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let stalled = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nreceipt";
    fixture.webhook.respond_for("pay_1", Answer::Whole(stalled.into()));
    let timeout = Duration::from_secs(2);
    assert_eq!(function.begin(event([pay("m1", "pay_1")]), timeout).answer().await, NO_FAILURES);
    assert_eq!(function.answer(event([pay("m1", "pay_1").received(2)])).await, NO_FAILURES);
    assert_eq!(fixture.webhook.calls_for("pay_1"), 1);
}

#[tokio::test]
async fn a_response_of_5_mib_is_done_and_not_kept() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    for (key, size) in [("small", 4096), ("one-byte-too-large", 4097), ("large", 5 << 20)] {
        let answer = Answer::with(200, &[], "x".repeat(size).as_bytes());
        assert!(deliver_twice(&fixture, &function, key, answer).await.is_done(), "{key}");
        assert_eq!(is_kept(&fixture, key, &"x".repeat(4096)).await, key == "small", "{key}");
    }
}

#[tokio::test]
async fn a_response_too_large_to_keep_is_not_read_to_its_end() {
    let fixture = Fixture::start().await;
    let function = fixture.function().await;
    let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 5 << 20, "x".repeat(8192));
    let started = Instant::now();
    assert!(deliver_twice(&fixture, &function, "pay_1", Answer::Whole(start.into())).await.is_done());
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

/// The result that duplicates get, with these settings and this answer of the webhook.
async fn kept(response_max_bytes: usize, result_max_bytes: usize, answer: Answer) -> Option<Vec<u8>> {
    let receiver = Webhook::start().await;
    receiver.respond(answer);
    let settings = WebhookSettings::new(receiver.url().parse().unwrap());
    let work = webhook::Webhook::new(with!(settings, response_max_bytes = response_max_bytes));
    let policy = with!(Policy::default(), result_max_bytes = result_max_bytes);
    let idempotency = Idempotency::new(MemoryStore::default(), policy);
    let (delivery, message) = (Delivery::new(Key::new("pay_1").unwrap()), Message::new("m1", "{}"));
    let first = idempotency.run(&delivery, &work, &message).await.unwrap().outcome;
    assert!(matches!(first, Outcome::Done { .. }), "{first:?}");
    match idempotency.run(&delivery, &work, &message).await.unwrap().outcome {
        Outcome::Duplicate { result } => result,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_body_that_is_not_read_to_its_end_is_not_kept_whatever_the_limits() {
    for response_max_bytes in [0, 4097, usize::MAX] {
        for result_max_bytes in [0, 16 << 10, usize::MAX] {
            let cut = Answer::Cut("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nreceipt".into());
            let result = kept(response_max_bytes, result_max_bytes, cut).await;
            assert!(result.is_none(), "{response_max_bytes}, {result_max_bytes}");
        }
    }
    let large = Answer::with(200, &[], "x".repeat(5000).as_bytes());
    assert!(kept(4097, 16 << 10, large).await.is_none());
}
