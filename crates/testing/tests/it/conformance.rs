//! The conformance suite: its list of rows is complete, and each row can fail.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use idempotent_sqs::MemoryStore;
use idempotent_sqs_testing::conformance;

mod faulty;
mod violations;

mod on_the_memory_store {
    use idempotent_sqs::MemoryStore;

    idempotent_sqs_testing::store_conformance!(let store = MemoryStore::default(); &store);
}

/// The public functions of the suite's modules.
fn rows() -> BTreeSet<String> {
    let suite = harness::workspace("crates/testing/src/conformance");
    fs::read_dir(&suite)
        .unwrap()
        .flat_map(|file| {
            let source = fs::read_to_string(file.unwrap().path()).unwrap();
            let names = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
            names.map(|name| name.split('(').next().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect()
}

/// Every row is in the list that `store_conformance!` and `run_all` use.
#[test]
fn every_row_is_in_the_list() {
    let suite = harness::workspace("crates/testing/src/conformance");
    let list = fs::read_to_string(suite.with_extension("rs")).unwrap();
    let list = list.split("$($head)+\n").nth(1).unwrap().split('}').next().unwrap();
    let listed: BTreeSet<String> = list.split_whitespace().map(str::to_owned).collect();
    assert_eq!(rows(), listed);
    assert_eq!(listed.len(), list.split_whitespace().count(), "no row is listed twice");
    assert!(listed.len() >= 90, "{} rows", listed.len());
}

/// `run_all` makes a store for each row.
#[tokio::test]
async fn run_all_makes_a_store_for_each_row() {
    let mut stores = 0;
    conformance::run_all(async || {
        stores += 1;
        MemoryStore::default()
    })
    .await;
    assert!(stores >= 90, "{stores} stores");
}

/// As the documentation of the suite says.
#[tokio::test(start_paused = true)]
async fn more_than_half_of_the_rows_wait_and_none_longer_than_documented() {
    let mut waits = Vec::new();
    macro_rules! run {
        ($($row:ident)+) => {$(
            let start = tokio::time::Instant::now();
            Box::pin(conformance::$row(&MemoryStore::default())).await;
            waits.push(start.elapsed());
        )+};
    }
    idempotent_sqs_testing::__conformance_rows! { @call run }
    let (waiting, all) = (waits.iter().filter(|wait| !wait.is_zero()).count(), waits.len());
    assert!((all / 2..=all * 2 / 3).contains(&waiting), "{waiting} of {all} rows");
    assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(1300)), "{:?}", waits.iter().max());
}
