//! A work that answers requests.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{Request, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use harness::with;
use harness::work::RecordingWork;
use idempotent_sqs::idempotency::{AcquireRequest, OwnRecord, RecordedAttempt};
use idempotent_sqs::{Claim, MemoryStore, Store, Work, WorkError};
use idempotent_sqs_http::{IdempotencyLayerBuilder, RequestOutcome, encode_response};
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tokio::time::{Instant, sleep};

use crate::api::*;

/// Does in its first run what the body of the request says, and then answers with the attempt.
struct Told(Runs);

impl Work<Request<Bytes>> for Told {
    async fn run(&self, claim: &Claim, request: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        let body = format!("run {} attempt {} {}", self.0.add(), claim.attempt(), claim.is_recovery());
        let response = Response::builder().status(201).header("location", "/1").header("set-cookie", "a=b").body(body);
        match &**request.body() {
            _ if self.0.count() > 1 => Ok(encode_response(&response.unwrap())),
            b"retryable" => Err(WorkError::retryable_after("later", Duration::from_secs(7))),
            b"busy" => Err(WorkError::busy("in use")),
            b"busy for a second" => Err(WorkError::busy_after("in use", Duration::from_secs(1))),
            b"uncertain" => Err(WorkError::uncertain("no answer")),
            b"permanent" => Err(WorkError::permanent("refused")),
            b"panic" => panic!("planned"),
            b"hang" => std::future::pending().await,
            b"503" => Ok(encode_response(&Response::builder().status(503).body("later").unwrap())),
            b"slow" => {
                sleep(Duration::from_secs(1)).await;
                Ok(encode_response(&response.unwrap()))
            }
            b"garbage" => Ok(b"not a response".to_vec()),
            _ => Ok(encode_response(&response.unwrap())),
        }
    }
}

fn told() -> (Router, Runs) {
    told_by(builder())
}

fn told_by<S: Store + 'static>(builder: IdempotencyLayerBuilder<S>) -> (Router, Runs) {
    let runs = Runs::default();
    let endpoint = builder.build().endpoint(Told(runs.clone()));
    (Router::new().fallback_service(endpoint), runs)
}

fn request(body: &'static str) -> Request<axum::body::Body> {
    Request::post("/").header("idempotency-key", "a").body(body.into()).unwrap()
}

#[tokio::test]
async fn the_first_and_each_later_request_get_the_response_of_the_work() {
    let (router, runs) = told();
    for replayed in [false, true, true] {
        let answer = send(&router, request("pay")).await;
        assert_eq!((answer.status, &*answer.body), (201, b"run 1 attempt 1 false".as_slice()));
        assert_eq!((answer.header("location"), answer.header("set-cookie")), (Some("/1"), None));
        assert_eq!((answer.is_replayed(), answer.header("idempotency-key")), (replayed, Some("a")));
    }
    assert_eq!(send(&router, request("other")).await.problem(), "mismatch");
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_error_of_the_work_has_its_answer_and_its_retry() {
    let cases = [
        ("retryable", 503, "unavailable", Some("7"), "run 2 attempt 2 false"),
        ("busy", 503, "unavailable", Some("1"), "run 2 attempt 1 false"),
        ("uncertain", 500, "failed", None, "run 2 attempt 2 true"),
        ("panic", 500, "failed", None, "run 2 attempt 2 true"),
        ("hang", 504, "deadline", None, "run 2 attempt 2 true"),
    ];
    for (body, status, problem, retry_after, again) in cases {
        let (router, _) = told();
        let failed = send(&router, request(body)).await;
        assert_eq!((failed.status, &*failed.problem(), failed.header("retry-after")), (status, problem, retry_after));
        assert_eq!(send(&router, request(body)).await.body, again, "{body}");
    }
}

#[tokio::test]
async fn a_permanent_error_is_not_tried_again() {
    let (router, runs) = told();
    for _ in 0..2 {
        let failed = send(&router, request("permanent")).await;
        assert_eq!((failed.status, &*failed.problem(), runs.count()), (500, "failed-before", 1));
    }
}

#[tokio::test]
async fn a_request_that_fails_for_good_is_reported_as_one_that_ran_and_its_retries_as_failed_before() {
    for error in [WorkError::permanent("refused"), WorkError::retryable("no")] {
        let (router, outcomes) = failing([error]);
        let answers = [send(&router, request("pay")).await, send(&router, request("pay")).await];
        assert!(answers.iter().all(|answer| answer.status == 500 && answer.problem() == "failed-before"));
        let is_doubtful = |answer: &Answer| str::from_utf8(&answer.body).unwrap().contains("may have taken effect");
        assert_eq!(answers.each_ref().map(is_doubtful), [false, true]);
        let names: Vec<_> = outcomes.lock().unwrap().iter().map(|outcome| outcome.as_str()).collect();
        assert_eq!(names, ["FAILED_PERMANENTLY", "FAILED_BEFORE"]);
    }
}

/// A work whose runs fail with these errors, one after the other.
struct Fails(Mutex<VecDeque<WorkError>>);

impl Work<Request<Bytes>> for Fails {
    async fn run(&self, _: &Claim, _: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        Err(self.0.lock().unwrap().pop_front().expect("a planned error"))
    }
}

/// An endpoint that fails with these errors, with one attempt for each, and the outcomes that it reports.
fn failing<const N: usize>(errors: [WorkError; N]) -> (Router, Arc<Mutex<Vec<RequestOutcome>>>) {
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&outcomes);
    let max_attempts = u8::try_from(N).unwrap();
    let policy = with!(IdempotencyLayerBuilder::<MemoryStore>::default_policy(), max_attempts = max_attempts);
    let builder = builder().policy(policy).report(move |report| reported.lock().unwrap().push(report.outcome));
    (Router::new().fallback_service(builder.build().endpoint(Fails(Mutex::new(errors.into())))), outcomes)
}

#[tokio::test]
async fn a_retryable_error_of_a_recovery_is_answered_with_503_as_one_of_a_first_run_is() {
    let later = || WorkError::retryable_after("later", Duration::from_secs(7));
    let (router, outcomes) = failing([WorkError::uncertain("no answer"), later(), later()]);
    assert_eq!(send(&router, request("pay")).await.problem(), "failed");
    let answer = send(&router, request("pay")).await;
    assert_eq!((answer.status, &*answer.problem(), answer.header("retry-after")), (503, "unavailable", Some("7")));
    assert!(str::from_utf8(&answer.body).unwrap().contains("an earlier one with this key may have had one"));
    assert_eq!(*outcomes.lock().unwrap(), [RequestOutcome::Uncertain, RequestOutcome::Released]);
}

#[tokio::test]
async fn a_retryable_error_of_the_last_attempt_is_answered_as_its_retries_are() {
    for errors in [
        [WorkError::retryable("no"), WorkError::retryable("no")],
        [WorkError::uncertain("no answer"), WorkError::retryable("no")],
    ] {
        let (router, outcomes) = failing(errors);
        send(&router, request("pay")).await;
        for _ in 0..2 {
            assert_eq!(send(&router, request("pay")).await.problem(), "failed-before");
        }
        assert_eq!(outcomes.lock().unwrap()[1..], [RequestOutcome::FailedPermanently, RequestOutcome::FailedBefore]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_comes_after_the_lease_if_the_release_of_a_work_without_effect_is_not_recorded() {
    for body in ["busy", "busy for a second"] {
        let store = Arc::new(FaultyStore::new(MemoryStore::default()));
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let reported = Arc::clone(&outcomes);
        let layer = builder_on(Arc::clone(&store)).report(move |report| reported.lock().unwrap().push(report.outcome));
        let (router, _) = told_by(layer.timeout(Duration::from_secs(20)));
        store.always(StoreCall::Settle, Some(Fault::Refused));
        let started = Instant::now();
        let answer = send(&router, request(body)).await;
        assert_eq!((answer.status, &*answer.problem()), (503, "unavailable"));
        store.always(StoreCall::Settle, None);
        let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(started.elapsed().as_secs() + after, 21, "the lease is a second longer than the time");
        sleep(Duration::from_secs(after - 1)).await;
        assert_eq!(send(&router, request(body)).await.problem(), "in-flight");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(&*send(&router, request(body)).await.body, b"run 2 attempt 2 true");
        let expected = [RequestOutcome::NotRecorded, RequestOutcome::InFlight, RequestOutcome::Completed];
        assert_eq!(*outcomes.lock().unwrap(), expected);
    }
}

#[tokio::test]
async fn a_result_that_is_not_a_response_is_not_replayed() {
    let (router, runs) = told();
    send(&router, request("garbage")).await;
    assert_eq!((&*send(&router, request("garbage")).await.problem(), runs.count()), ("response-not-kept", 1));
}

#[tokio::test]
async fn a_request_without_a_valid_key_is_rejected() {
    let (router, runs) = told();
    let no_key = Request::get("/").body(axum::body::Body::empty()).unwrap();
    assert_eq!(send(&router, no_key).await.problem(), "key-missing");
    assert_eq!(send(&router, post("\"")).await.problem(), "key-malformed");
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_503_of_a_work_is_passed_on_and_released() {
    let (router, runs) = told();
    let answer = send(&router, request("503")).await;
    assert_eq!((answer.status, &*answer.body), (503, b"later".as_slice()));
    assert_eq!(&*send(&router, request("503")).await.body, b"run 2 attempt 1 false");
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_waits_and_drops_headers_as_set() {
    let (router, runs) = told_by(builder().wait(Duration::from_secs(5)).drop_header("location".parse().unwrap()));
    let (one, two) = tokio::join!(send(&router, request("slow")), send(&router, request("slow")));
    assert_eq!((one.status, two.status, runs.count()), (201, 201, 1));
    assert_eq!((one.header("location"), two.header("location")), (Some("/1"), None));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_answers_503_soon_while_the_store_hangs_and_nothing_runs_later() {
    let store = Arc::new(FaultyStore::new(MemoryStore::default()));
    store.next(StoreCall::Acquire, Fault::Unreachable);
    let (router, runs) = told_by(builder_on(Arc::clone(&store)));
    let started = Instant::now();
    let answer = send(&router, request("pay")).await;
    assert_eq!((&*answer.problem(), started.elapsed().as_secs()), ("store-unavailable", 2));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(runs.count(), 0);
    assert_eq!(send(&router, request("pay")).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_response_of_a_work_that_cannot_be_recorded_reaches_its_client_and_the_retry_is_told() {
    let store = Arc::new(FaultyStore::new(MemoryStore::default()));
    let (router, _) = told_by(builder_on(Arc::clone(&store)));
    store.always(StoreCall::Settle, Some(Fault::Refused));
    assert_eq!(send(&router, request("pay")).await.body, "run 1 attempt 1 false");
    store.always(StoreCall::Settle, None);
    sleep(Duration::from_secs(31)).await;
    assert_eq!(send(&router, request("pay")).await.body, "run 2 attempt 2 true");
}

#[tokio::test]
async fn an_endpoint_inside_a_layer_is_an_error_and_not_a_conflict_with_itself() {
    let layer = builder().build();
    let runs = Runs::default();
    let router = Router::new().fallback_service(layer.endpoint(Told(runs.clone()))).layer(layer);
    assert_eq!(send(&router, request("pay")).await.problem(), "failed");
    assert_eq!(runs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_only_the_inbox_knows_to_be_running_gets_409_at_once() {
    for wait in [0, 5] {
        let busy = RecordingWork::always(|| Ok(RecordedAttempt::Busy { after: Duration::from_secs(3) }));
        let endpoint = builder().wait(Duration::from_secs(wait)).build().endpoint(busy);
        let answer = send(&Router::new().fallback_service(endpoint), request("pay")).await;
        assert_eq!((answer.status, answer.header("retry-after")), (409, Some("3")), "{wait}");
    }
}

#[tokio::test]
async fn a_key_of_another_request_in_the_inbox_is_answered_with_422_each_time() {
    let work = RecordingWork::always(|| Ok(RecordedAttempt::Mismatch));
    let router = Router::new().fallback_service(builder().build().endpoint(work));
    for _ in 0..15 {
        let answer = send(&router, request("pay")).await;
        assert_eq!((answer.status, &*answer.problem()), (422, "mismatch"));
    }
}

#[tokio::test]
async fn a_retry_gets_a_response_from_the_inbox_that_the_store_did_not_keep() {
    let response = encode_response(&Response::builder().status(201).body(vec![b'x'; 100_000]).unwrap());
    let work = RecordingWork::new([Ok(RecordedAttempt::Done(response.clone()))]);
    work.set_record(Ok(Some(response)));
    let router = Router::new().fallback_service(builder().build().endpoint(work));
    for replayed in [false, true] {
        let answer = send(&router, request("pay")).await;
        assert_eq!((answer.status, answer.body.len(), answer.is_replayed()), (201, 100_000, replayed));
    }
}

/// Recovers with a response that has the mark of another service's replay.
struct Recovers;

impl Work<Request<Bytes>> for Recovers {
    async fn run(&self, _: &Claim, _: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        Err(WorkError::uncertain("no answer"))
    }

    async fn recover(&self, _: &Claim, _: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        let response = Response::builder().header("idempotent-replayed", "true").body("recovered");
        Ok(encode_response(&response.unwrap()))
    }
}

#[tokio::test]
async fn a_work_recovers_after_a_run_that_may_have_taken_effect() {
    let router = Router::new().fallback_service(builder().build().endpoint(Recovers));
    assert_eq!(send(&router, request("pay")).await.problem(), "failed");
    for replayed in [false, true] {
        let answer = send(&router, request("pay")).await;
        assert_eq!((&*answer.body, answer.is_replayed()), (b"recovered".as_slice(), replayed));
    }
}

/// Fails permanently. Its own record, which then has a response, is read in this time.
struct ReadSlowly(Duration);

impl Work<Request<Bytes>> for ReadSlowly {
    async fn run(&self, _: &Claim, _: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        unreachable!("the core calls attempt")
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<Request<Bytes>>> {
        Some(self)
    }
}

impl OwnRecord<Request<Bytes>> for ReadSlowly {
    fn attempt<'a>(&'a self, _: &'a Claim, _: &'a Request<Bytes>) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(ready(Err(WorkError::permanent("refused"))))
    }

    fn recorded<'a>(&'a self, _: &'a AcquireRequest, _: Instant) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(async {
            sleep(self.0).await;
            Ok(Some(encode_response(&Response::builder().status(201).body("paid").unwrap())))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_of_the_work_that_is_read_slowly_is_no_outage_of_the_store() {
    for (seconds, answered, outcome) in [(3, 201, RequestOutcome::Replayed), (9, 503, RequestOutcome::Released)] {
        for spawn in [true, false] {
            let outcomes = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&outcomes);
            let layer = builder().spawn(spawn).report(move |report| seen.lock().unwrap().push(report.outcome)).build();
            let router = Router::new().fallback_service(layer.endpoint(ReadSlowly(Duration::from_secs(seconds))));
            assert_eq!(send(&router, request("pay")).await.problem(), "failed-before");
            let started = Instant::now();
            let answer = send(&router, request("pay")).await;
            assert_eq!((answer.status, started.elapsed().as_secs()), (answered, seconds.min(5)));
            assert_eq!(outcomes.lock().unwrap()[1..], [outcome]);
        }
    }
}
