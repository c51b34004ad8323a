//! Owners contend on a real Redis, with and without faults.

use std::path::Path;
use std::time::Duration;

use harness::torture::faults::{self, Pair};
use harness::torture::tally::Tally;
use history::{Allowances, History, RecordedStore, Report, Rng};
use idempotent_sqs::{RedisSettings, RedisStore};
use tokio::time::{Instant, sleep};

const CLIENTS: usize = 4;

/// Contends on the Redis at `url`, and records the calls of each client in a file in this directory.
pub(crate) async fn contend(seed: u64, url: &str, directory: &Path, lasts: Duration) {
    // Each run has its own records.
    let namespace = format!("contention-{:08x}", getrandom::u32().unwrap());
    let client = |()| {
        let mut settings = RedisSettings::new(url.parse().unwrap(), &*namespace);
        settings.timeout = Duration::from_millis(300);
        RecordedStore::new(RedisStore::new(&settings).unwrap(), directory).unwrap()
    };
    history::contend(Rng::new(seed), [(); CLIENTS].map(client).into(), lasts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_of_contending_owners_is_that_of_the_state_machine() {
    let mut pair = Pair::start().await;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("redis://127.0.0.1:{}", pair.front.port);
    let (mut rng, tally) = (faults::Rng::new(1), Tally::default());
    let lasts = Duration::from_secs(3);
    let contended = contend(1, &url, directory.path(), lasts);
    let faults = async {
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            sleep(rng.millis(100..300)).await;
            pair.inject_fault(&mut rng, &tally).await;
        }
    };
    tokio::join!(contended, faults);
    let report = Report::of_calls(&History::read(directory.path()).unwrap(), Allowances::REAL);
    println!("{report}");
    if report.faults().next().is_some() {
        let faults: Vec<_> = report.faults().collect();
        panic!("`check-history {}` repeats the verdict: {faults:#?}", directory.keep().display());
    }
    assert!(report.steps > 300 && report.unanswered > 0, "too little happened");
}
