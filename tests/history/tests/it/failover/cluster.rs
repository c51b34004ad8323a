//! A cluster of three primaries with a replica each. The fault affects the first primary.

use std::collections::HashSet;
use std::sync::Arc;

use harness::network::SIDES;
use harness::network::shards::Shards;
use harness::redis::AppendOnly;
use history::{Allowances, Failover, FailoverVerdict, History, Log, Logs, Outside, Report};
use redis::cluster_routing::Slot;

use super::load::Load;
use super::{Fault, Protection, inject, is_primary, is_right, table};

/// The slots of the first primary end here.
const SLOTS: u16 = 16_384 / 3;

/// Replicas of each primary.
const REPLICAS: u8 = 1;

/// The verdict on one run.
async fn fail_over(seed: u64, fault: Fault, protection: Protection) -> FailoverVerdict {
    let mut cluster = Shards::start(protection.options()).await;
    let mut load = Load::new(seed);
    let namespace = load.namespace.clone();
    let slots: Arc<HashSet<Slot>> = Arc::new((0..SLOTS).filter_map(Slot::new).collect());
    let is_of_first = move |key: &str| slots.contains(&Slot::for_key(format!("{namespace}:{key}")));
    let mut old = cluster.nodes[0].append_only().await;
    for (number, side) in SIDES.into_iter().enumerate() {
        // In a partition, the near side reaches the first node alone.
        let (is_limited, uses) = (number == 0 && fault == Fault::Partitioned, is_of_first.clone());
        let node = usize::from(!is_limited);
        let uses = move |key: &str| !is_limited || uses(key);
        load.start(number, (cluster.url(node, side), true), (0, Vec::new()), uses);
    }
    let (times, promoted) =
        inject(&mut cluster, fault, protection.permits_writes(fault, REPLICAS), &load, &is_of_first).await;
    load.end().await;
    if !is_primary(&cluster.nodes[promoted]).await || load.has_equal_fences() {
        return Box::pin(fail_over(seed, fault, protection)).await;
    }

    let log = |file: &mut AppendOnly| Log::of(&load.namespace, &file.commands());
    let logs = Logs { old: log(&mut old), new: log(&mut cluster.nodes[promoted].append_only().await) };
    let (mut failover, mut others) = (Failover::default(), History::default());
    for (side, reach) in times.reach(fault).iter().enumerate() {
        let mut history = load.history(side);
        others.add(History {
            keys: history.keys.extract_if(.., |key, _| !is_of_first(key)).collect(),
            ..History::default()
        });
        failover.add(history, reach, &logs);
    }
    let (of_first, of_others) = load.effects().into_iter().partition::<Vec<_>, _>(|effect| is_of_first(&effect.key));
    let mut verdict = failover.verdict(&of_first, times.injected[0]);
    let others = Report::of_functions(&others, &Outside { effects: of_others, ..Outside::default() }, Allowances::REAL);
    verdict.wrong.extend(others.faults().map(|fault| format!("of another shard: {fault}")));
    load.complete(verdict)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_loses_only_what_its_replica_had_not_received() {
    let verdict = fail_over(1, Fault::Killed, Protection::None).await;
    is_right(&verdict);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_whose_host_ends_loses_what_was_on_the_way() {
    let verdict = fail_over(1, Fault::HostLost, Protection::None).await;
    is_right(&verdict);
    assert!(verdict.lost > 0, "nothing was on the way: {verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_primary_loses_only_what_its_replica_had_not_received() {
    let verdict = fail_over(1, Fault::Frozen, Protection::None).await;
    is_right(&verdict);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_without_a_majority_loses_what_it_accepts_within_the_node_timeout() {
    let verdict = fail_over(1, Fault::Partitioned, Protection::None).await;
    is_right(&verdict);
    assert!(verdict.lost > 20 && verdict.untold > 0, "the near side goes on: {verdict}");
    assert!(verdict.last_lost_ms < 2000, "it still accepted a write after {} ms", verdict.last_lost_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ten seconds for each seed and line"]
async fn every_fault_with_every_protection() {
    let faults = [Fault::Killed, Fault::HostLost, Fault::Frozen, Fault::Partitioned];
    table(&faults, &[Protection::None, Protection::MinReplicas], fail_over).await;
}
