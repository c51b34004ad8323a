//! Requests over HTTP that run in tasks of their own, as docs/http.md describes: their clients disconnect, the store
//! replies late or not at all, and the row of a request is read slowly.
//!
//! - `outage`: the store goes away while a request runs
//! - `service`: the store, and what answers the requests

mod outage;
mod service;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use history::Rng;
use http::Response;
use http_body_util::Full;
use idempotent_sqs::MemoryStore;
use idempotent_sqs_http::{IdempotencyLayer, Principal, StoreOutage};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};

use crate::lock;
use crate::own_records::HttpAnswer;
use service::{Handler, Late, REJECTED, request};

/// Number of requests of a seed, and of those that wait for another one.
const REQUESTS: usize = 30;
const WAITS: usize = 3;

/// Number of requests whose store goes away meanwhile, of each kind.
const OUTAGES: usize = 15;

/// Defaults of `store_timeout` and `timeout`.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(30);

/// The time of a run without the second that is reserved for the record, and how long a row is read.
const WORK_TIME: Duration = Duration::from_secs(29);
const READ: Duration = Duration::from_secs(5);

/// A request that waits sees the end of the other one as late as this.
const WAIT_STEP: Duration = Duration::from_millis(60);

/// Two times that differ by less count as equal.
const TOLERANCE: Duration = Duration::from_millis(10);

/// When the store replies to the acquire of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// It executes the acquire at once, and replies after this time.
    Late(Duration),
    /// It executes the acquire after this time.
    Slow(Duration),
    Unavailable(Duration),
    Never,
}

/// What the key was used for before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    SameRequest,
    OtherRequest,
    /// The work failed permanently. Only works of endpoints do.
    Failure,
}

/// What is chosen for a request.
#[derive(Clone, Copy, Debug)]
struct Case {
    before: Before,
    reply: Reply,
    /// Whether it is answered by a work with its own record, and not by a handler in a layer.
    is_endpoint: bool,
    runs_unprotected: bool,
    /// How long the handler runs.
    takes: Duration,
    /// How long its row is read.
    reads: Duration,
    /// Whether the row shows that it is done.
    has_row: bool,
    /// When its client disconnects.
    leaves: Option<Duration>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
struct Answered {
    status: u16,
    /// The type of the problem.
    problem: Option<String>,
    is_replayed: bool,
    at: Duration,
}

/// When the handler began and ended each time. All times are since the request.
type Runs = Vec<(Duration, Option<Duration>)>;

/// What a request must show.
#[derive(Debug)]
struct Shown {
    /// `None` if its client disconnected before.
    answer: Option<Answered>,
    runs: Runs,
    /// The earliest and the latest time at which nothing runs for the request any more.
    drained: [Duration; 2],
    /// Whether a retry after that runs.
    retry_runs: bool,
}

/// What is wrong with the requests of this seed.
pub async fn disconnect_clients(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0xd15c);
    let mut wrong = Vec::new();
    for _ in 0..WAITS {
        wrong.extend(wrong_wait(rng).await);
    }
    for _ in 0..REQUESTS {
        let case = Case::choose(rng);
        let (shown, expected) = (Box::pin(case.send()).await, case.expected());
        if !shown.is_like(&expected) {
            wrong.push(format!("{case:?}: {shown:?}, not {expected:?}"));
        }
    }
    let rng = &mut Rng::new(seed ^ 0x0a7e);
    for _ in 0..OUTAGES {
        wrong.extend(outage::wrong_wait_without_store(rng).await);
        wrong.extend(outage::wrong_retry_after(rng).await);
    }
    wrong
}

impl Case {
    fn choose(rng: &mut Rng) -> Self {
        let is_endpoint = rng.happens(600);
        let befores = [Before::Nothing, Before::Nothing, Before::SameRequest, Before::OtherRequest, Before::Failure];
        let before = *rng.pick(if is_endpoint { &befores } else { &befores[..4] });
        let after = if rng.happens(300) { rng.ms(2100..9000) } else { rng.ms(0..1900) };
        let reply = match rng.draw(0..8) {
            0..3 => Reply::Late(after),
            3..5 => Reply::Slow(after),
            5..7 => Reply::Unavailable(after),
            _ => Reply::Never,
        };
        let mut case = Self {
            before,
            reply,
            is_endpoint,
            runs_unprotected: rng.happens(500),
            takes: rng.ms(0..9000),
            reads: if rng.happens(200) { READ + rng.ms(100..3000) } else { rng.ms(0..4900) },
            has_row: rng.happens(700),
            leaves: None,
        };
        // Some leave before the task has begun.
        let leaves = if rng.happens(150) { Duration::ZERO } else { rng.ms(0..9000) };
        let answered = case.expected().answer.map(|answer| answer.at);
        // Else it is not known whether there is an answer.
        let is_clear = [answered, Some(STORE_TIMEOUT)].iter().flatten().all(|at| at.abs_diff(leaves) > TOLERANCE);
        case.leaves = (rng.happens(500) && is_clear).then_some(leaves);
        case
    }

    /// When the store has replied to the acquire, and whether with an answer.
    fn replied(&self) -> (Duration, bool) {
        match self.reply {
            Reply::Late(after) | Reply::Slow(after) => (after, true),
            Reply::Unavailable(after) => (after, false),
            Reply::Never => (Duration::MAX, false),
        }
    }

    /// What docs/http.md says.
    fn expected(&self) -> Shown {
        let (replied, has_answer) = self.replied();
        // After its client has disconnected, a request waits for the store until the end of its time.
        let waits = if self.leaves.is_some_and(|leaves| leaves < STORE_TIMEOUT) { WORK_TIME } else { STORE_TIMEOUT };
        let is_in_time = replied < waits;
        let answer = |status: u16, problem: Option<&str>, is_replayed, at| {
            let answer = Answered { status, problem: problem.map(str::to_owned), is_replayed, at };
            Some(answer).filter(|_| self.leaves.is_none_or(|leaves| at < leaves))
        };
        let ran = |from: Duration| vec![(from, Some(from + self.takes))];
        let reads_row = self.is_endpoint && matches!(self.before, Before::OtherRequest | Before::Failure);
        let (read_ends, is_read) = (replied.saturating_add(self.reads.min(READ)), self.reads < READ);
        let ends = if self.reply == Reply::Never { waits } else { replied };
        let (answer, runs, drained) = if !is_in_time || !has_answer {
            let from = replied.min(waits);
            if self.runs_unprotected && !self.is_endpoint {
                let ended = from + self.takes;
                (answer(201, None, false, ended), ran(from), ended.max(ends))
            } else {
                let ends = if reads_row && has_answer { read_ends } else { ends };
                (answer(503, Some("store-unavailable"), false, from), Vec::new(), ends.max(from))
            }
        } else if reads_row {
            let answer = match self.before {
                _ if !is_read => answer(503, Some("unavailable"), false, read_ends),
                _ if self.has_row => answer(201, None, true, read_ends),
                Before::Failure => answer(500, Some("failed-before"), false, read_ends),
                _ => answer(422, Some("mismatch"), false, read_ends),
            };
            (answer, Vec::new(), read_ends)
        } else {
            match self.before {
                Before::SameRequest => (answer(201, None, true, replied), Vec::new(), replied),
                Before::OtherRequest => (answer(422, Some("mismatch"), false, replied), Vec::new(), replied),
                _ => {
                    let ended = replied + self.takes;
                    (answer(201, None, false, ended), ran(replied), ended)
                }
            }
        };
        // A key that was not used before is free again, unless the request ran under it.
        let retry_runs = self.before == Before::Nothing && !(is_in_time && has_answer);
        // A reply is not waited for beyond the time of the run.
        let drained = [drained, if self.reply == Reply::Never { TIMEOUT.max(drained) } else { drained }];
        Shown { answer, runs, drained, retry_runs }
    }

    async fn send(self) -> Shown {
        let store =
            Arc::new(Late { reply: self.reply, records: MemoryStore::default(), is_armed: AtomicBool::new(false) });
        let outage = if self.runs_unprotected { StoreOutage::RunUnprotected } else { StoreOutage::Reject };
        let layer =
            IdempotencyLayer::builder(Arc::clone(&store), |_| Some(Principal::GLOBAL)).store_outage(outage).build();
        let runs = Arc::new(Mutex::new(Vec::new()));
        let handler = Handler { case: self, begun: Instant::now(), runs: Arc::clone(&runs) };
        match self.before {
            Before::Nothing => {}
            Before::SameRequest => drop(handler.answer(&layer, "a payment").await),
            Before::OtherRequest => drop(handler.answer(&layer, "another payment").await),
            Before::Failure => drop(handler.answer(&layer, REJECTED).await),
        }
        lock(&runs).clear();
        store.is_armed.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        let handler = Handler { begun, ..handler };
        let body = if self.before == Before::Failure { REJECTED } else { "a payment" };
        let request = async {
            let HttpAnswer { status, problem, is_replayed, .. } = handler.answer(&layer, body).await;
            Answered { status, problem, is_replayed, at: begun.elapsed() }
        };
        let answer = match self.leaves {
            Some(leaves) => timeout(leaves, request).await.ok(),
            None => Some(request.await),
        };
        layer.drained().await;
        let (drained, shown) = (begun.elapsed(), lock(&runs).clone());
        handler.answer(&layer, body).await;
        let retry_runs = lock(&runs).len() > shown.len();
        Shown { answer, runs: shown, drained: [drained; 2], retry_runs }
    }
}

/// What is wrong with a request that waits for another one, which is answered 503 and so may be repeated: it has all of
/// the time of a run.
async fn wrong_wait(rng: &mut Rng) -> Option<String> {
    let (other, takes) = (rng.ms(100..27_000), rng.ms(0..27_000));
    let layer = IdempotencyLayer::builder(MemoryStore::default(), |_| Some(Principal::GLOBAL));
    let layer = layer.wait(Duration::from_secs(28)).build();
    let calls = Arc::new(Mutex::new(0));
    let service = layer.layer(service_fn(move |_| {
        let mut calls = lock(&calls);
        *calls += 1;
        let (takes, status) = [(other, 503), (takes, 201)][usize::from(*calls > 1)];
        async move {
            sleep(takes).await;
            let response = Response::builder().status(status).body(Full::new(Bytes::new()));
            Ok::<_, Infallible>(response.expect("it is a valid response"))
        }
    }));
    let begun = Instant::now();
    let send = || async {
        let Ok(response) = service.clone().oneshot(request("a payment")).await;
        (response.status().as_u16(), begun.elapsed())
    };
    let ((first, _), (second, ended)) = join(send(), send()).await;
    let is_right = (first, second) == (503, 201) && (other + takes..=other + takes + WAIT_STEP).contains(&ended);
    (!is_right).then(|| format!("answers {first} and {second} after {ended:?}, not 201 after {other:?} and {takes:?}"))
}

impl Shown {
    /// Whether these are equal but for some milliseconds.
    fn is_like(&self, other: &Self) -> bool {
        let is_near = |a: Duration, b: Duration| a.abs_diff(b) < TOLERANCE;
        let is_answer = match (&self.answer, &other.answer) {
            (None, None) => true,
            (Some(answer), Some(expected)) => {
                is_near(answer.at, expected.at) && *answer == Answered { at: answer.at, ..expected.clone() }
            }
            _ => false,
        };
        let is_run = |((begun, ended), (other_begun, other_ended)): (&(_, Option<_>), &(_, Option<_>))| {
            is_near(*begun, *other_begun) && ended.zip(*other_ended).is_some_and(|(a, b)| is_near(a, b))
        };
        is_answer
            && self.runs.len() == other.runs.len()
            && self.runs.iter().zip(&other.runs).all(is_run)
            && self.drained[0] + TOLERANCE >= other.drained[0]
            && self.drained[1] <= other.drained[1] + TOLERANCE
            && self.retry_runs == other.retry_runs
    }
}
