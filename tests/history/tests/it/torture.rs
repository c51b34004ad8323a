//! Processes of the function are killed and stopped, on a Redis that fails. Every call of their stores is recorded, and
//! the verdict is by this history: it is linearizable, the model allows each of its steps, and each effect that the
//! receiver counted has its run.
//!
//! A short run is part of all tests; `make torture` runs a long one. `TORTURE_SEEDS`, `TORTURE_MESSAGES` and
//! `TORTURE_FIRST_SEED` set the number of seeds, the number of messages and the first seed. `TORTURE_WITHOUT` names a guard
//! of the scripts that the servers run without; the torture then fails.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use harness::torture::faults::{Cluster, Pair, Rng, Target};
use harness::torture::fixture::Fixture;
use harness::torture::tally::{self, Sum, Tally, lock};
use harness::torture::{FAULTS_PER_SEED, Length, perform, queue};
use history::{Allowances, Effect, History, Outside, Report, monotonic_us};
use idempotent_sqs_testing::SendRequest;
use tempfile::TempDir;

use crate::guards;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_and_each_history_is_that_of_the_state_machine() {
    let Length { seeds, messages, first } = Length::from_env();
    let (mut sum, mut report) = (Sum::default(), Report::default());
    for seed in first..first + seeds {
        // One of four seeds uses a cluster, also in the short run.
        let mut target = match (seed - first) % 4 {
            1 => Target::Cluster(Cluster::start().await),
            _ => Target::Pair(Pair::start().await),
        };
        if let (Target::Pair(pair), Some((script, without))) = (&target, guards::removed()) {
            pair.front.replace_script(script, &without);
        }
        let directory = tempfile::tempdir().unwrap();
        let (url, cluster) = (target.url(), target.is_cluster());
        let inject_fault = async |rng: &mut Rng, tally: &Tally| target.inject_fault(rng, tally).await;
        sum.add(torture(seed, messages, (url, cluster), directory.path(), inject_fault).await);
        report.add(judge(directory));
    }
    print!("{}{report}", sum.table(seeds));
    assert!(report.faults().next().is_none(), "{:#?}", report.faults().collect::<Vec<_>>());
    assert_eq!(report.keys as u64, seeds * keys(messages), "each key has a history");
    assert!(
        sum.faults.values().flatten().count() > FAULTS_PER_SEED * usize::try_from(seeds).unwrap(),
        "too few faults"
    );
}

/// Every tenth message is another message of the producer with the key and payload of the one before.
fn key_number(message: u64) -> u64 {
    message - u64::from(message % 10 == 9)
}

fn keys(messages: u64) -> u64 {
    messages - messages / 10
}

/// Runs functions with faults on the Redis at this address, which may be that of a cluster. Writes their history, and
/// what was seen from outside, to files in this directory.
async fn torture(
    seed: u64,
    messages: u64,
    (url, cluster): (String, bool),
    directory: &Path,
    mut inject_fault: impl AsyncFnMut(&mut Rng, &Tally),
) -> Sum {
    let queue = queue(seed);
    let settings = vec![("HISTORY_DIRECTORY", directory.to_str().unwrap().to_owned())];
    let binary = env!("CARGO_BIN_EXE_recorded-function");
    let fixture = Arc::new(Fixture::with_webhook(binary, (url, cluster), &queue, settings, monotonic_us).await);
    let keys: Vec<String> = (0..messages).map(|n| format!("pay-{seed}-{}", key_number(n))).collect();
    let requests = keys
        .iter()
        .map(|key| SendRequest::new(format!("{{\"paymentId\":\"{key}\"}}")).attribute("Idempotency-Key", key.clone()));
    let tally = Arc::clone(&fixture.tally);
    perform(seed, &queue, fixture, requests.collect(), async |rng| inject_fault(rng, &tally).await).await;
    // The run ends when all messages were deleted.
    let outside = Outside { effects: effects(&tally), deleted: keys };
    fs::write(directory.join("outside.json"), serde_json::to_vec(&outside).unwrap()).unwrap();
    tally.sum(&queue)
}

fn effects(tally: &Tally) -> Vec<Effect> {
    let effects = lock(&tally.effects);
    effects
        .iter()
        .map(|effect| {
            let tally::Effect { key, fence, is_recovery, at_us } = effect.clone();
            Effect { key, fence, is_recovery, at_us }
        })
        .collect()
}

/// The verdict by the files in this directory, which is kept if anything is wrong.
fn judge(directory: TempDir) -> Report {
    let outside = serde_json::from_slice(&fs::read(directory.path().join("outside.json")).unwrap()).unwrap();
    let report = Report::of_functions(&History::read(directory.path()).unwrap(), &outside, Allowances::REAL);
    if report.faults().next().is_some() {
        println!("`check-history {}` repeats the verdict", directory.keep().display());
    }
    report
}
