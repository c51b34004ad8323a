//! The span and the log line of a request.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use idempotent_sqs_http::RequestOutcome;
use tracing::instrument::WithSubscriber;
use tracing_subscriber::fmt::MakeWriter;

use crate::api::*;

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn each_request_has_one_line_without_payload_query_or_principal() {
    let log = Log::default();
    // For all threads: whether a line is logged at all is remembered for the process. Other tests have other paths.
    tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).init();
    let record_key = Arc::new(Mutex::new(String::new()));
    let seen_key = Arc::clone(&record_key);
    let router = router(builder().build(), move |seen| {
        *seen_key.lock().unwrap() = seen.attempt.unwrap().key.as_str().to_owned();
        async { Response::new(Body::from("secret-response")) }
    });
    let request = |key: &str| {
        let request = Request::post("/logged?secret-query=1").header("idempotency-key", key);
        request.header("authorization", "Bearer secret-token").body(Body::from("secret-request")).unwrap()
    };
    for key in ["pay_1", "pay_1", "\""] {
        send(&router, request(key)).await;
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("/logged")).collect();
    assert_eq!(lines.len(), 3, "{log}");
    for (line, outcome) in lines.iter().zip(["COMPLETED", "REPLAYED", "REJECTED"]) {
        assert!(line.contains("http.request.method=POST url.path=\"/logged\"") && line.contains(outcome), "{line}");
    }
    assert!(lines[0].contains("idempotency.key=\"pay_1\"") && lines[0].contains("idempotency.attempt=1"), "{log}");
    assert!(lines[..2].iter().all(|line| line.contains("idempotency.fence=")), "{log}");
    let record_key = format!("idempotency.record_key={:?}", record_key.lock().unwrap());
    assert!(record_key.ends_with(":pay_1\"") && lines[..2].iter().all(|line| line.contains(&record_key)), "{log}");
    assert!(lines.iter().all(|line| !line.contains("otel.status_code")), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

#[tokio::test]
async fn the_span_of_a_5xx_is_an_error() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let router = router(builder().spawn(false).build(), async |_| response(StatusCode::SERVICE_UNAVAILABLE, ""));
    let request = Request::post("/unavailable").header("idempotency-key", "a").body(Body::empty()).unwrap();
    send(&router, request).with_subscriber(subscriber).await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        log.lines().any(|line| line.contains("/unavailable") && line.contains("otel.status_code=\"error\"")),
        "{log}"
    );
}

#[test]
fn the_metric_of_an_outcome_has_the_words_of_its_name_in_logs() {
    let outcomes = [
        RequestOutcome::Completed,
        RequestOutcome::NotRecorded,
        RequestOutcome::Released,
        RequestOutcome::Uncertain,
        RequestOutcome::Replayed,
        RequestOutcome::InFlight,
        RequestOutcome::Mismatch,
        RequestOutcome::ResponseNotKept,
        RequestOutcome::FailedPermanently,
        RequestOutcome::FailedBefore,
        RequestOutcome::NotStarted,
        RequestOutcome::StoreUnavailable,
        RequestOutcome::Unprotected,
        RequestOutcome::Rejected,
    ];
    for outcome in outcomes {
        let words: Vec<_> = outcome.as_str().split('_').collect();
        let metric = words.iter().fold(String::new(), |text, word| text + &word[..1] + &word[1..].to_lowercase());
        assert_eq!((outcome.metric(), format!("{outcome:?}")), (&*metric, metric.clone()));
    }
}
