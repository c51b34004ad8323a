//! Owners deliver messages with few keys again and again, with works whose effects are rows of a real PostgreSQL and
//! which do what they should not, while connections, servers and processes fail. Every call of the stores is recorded.
//! The verdict is by this history, by what the works saw, by what the deliveries returned, and by the tables.
//!
//! - `plan`, `work`, `session`: what a work does and sees
//! - `kind`, `owner`, `watched`, `control`, `held`: the owners, and what happens to one of them
//! - `world`, `operator`, `losses`, `tally`: what they share
//! - `servers`, `faults`, `cleanup`, `copies`, `pace`: what happens to all of them
//! - `tables`, `verdict`: what is judged
//!
//! A short run is part of all tests; `make torture` runs a long one, by `TORTURE_SEEDS`, `TORTURE_MESSAGES` and
//! `TORTURE_FIRST_SEED`.

mod cleanup;
mod control;
mod copies;
mod faults;
mod hand_made;
mod held;
mod kind;
mod losses;
mod messages;
mod operator;
mod owner;
mod pace;
mod plan;
mod servers;
mod session;
mod tables;
mod tally;
mod verdict;
mod watched;
mod work;
mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::front::Front;
use harness::redis::closed_port;
use harness::soon;
use harness::torture::Length;
use harness::torture::tally::lock;
use history::inbox::Passwords;
use history::{History, Report, Rng, monotonic_us};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use cleanup::Housekeeper;
use copies::{Copier, Late, wrong_copies, wrong_copies_in_steps};
use faults::Faults;
use kind::{BRIEF, Kind, NAMESPACES, User};
use losses::Losses;
use messages::{FOREIGN, contend, finish};
use operator::Operator;
use owner::{Owner, Ways};
use servers::Servers;
use tables::Tables;
use verdict::Seen;
use world::World;

/// The number of the first owner that delivers messages while others are at work.
const RIVALS: usize = 100;

/// The number of the first owner that finishes messages.
const LAST: usize = 200;

/// Number of deliveries for each message of the torture, before all are finished.
const DELIVERIES: usize = 4;

/// Longest time for them.
const LONGEST: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_repeat_deliveries_take_effect_once_with_the_row_of_the_inbox() {
    let Length { seeds, messages, first } = Length::from_env_or(1, 80);
    let mut servers = Servers::start().await;
    let (mut report, mut counts, mut faults) = (Report::default(), BTreeMap::new(), Vec::new());
    for seed in first..first + seeds {
        let deliveries = DELIVERIES * usize::try_from(messages).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (seen, verdict) = Box::pin(run(seed, &mut servers, directory.path(), deliveries)).await;
        let wrong: Vec<_> = seen.faults().collect();
        if !wrong.is_empty() || verdict.faults().next().is_some() {
            println!("seed {seed}: the calls are in {}", directory.keep().display());
        }
        faults.extend(verdict.faults().map(|fault| format!("history: {fault}")).chain(wrong));
        seen.count(&mut counts);
        report.add(verdict);
    }
    println!("{report}\ndeliveries\n{counts:#?}");
    assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
    assert!(report.steps > 100 && report.effects > 10, "too little happened");
}

/// Runs owners with faults, and then without, until each message is done. Returns what was seen, and the verdict on the
/// history.
async fn run(seed: u64, servers: &mut Servers, directory: &Path, deliveries: usize) -> (Seen, Report) {
    let (mut rng, password) = (Rng::new(seed), format!("password-of-{seed}"));
    let mut base = servers.database(seed, &password).await;
    let (steady, breaking) = (Front::to(servers.redis.port()).await, Arc::new(Front::to(servers.redis.port()).await));
    let losses = Losses::of_server(&servers.redis).await;
    losses.flush().await;
    let operator = Operator::of(base.port, &base.name).await;
    let world = Arc::new(World::new(operator, losses, base.port, closed_port()));
    let state = servers::state(&base).await;
    let passwords = Passwords::new(&password);
    let redis = [steady.port, breaking.port].map(|port| format!("redis://127.0.0.1:{port}"));
    let ways = Ways { redis: [&redis[0], &redis[1]], database: &base.name, directory, passwords: &passwords };
    let mut owners = Vec::new();
    for (number, kind) in kind::owners() {
        owners.push(Arc::new(Owner::new(number, kind, &world, &ways).await));
    }
    let mut rivals = Vec::new();
    for (number, namespace) in (RIVALS..).zip(NAMESPACES.into_iter().flat_map(|namespace| [namespace; 2])) {
        rivals.push(Arc::new(Owner::new(number, Kind::last(namespace), &world, &ways).await));
    }
    world.set_rivals(rivals);
    messages::write_foreign_value(&servers.redis).await;
    let (housekeeper, copier) = (Housekeeper::of(&base), Copier::new(&base, &redis[0], directory));
    let pace = pace::watch(&world);

    let begun = Instant::now();
    let mut contending = JoinSet::new();
    for owner in &owners {
        for rng in (0..owner.kind.tasks).map(|_| rng.fork()) {
            let (owner, world) = (Arc::clone(owner), Arc::clone(&world));
            contending.spawn(async move { contend(&world, &owner, rng, deliveries).await });
        }
    }
    let growth = servers::grow(&world);
    let outages = faults::break_redis(&world, &breaking, servers.redis.port(), rng.fork());
    let slowness = cleanup::delete_slowly(&world);
    let mut faults = Faults {
        servers,
        world: &world,
        owners: &owners,
        passwords: &passwords,
        housekeeper: &housekeeper,
        copier: &copier,
        number: rng.draw(0..9),
    };
    while world.deliveries() < deliveries && begun.elapsed() < LONGEST {
        sleep(rng.ms(10..50)).await;
        faults.inject(&mut rng).await;
    }
    drop((slowness, outages));
    soon(contending.join_all()).await;
    soon(world.join_watchers()).await;
    world.set_rivals(Vec::new());
    drop(growth);
    // Its task may have ended before it did this.
    while !world.operator.execute("DELETE FROM slow_deletes").await {
        sleep(Duration::from_millis(10)).await;
    }
    let with_password = owners.iter().find(|owner| owner.kind.user == User::Payer);
    for owner in owners.first().into_iter().chain(with_password) {
        messages::deliver_by_each_plan(owner).await;
    }

    // The server may have been restarted.
    base.client = world.operator.session().await;
    let late = Late::begin(&base).await;
    let mut last = Vec::new();
    for (number, namespace) in (LAST..).zip(NAMESPACES) {
        last.push(Owner::new(number, Kind::last(namespace), &world, &ways).await);
    }
    let (unfinished, mut wrong) = tokio::join!(finish(&world, &last), wrong_copies_in_steps(&base, &servers.redis));
    drop(pace);
    wrong.extend(unfinished);
    // The history ends here.
    let mut histories = histories(&world, directory);
    wrong.extend(messages::wrong_foreign_value(&servers.redis, &histories).await);
    let ahead = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    let ahead_us = u64::try_from(ahead).unwrap() - monotonic_us();
    let tables = Tables::read(&base.client, ahead_us).await;
    wrong.extend(wrong_copies(&base, &servers.redis, late, rng.fork()).await);
    wrong.extend(std::mem::take(&mut *lock(&world.tally.faults)));
    let deleted = std::mem::take(&mut *lock(&housekeeper.deleted));
    let observed = Seen::new(&world.tally, (tables, state, deleted), ahead_us, seed, wrong);
    for (namespace, history) in &mut histories {
        // These have no records of works.
        let is_foreign = |key: &str| key == FOREIGN && *namespace != BRIEF;
        history.keys.retain(|key, _| !is_foreign(key) && !key.starts_with("loss-probe:"));
    }
    let report = observed.report(histories, &copier.processes);
    (observed, report)
}

/// The history of each consumer, with what was lost.
fn histories(world: &World, directory: &Path) -> Vec<(&'static str, History)> {
    let of = |namespace| (namespace, world.losses.of(namespace, History::read(&directory.join(namespace)).unwrap()));
    NAMESPACES.map(of).into()
}
