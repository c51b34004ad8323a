//! Clients repeat requests with few keys to services with the HTTP layer, on a real Redis whose connections break.
//! Every call of the stores is recorded. The verdict is by this history, by the effects of the handlers, and by the
//! answers of the clients.
//!
//! A short run is part of all tests; `make torture` runs a long one, by `TORTURE_SEEDS`, `TORTURE_MESSAGES` and
//! `TORTURE_FIRST_SEED`.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]

mod metrics;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use harness::front::Front;
use harness::redis::Redis;
use harness::torture::Length;
use harness::with;
use history::{Allowances, History, Outside, Report, Rng};
use http_history::{Seen, Tally, record_lines};
use idempotent_sqs::RedisSettings;
use tokio::time::sleep;

/// How long each run lasts for each message of the torture.
const PACE: Duration = Duration::from_millis(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_repeat_requests_get_the_response_of_the_one_run() {
    let Length { seeds, messages, first } = Length::from_env();
    record_lines();
    let server = Redis::start().await;
    let (mut report, mut faults) = (Report::default(), Vec::new());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for seed in first..first + seeds {
        let lasts = PACE * u32::try_from(messages).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (seen, outside) = contend(seed, &server, directory.path(), lasts, Tally::default()).await;
        fs::write(directory.path().join("outside.json"), serde_json::to_vec(&outside).unwrap()).unwrap();
        let history = History::read(directory.path()).unwrap();
        let verdict = Report::of_functions(&history, &outside, Allowances::REAL);
        let wrong: Vec<_> = verdict.faults().chain(seen.faults(&history)).collect();
        if !wrong.is_empty() {
            println!("seed {seed}: `check-history {}` repeats the verdict on the history", directory.keep().display());
        }
        faults.extend(wrong);
        report.add(verdict);
        for kind in seen.kinds() {
            *counts.entry(kind).or_default() += 1;
        }
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

/// Runs services and clients whose connections to this Redis break or are slow.
async fn contend(seed: u64, server: &Redis, directory: &Path, lasts: Duration, tally: Tally) -> (Seen, Outside) {
    let (rng, front) = (Rng::new(seed), Front::to(server.port()).await);
    let (url, namespace) =
        (format!("redis://127.0.0.1:{}", front.port), format!("http-{:08x}", getrandom::u32().unwrap()));
    let settings =
        |_| with!(RedisSettings::new(url.parse().unwrap(), &*namespace), timeout = Duration::from_millis(100));
    http_history::contend(rng, settings, async |rng| inject_fault(rng, &front).await, directory, lasts, Arc::new(tally))
        .await
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
