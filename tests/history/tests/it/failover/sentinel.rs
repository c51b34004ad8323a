//! A primary with two replicas under three sentinels.

use harness::network::SIDES;
use harness::network::service::Service;
use harness::redis::AppendOnly;
use history::{Failover, FailoverVerdict, Log, Logs};

use super::load::Load;
use super::{Fault, Protection, inject, is_primary, is_right, table};

/// Replicas of the primary.
const REPLICAS: u8 = 2;

/// The verdict on one run.
async fn fail_over(seed: u64, fault: Fault, protection: Protection) -> FailoverVerdict {
    let mut service = Service::start(protection.options()).await;
    let mut files: Vec<AppendOnly> = Vec::new();
    for server in &service.servers {
        files.push(server.append_only().await);
    }
    let mut load = Load::new(seed);
    for (number, side) in SIDES.into_iter().enumerate() {
        let servers = service.links.iter().map(|links| format!("redis://{side}:{}", links.port)).collect();
        load.start(number, (service.url(side), false), (protection.replicas(), servers), |_| true);
    }
    if fault == Fault::OldView {
        service.isolate_a_sentinel();
    }
    let (times, promoted) =
        inject(&mut service, fault, protection.permits_writes(fault, REPLICAS), &load, |_| true).await;
    load.end().await;
    if !is_primary(&service.servers[promoted]).await || load.has_equal_fences() {
        return Box::pin(fail_over(seed, fault, protection)).await;
    }

    let log = |file: &mut AppendOnly| Log::of(&load.namespace, &file.commands());
    let logs = Logs { old: log(&mut files[0]), new: log(&mut files[promoted]) };
    let (mut failover, mut returned) = (Failover::default(), Vec::new());
    for (side, reach) in times.reach(fault).iter().enumerate() {
        let known = failover.lost.len();
        failover.add(load.history(side), reach, &logs);
        // A majority of the sentinels names the new primary, so no client that has left the old one connects to it
        // again.
        let late = failover.lost[known..].iter().filter(|write| write.invoked_us > reach.old[0].end);
        returned.extend(late.map(|write| format!("a client returned to the old primary: {write}")));
    }
    let mut verdict = failover.verdict(&load.effects(), times.injected[0]);
    verdict.wrong.extend(returned);
    load.complete(verdict)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_loses_only_what_its_replicas_had_not_received() {
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
async fn a_frozen_primary_loses_only_what_its_replicas_had_not_received() {
    let verdict = fail_over(1, Fault::Frozen, Protection::None).await;
    is_right(&verdict);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_with_an_old_view_that_replies_first_leads_no_client_back_to_the_old_primary() {
    let verdict = fail_over(1, Fault::OldView, Protection::None).await;
    is_right(&verdict);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_cut_off_loses_what_it_accepts_until_it_is_demoted() {
    let verdict = fail_over(1, Fault::Partitioned, Protection::None).await;
    is_right(&verdict);
    assert!(verdict.lost > 50 && verdict.untold > 0, "the near side goes on: {verdict}");
    assert!(verdict.last_lost_ms > 2000, "only for {} ms", verdict.last_lost_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_cut_off_from_its_replicas_and_needs_one_to_write_accepts_nothing_for_long() {
    let verdict = fail_over(1, Fault::Partitioned, Protection::MinReplicas).await;
    is_right(&verdict);
    assert!(verdict.last_lost_ms < 3500, "it still accepted a write after {} ms", verdict.last_lost_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ten seconds for each seed and line"]
async fn every_fault_with_every_protection() {
    let faults = [Fault::Killed, Fault::HostLost, Fault::Frozen, Fault::OldView, Fault::Partitioned];
    let protections = [Protection::None, Protection::MinReplicas, Protection::Wait(1), Protection::Wait(2)];
    table(&faults, &protections, fail_over).await;
}
