//! A replica without the latest writes is promoted. The checker finds the writes that were lost, and names them.

use harness::torture::faults::Pair;
use history::{Allowances, History, KEY_LASTS, Report};
use tokio::time::sleep;

use crate::contention::contend;

/// A run may lose nothing that another call shows.
const SEEDS: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_that_a_failover_loses_are_found_and_named() {
    let mut acknowledged = 0;
    for seed in 1..=SEEDS {
        let report = lossy(seed).await;
        let lost: Vec<_> = report.lost_writes.iter().map(ToString::to_string).collect();
        println!("{report}{lost:#?}");
        let others: Vec<_> = report.faults().filter(|fault| !lost.contains(fault)).collect();
        assert!(others.is_empty(), "the losses do not explain {others:#?}");
        acknowledged += report.lost_writes.iter().filter(|write| write.is_acknowledged).count();
        if acknowledged > 0 {
            return;
        }
    }
    panic!("no lost write was found");
}

/// The verdict on a run in which a replica without the latest writes is promoted.
async fn lossy(seed: u64) -> Report {
    let mut pair = Pair::start().await;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("redis://127.0.0.1:{}", pair.front.port);
    let fail_over = async {
        // In the middle of the keys that are used at this time.
        sleep(KEY_LASTS * 11 / 5).await;
        pair.lose_writes(KEY_LASTS / 4).await;
    };
    tokio::join!(contend(seed, &url, directory.path(), KEY_LASTS * 9), fail_over);
    Report::of_calls(&History::read(directory.path()).unwrap(), Allowances::REAL)
}
