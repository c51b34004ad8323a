//! The conformance suite: its list of rows is complete, and each row can fail.

use std::collections::BTreeSet;
use std::fs;

use idempotent_sqs::MemoryStore;

mod on_the_memory_store {
    use idempotent_sqs::MemoryStore;

    idempotent_sqs_testing::store_conformance!(let store = MemoryStore::default(); &store);
}

/// Every public function of the suite's modules is in the list that `store_conformance!` and `run_all` use.
#[test]
fn every_row_is_in_the_list() {
    let suite = harness::workspace("crates/testing/src/conformance");
    let rows: BTreeSet<String> = fs::read_dir(&suite)
        .unwrap()
        .flat_map(|file| {
            let source = fs::read_to_string(file.unwrap().path()).unwrap();
            let names = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
            names.map(|name| name.split('(').next().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    let list = fs::read_to_string(suite.with_extension("rs")).unwrap();
    let list = list.split("$($head)+\n").nth(1).unwrap().split('}').next().unwrap();
    let listed: BTreeSet<String> = list.split_whitespace().map(str::to_owned).collect();
    assert_eq!(rows, listed);
    assert_eq!(listed.len(), list.split_whitespace().count(), "no row is listed twice");
    assert!(listed.len() >= 50, "{} rows", listed.len());
}

/// `run_all` makes a store for each row.
#[tokio::test]
async fn run_all_makes_a_store_for_each_row() {
    let mut stores = 0;
    idempotent_sqs_testing::conformance::run_all(async || {
        stores += 1;
        MemoryStore::default()
    })
    .await;
    assert!(stores >= 50, "{stores} stores");
}
