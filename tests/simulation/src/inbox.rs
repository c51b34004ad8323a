//! Callers that run works by the inbox, on a PostgreSQL of the simulated network: claims of a few keys, again and again,
//! with works that also do what they should not, while connections and the server fail. There is no store: the inbox
//! alone decides.
//!
//! - `plan`: what happens in a call
//! - `caller`, `work`: the callers and their work
//! - `operator`: other programs, and what happens to all callers
//! - `world`, `calls`: what they share, and what is known of a call
//! - `verdict`: what is wrong

mod caller;
mod calls;
mod operator;
mod plan;
mod verdict;
mod work;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use history::Rng;
use history::inbox::{Class, PAYER, Passwords};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::lock;
use crate::network::{self, Conditions};
use crate::postgres::Server;

use caller::{CONSUMERS, Caller, KINDS, Kind};
use calls::Told;
use operator::OPERATOR;
use plan::{Plan, What};
use world::World;

/// Calls of each task.
const CALLS: usize = 12;

/// Partitions of the table in every second seed.
const PARTITIONS: usize = 3;

/// The number of the first caller that finishes what the others have begun.
const LAST: usize = 100;

/// What is wrong with the inbox in this seed.
pub async fn use_inbox(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x1b0);
    network::set_conditions(Conditions { rng: rng.fork(), delay_ms: 3, lost: 0 });
    let passwords = Passwords::new("password");
    let version = *rng.pick(&["14.11", "16.4 (Debian 16.4-1)", "17.2", "18beta1"]);
    let server = Server::start(OPERATOR);
    let accepts = passwords.clone();
    server.configure(version, Some(move |user: &str, password: &str| user != PAYER || accepts.accept(password)), 100);
    if seed.is_multiple_of(2) {
        server.partition_inbox(PARTITIONS);
    }
    let world = Arc::new(World::new(server, passwords));
    // A host that accepts connections and never replies.
    let _silent = network::listen("silent");

    let mut contending = JoinSet::new();
    for (number, kind) in KINDS.into_iter().enumerate() {
        let caller = Arc::new(Caller::new(number, kind, &world));
        for _ in 0..kind.tasks {
            contending.spawn(Arc::clone(&caller).contend(rng.fork(), CALLS));
        }
    }
    let disturbing = tokio::spawn(operator::disturb(Arc::clone(&world), rng.fork()));
    contending.join_all().await;
    disturbing.abort();
    let _aborted = disturbing.await;
    world.server.recover();
    // Transactions of silent clients end meanwhile.
    sleep(Duration::from_secs(10)).await;
    let mut wrong = finish(&world).await;
    wrong.extend(world.wrong());
    wrong.extend(read_through_pooler(&world).await);
    network::set_conditions(Conditions { rng: rng.fork(), delay_ms: 1, lost: 0 });
    wrong
}

/// Through a pooler, a row is read by a new statement each time: the columns of another session may have other types.
async fn read_through_pooler(world: &Arc<World>) -> Option<String> {
    world.server.set_pooled();
    let caller = Caller::new(LAST + CONSUMERS.len(), Kind::last("pooled"), world);
    for what in [What::Attempt, What::Read, What::Read] {
        caller.call("key-0", 0, 1, Plan::plain(what, Duration::from_secs(3))).await;
    }
    let kept = world.server.kept().into_iter().find(|statement| statement.starts_with("SELECT fingerprint"));
    kept.map(|statement| format!("executed through a pooler again without preparing it: {statement}"))
}

/// Calls each key until it is done, which takes one call, unless a work has executed COMMIT.
async fn finish(world: &Arc<World>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, consumer) in (LAST..).zip(CONSUMERS) {
        let caller = Caller::new(number, Kind::last(consumer), world);
        let keys: BTreeSet<_> =
            lock(&world.calls).iter().filter(|call| call.consumer == consumer).map(|call| call.key.clone()).collect();
        for key in keys {
            let call = caller.call(&key, 0, 1, Plan::plain(What::Attempt, Duration::from_secs(3))).await;
            let told = &lock(&world.calls)[call].told;
            let is_known = matches!(told, Told::Done(_) | Told::DoneBefore(_) | Told::Mismatch)
                || matches!(told, Told::Failed(Class::Uncertain, why) if why.contains(verdict::UNFINISHED));
            if !is_known {
                wrong.push(format!("{consumer} {key} is not done in the end: {told:?}"));
            }
        }
    }
    wrong
}
