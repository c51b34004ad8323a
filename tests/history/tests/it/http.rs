//! Clients repeat requests with few keys to services with the HTTP layer, on a real Redis whose connections break. Every call
//! of the stores is recorded. The verdict is by this history, by the effects of the handlers, and by the answers of the
//! clients.
//!
//! A short run is part of all tests; `make torture` runs a long one, by `TORTURE_SEEDS`, `TORTURE_MESSAGES` and
//! `TORTURE_FIRST_SEED`.

mod answer;
mod body;
mod clients;
mod hand_made;
mod handler;
mod kind;
mod logs;
mod metrics;
mod objects;
mod reported;
mod request;
mod response;
mod runs;
mod service;
mod store;
mod tally;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use harness::front::Front;
use harness::redis::Redis;
use harness::soon;
use harness::torture::Length;
use harness::torture::tally::lock;
use history::{Allowances, History, Outside, Report, Rng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use answer::Answer;
use clients::Requests;
use kind::{KINDS, LAST};
use service::Service;
use tally::Tally;
use verdict::Seen;

const CLIENTS: usize = 12;

/// How long each run lasts for each message of the torture.
const PACE: Duration = Duration::from_millis(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_repeat_requests_get_the_response_of_the_one_run() {
    let Length { seeds, messages, first } = Length::from_env();
    logs::record();
    let server = Redis::start().await;
    let (mut report, mut counts, mut faults) = (Report::default(), BTreeMap::new(), Vec::new());
    for seed in first..first + seeds {
        let lasts = PACE * u32::try_from(messages).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let tally = Arc::new(Tally::default());
        let (seen, outside) = contend(seed, &server, directory.path(), lasts, tally).await;
        fs::write(directory.path().join("outside.json"), serde_json::to_vec(&outside).unwrap()).unwrap();
        let history = History::read(directory.path()).unwrap();
        let verdict = Report::of_functions(&history, &outside, Allowances::REAL);
        let wrong: Vec<_> = verdict.faults().chain(seen.faults(&history)).collect();
        if !wrong.is_empty() {
            println!("seed {seed}: `check-history {}` repeats the verdict on the history", directory.keep().display());
        }
        faults.extend(wrong);
        report.add(verdict);
        count(&seen, &mut counts);
    }
    println!("{report}\nanswers\n{counts:#?}");
    assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
    for kind in [
        "not awaited",
        "replayed",
        "replayed without its body",
        "201",
        "in-flight",
        "mismatch",
        "failed",
        "key-malformed",
    ] {
        assert!(counts.contains_key(kind), "no answer was {kind}");
    }
    assert!(report.steps > 100 && report.repeated > 0, "too little happened");
}

/// Runs services and clients with faults on this Redis, and then without, until each key has a response that is kept.
async fn contend(
    seed: u64,
    server: &Redis,
    directory: &std::path::Path,
    lasts: Duration,
    tally: Arc<Tally>,
) -> (Seen, Outside) {
    let (mut rng, front) = (Rng::new(seed), Front::to(server.port()).await);
    let (url, namespace) =
        (format!("redis://127.0.0.1:{}", front.port), format!("http-{:08x}", getrandom::u32().unwrap()));
    let (requests, begun) = (Arc::new(Requests::default()), Instant::now());
    let service = |kind| Service::new(kind, (&url, &namespace), directory, &tally);
    let services = Arc::new(KINDS.map(service));
    let watch = tokio::spawn(Arc::clone(&tally).watch_machine());
    let mut clients = JoinSet::new();
    for rng in [(); CLIENTS].map(|()| rng.fork()) {
        let (requests, services) = (Arc::clone(&requests), Arc::clone(&services));
        clients.spawn(async move { requests.contend(rng, &*services, begun, lasts).await });
    }
    while begun.elapsed() < lasts {
        sleep(rng.ms(10..40)).await;
        inject_fault(&mut rng, &front).await;
    }
    soon(clients.join_all()).await;
    for service in &*services {
        soon(service.layer.drained()).await;
    }
    assert!(
        lock(&tally.runs).iter().all(|run| run.over_at.is_some()),
        "a handler runs after all services were drained"
    );
    let last = Arc::new(service(LAST));
    let mut clients = JoinSet::new();
    for identities in requests.identities() {
        let (requests, last, rng) = (Arc::clone(&requests), Arc::clone(&last), rng.fork());
        clients.spawn(async move { requests.finish(rng, &last, &identities).await });
    }
    let is_finished = soon(clients.join_all()).await.into_iter().all(|is_finished| is_finished);
    let sent = Arc::into_inner(requests).unwrap().sent();
    let (runs, effects) = (mem::take(&mut *lock(&tally.runs)), mem::take(&mut *lock(&tally.effects)));
    soon(last.layer.drained()).await;
    let (reports, lines) = (mem::take(&mut *lock(&tally.reports)), logs::take());
    let (asked, unprotected) = (mem::take(&mut *lock(&tally.asked)), mem::take(&mut *lock(&tally.unprotected)));
    let read = mem::take(&mut *lock(&tally.objects.read));
    watch.abort();
    let late = *lock(&tally.late);
    // A client that got the response of done work does not repeat its request.
    let is_done = |number: usize| {
        sent.iter()
            .any(|sent| matches!(sent.answer(), Some(Answer::Receipt { request, reply, .. }) if *request == number && reply.status == 201))
    };
    let done = runs.iter().filter(|run| is_done(run.plan.request)).map(|run| run.key.clone());
    let outside = Outside { deleted: done.collect(), effects, ..Outside::default() };
    (Seen { sent, runs, unprotected, reports, lines, asked, read, late, is_finished }, outside)
}

/// Breaks or delays the connections to Redis.
async fn inject_fault(rng: &mut Rng, front: &Front) {
    match rng.draw(0..4) {
        0 => front.cut(),
        1 => {
            front.drop_replies(true);
            sleep(rng.ms(10..50)).await;
            front.cut();
            front.drop_replies(false);
        }
        2 => {
            front.drop_requests(true);
            sleep(rng.ms(10..50)).await;
            front.cut();
            front.drop_requests(false);
        }
        _ => {
            front.delay_replies(rng.ms(5..110));
            sleep(rng.ms(20..60)).await;
            front.delay_replies(Duration::ZERO);
        }
    }
}

/// Counts the answers of each kind.
fn count(seen: &Seen, counts: &mut BTreeMap<String, usize>) {
    for sent in &seen.sent {
        let kind = sent.answer().map_or_else(|| "not awaited".to_owned(), Answer::name);
        *counts.entry(kind).or_default() += 1;
    }
}
