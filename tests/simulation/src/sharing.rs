//! Records of a cluster that share script calls, while slots move, nodes refuse calls, and clusters hide their shards.
//! Each seed does one of these after another, each with a cluster and a client of its own. There are no other faults.
//!
//! - `moves`: slots that move
//! - `leases`: leases of several lengths
//! - `large`: large results
//! - `runtimes`: a runtime that ends

mod large;
mod leases;
mod moves;
mod runtimes;

use std::time::Duration;

use futures_util::future::join_all;
use harness::lines;
use history::Rng;
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Store, StoreError};
use idempotent_sqs::{Key, RedisSettings, RedisStore};
use tokio::time::{sleep, timeout};

use crate::connections::{Connection, Exchange, connections};
use crate::network::{address, stop};
use crate::redis::Cluster;

const TIMEOUT: Duration = Duration::from_millis(300);

const NAMESPACE: &str = "shared";

/// Records of a burst: fewer than a call may have.
const RECORDS: usize = 24;

/// Records that a call may have at most, of each server.
const RECORDS_PER_CALL: usize = 64;

/// How long records do not share calls after a node refused a shared one, s, and what is logged then.
const PAUSE_S: u64 = 60;
const WARNING: &str = "the records of a shard cannot share script calls for now: each has its own call";

/// Replies of a node that is in a passing state.
const OF_STATE: [&str; 9] = [
    "LOADING Redis is loading the dataset in memory",
    "CLUSTERDOWN The cluster is down",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "READONLY You can't write against a read only replica.",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS Not enough good replicas to write.",
    "OOM command not allowed when used memory > 'maxmemory'.",
];

/// Replies of a node that refuses shared calls.
const OF_CALL: [&str; 3] = [
    "ERR Script attempted to access a key that is not declared",
    "NOPERM User default has no permissions to access one of the keys used as arguments",
    "ERR unknown command",
];

/// What is wrong with the calls of this seed.
pub async fn share_calls(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x54a2);
    let mut wrong = Vec::new();
    for number in 0..11 {
        let sharer = Sharer::start(number);
        lines::take();
        let (what, faults) = match number {
            0 => ("many", sharer.send_many().await),
            1 => ("moved slots", sharer.move_slots(rng).await),
            2 => ("refused", sharer.refuse_shared_calls(rng).await),
            3 => ("hidden shards", sharer.hide_shards().await),
            4 => ("passing state", sharer.refuse_all_calls(rng).await),
            5 => ("moving slot", sharer.acquire_in_a_moving_slot().await),
            6 => ("given up", sharer.give_up().await),
            7 => ("mixed leases", sharer.mix_leases(rng).await),
            8 => ("large results", sharer.complete_with_large_results(rng).await),
            9 => ("unreachable", sharer.dial_in_vain().await),
            _ => ("ended runtime", sharer.end_a_runtime().await),
        };
        let faults = faults.into_iter().chain(sharer.wrong_pings());
        wrong.extend(faults.map(|fault| format!("{what}: {fault}")));
    }
    lines::take();
    wrong
}

/// A client of a cluster of two servers.
struct Sharer {
    client: String,
    cluster: Cluster,
    store: RedisStore,
}

/// What a burst of acquires did.
struct Burst {
    answers: Vec<Result<Acquire, StoreError>>,
    calls: Vec<Exchange>,
}

impl Burst {
    /// Calls without declared keys.
    fn shared(&self) -> usize {
        self.calls.iter().filter(|call| !call.declares_keys).count()
    }

    fn wrong_answers(&self) -> Option<String> {
        let is_wrong = |answer: &&Result<Acquire, StoreError>| !matches!(answer, Ok(Acquire::Acquired(_)));
        self.answers.iter().find(is_wrong).map(|answer| format!("not acquired: {answer:?}"))
    }
}

impl Sharer {
    fn start(number: usize) -> Self {
        let names = [0, 1].map(|server| format!("shared{number}{server}"));
        let cluster = Cluster::start(&names.each_ref().map(String::as_str));
        let client = format!("sharer{number}");
        let url = format!("redis://{}", address(&names[0], &client)).parse().expect("this is a valid URL");
        let mut settings = RedisSettings::new(url, NAMESPACE);
        (settings.cluster, settings.timeout) = (true, TIMEOUT);
        let store = RedisStore::new(&settings).expect("these settings are valid");
        Self { client, cluster, store }
    }

    /// Acquires so many keys of this round at once.
    async fn burst(&self, round: &str, records: usize) -> Burst {
        let before = self.calls().len();
        let acquire = |number: usize| {
            let key = Key::new(&format!("{round}-{number}")).expect("it has a text");
            self.store.acquire(AcquireRequest::new(key))
        };
        let answers = join_all((0..records).map(acquire)).await;
        Burst { answers, calls: self.calls().split_off(before) }
    }

    fn connections(&self) -> impl Iterator<Item = Connection> {
        connections().into_iter().filter(|connection| connection.client == self.client)
    }

    /// A shared call without a PING before it, which takes the ASKING of another record.
    fn wrong_pings(&self) -> Option<String> {
        let is_wrong =
            |two: &&[Exchange]| two[0].command != "PING" && !two[1].records.is_empty() && !two[1].declares_keys;
        self.connections().find_map(|connection| {
            connection.exchanges.windows(2).find(is_wrong).map(|two| format!("no PING before a shared call: {two:?}"))
        })
    }

    /// The script calls of the client so far, in their order, without those for which a server lacked the script.
    fn calls(&self) -> Vec<Exchange> {
        let mut calls: Vec<_> = self.connections().flat_map(|connection| connection.exchanges).collect();
        let lacks_script = |call: &Exchange| call.error.as_ref().is_some_and(|error| error.starts_with("NOSCRIPT"));
        calls.retain(|call| !call.records.is_empty() && !lacks_script(call));
        calls.sort_by_key(|call| call.sent_us);
        calls
    }

    /// What is wrong with a burst of records that share calls: one for each server.
    async fn wrong_sharing(&self, round: &str) -> Vec<String> {
        let burst = self.burst(round, RECORDS).await;
        let mut wrong = Vec::from_iter(burst.wrong_answers());
        if burst.calls.len() != 2 || burst.shared() != 2 {
            wrong.push(format!("{round}: the calls {:?}", burst.calls));
        }
        wrong
    }

    /// More records than a call may have.
    async fn send_many(&self) -> Vec<String> {
        let mut wrong = self.wrong_first().await;
        let burst = self.burst("many", 5 * RECORDS_PER_CALL).await;
        wrong.extend(burst.wrong_answers());
        let sizes: Vec<_> = burst.calls.iter().map(|call| call.records.len()).collect();
        let is_full = |size: &&usize| **size == RECORDS_PER_CALL;
        if sizes.iter().any(|size| *size > RECORDS_PER_CALL) || sizes.iter().filter(|size| !is_full(size)).count() > 2 {
            wrong.push(format!("calls of {sizes:?} records"));
        }
        wrong
    }

    /// The first records load the script.
    async fn wrong_first(&self) -> Vec<String> {
        let mut wrong = Vec::from_iter(self.burst("first", RECORDS).await.wrong_answers());
        wrong.extend(self.wrong_sharing("second").await);
        wrong
    }

    /// Each record is sent alone for a minute after a node refused a shared call.
    async fn refuse_shared_calls(&self, rng: &mut Rng) -> Vec<String> {
        let mut wrong = self.wrong_first().await;
        let refusal = *rng.pick(&OF_CALL);
        self.cluster.servers.iter().for_each(|server| server.refuse_shared(Some(refusal)));
        let alone = async |round: &str, shared: usize| {
            let burst = self.burst(round, RECORDS).await;
            let is_right = burst.calls.len() - burst.shared() == RECORDS && burst.shared() == shared;
            let wrong = burst.wrong_answers();
            wrong.or_else(|| (!is_right).then(|| format!("{round}, by {refusal}: the calls {:?}", burst.calls)))
        };
        wrong.extend(alone("refused", 2).await);
        wrong.extend(alone("at once", 0).await);
        sleep(Duration::from_secs(PAUSE_S - 1)).await;
        wrong.extend(alone("a minute later", 0).await);
        sleep(Duration::from_secs(1)).await;
        wrong.extend(alone("again", 2).await);
        wrong.extend(wrong_warnings(1));
        self.cluster.servers.iter().for_each(|server| server.refuse_shared(None));
        sleep(Duration::from_secs(PAUSE_S)).await;
        wrong.extend(self.wrong_sharing("accepted").await);
        wrong
    }

    /// Three calls in a row in vain end the sharing.
    async fn hide_shards(&self) -> Vec<String> {
        self.cluster.name_wrong_servers();
        let mut wrong = Vec::new();
        let mut shared = Vec::new();
        for round in ["one", "two", "three", "four"] {
            let burst = self.burst(round, RECORDS).await;
            wrong.extend(burst.wrong_answers());
            shared.push(burst.shared());
        }
        // Two calls are in flight at once.
        if shared != [2, 2, 0, 0] {
            wrong.push(format!("shared calls of each burst: {shared:?}"));
        }
        wrong.extend(wrong_warnings(1));
        wrong
    }

    /// A node that refuses every call for now does not end the sharing.
    async fn refuse_all_calls(&self, rng: &mut Rng) -> Vec<String> {
        let mut wrong = self.wrong_first().await;
        let refusal = *rng.pick(&OF_STATE);
        let opened = self.connections().count();
        self.cluster.servers.iter().for_each(|server| server.refuse(Some(refusal)));
        let burst = self.burst("refused", RECORDS).await;
        let is_unavailable =
            |answer: &Result<Acquire, StoreError>| answer.as_ref().is_err_and(StoreError::is_unavailable);
        if !burst.answers.iter().all(is_unavailable) {
            wrong.push(format!("by {refusal}: {:?}", burst.answers));
        }
        let own_us = burst.calls.iter().filter(|call| call.declares_keys).map(|call| call.sent_us).min();
        if own_us.is_none() {
            wrong.push(format!("by {refusal}: no record made a call of its own"));
        }
        let is_early = |made: &Connection| Some(made.dialled_us) < own_us;
        let dialled = self.connections().skip(opened).filter(is_early);
        wrong.extend(dialled.map(|made| format!("by {refusal}: dialled although a node replied: {made:?}")));
        self.cluster.servers.iter().for_each(|server| server.refuse(None));
        self.burst("again", RECORDS).await;
        wrong.extend(self.wrong_sharing("afterwards").await.into_iter().map(|fault| format!("{refusal}: {fault}")));
        wrong.extend(wrong_warnings(0));
        wrong
    }

    /// Records whose callers give up while the connection is opened are not sent. Others of the same call are.
    async fn give_up(&self) -> Vec<String> {
        let given_up = timeout(Duration::from_millis(5), self.burst("given-up", RECORDS));
        let (burst, given_up) = tokio::join!(self.burst("kept", RECORDS), given_up);
        let mut wrong = Vec::from_iter(burst.wrong_answers());
        if given_up.is_ok() {
            wrong.push("the connection was opened too quickly".to_owned());
        }
        let is_given_up = |call: &Exchange| call.records.iter().any(|key| key.contains("given-up"));
        wrong.extend(self.calls().iter().find(|call| is_given_up(call)).map(|call| format!("sent: {call:?}")));
        wrong
    }

    /// A cluster that cannot be reached is dialled as often for several records as for one, and once more at most: a record
    /// may not share the attempt of the first.
    async fn dial_in_vain(&self) -> Vec<String> {
        self.cluster.servers.iter().for_each(|server| stop(server.name()));
        let mut dials = Vec::new();
        for records in [1, RECORDS] {
            let before = self.connections().count();
            self.burst("unreachable", records).await;
            dials.push(self.connections().count() - before);
        }
        if dials[0] == 0 || dials[1] > dials[0] + 1 { vec![format!("{dials:?} dials")] } else { Vec::new() }
    }
}

/// Whether there are so many warnings that records cannot share calls.
fn wrong_warnings(expected: usize) -> Option<String> {
    let warnings = lines::take().into_iter().filter(|line| line.get("message") == Some(WARNING)).count();
    (warnings != expected).then(|| format!("{warnings} warnings, not {expected}"))
}
