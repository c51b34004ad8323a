//! Faults chosen by a seed.

use std::ops::Range;
use std::time::Duration;

use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::fleet::Order;
use super::tally::Tally;
use crate::front::Front;
use crate::redis::{Redis, connect};
use crate::until;

/// A repeatable random number generator: xorshift.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn draw(&mut self, range: Range<u64>) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        range.start + self.0 % (range.end - range.start)
    }

    /// A number below `count`.
    fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.draw(0..count as u64)).unwrap()
    }

    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.draw(range))
    }
}

/// Longer than the lease of an invocation, which is two seconds plus the grace. Milliseconds.
const BEYOND_THE_LEASE: Range<u64> = 2_300..2_800;

/// Longer than the function reuses idle connections: docs/webhook.md.
const BEYOND_CONNECTIONS: Duration = Duration::from_secs(5);

/// Kills or freezes a process.
pub fn inject_process_fault(rng: &mut Rng, orders: &[mpsc::Sender<Order>]) {
    let process = rng.index(orders.len());
    let order = match rng.draw(0..8) {
        0..2 => Order::Stop(rng.millis(BEYOND_THE_LEASE)),
        2..4 => Order::Rest(BEYOND_CONNECTIONS),
        _ => Order::Kill,
    };
    // A frozen process gets the order when it resumes.
    let _ = orders[process].try_send(order);
}

/// The Redis of a run.
pub enum Target {
    Pair(Pair),
    Cluster(Cluster),
}

impl Target {
    pub fn url(&self) -> String {
        match self {
            Self::Pair(pair) => format!("redis://127.0.0.1:{}", pair.front.port),
            Self::Cluster(cluster) => format!("redis://{}", cluster.address()),
        }
    }

    pub fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Injects a fault.
    pub async fn inject_fault(&mut self, rng: &mut Rng, tally: &Tally) {
        match self {
            Self::Pair(pair) => pair.inject_fault(rng, tally).await,
            Self::Cluster(cluster) => cluster.inject_fault(rng, tally).await,
        }
    }
}

/// A primary and its replica, behind one address.
pub struct Pair {
    primary: Redis,
    replica: Redis,
    pub front: Front,
}

impl Pair {
    pub async fn start() -> Self {
        // Each write is on disk before its reply is sent.
        let options = ["--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"];
        let (primary, replica) = (Redis::start_with(&options).await, Redis::start_with(&options).await);
        let front = Front::to(primary.port()).await;
        let pair = Self { primary, replica, front };
        pair.follow().await;
        pair
    }

    /// Deletes all records.
    pub async fn empty(&self) {
        command(&self.primary, &["FLUSHALL"]).await;
    }

    /// Makes the replica copy the primary, and waits until it has caught up.
    async fn follow(&self) {
        let port = self.primary.port().to_string();
        command(&self.replica, &["REPLICAOF", "127.0.0.1", &port]).await;
        until(|| async { self.offset(&self.replica, "slave_repl_offset").await.is_some() && self.is_linked().await })
            .await;
    }

    async fn is_linked(&self) -> bool {
        info(&self.replica).await.contains("master_link_status:up")
    }

    async fn offset(&self, of: &Redis, field: &str) -> Option<u64> {
        let info = info(of).await;
        info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().parse().ok())
    }

    pub async fn inject_fault(&mut self, rng: &mut Rng, tally: &Tally) {
        let from = Instant::now();
        let kind = match rng.draw(0..6) {
            0 => {
                self.front.cut();
                "Redis: connections cut"
            }
            1 => {
                command(&self.primary, &["SCRIPT", "FLUSH"]).await;
                "Redis: scripts flushed"
            }
            2 => {
                let pause = rng.draw(200..700);
                command(&self.primary, &["CLIENT", "PAUSE", &pause.to_string(), "ALL"]).await;
                sleep(Duration::from_millis(pause)).await;
                "Redis: paused"
            }
            3 => {
                self.front.drop_replies(true);
                sleep(rng.millis(50..300)).await;
                self.front.cut();
                self.front.drop_replies(false);
                "Redis: replies lost"
            }
            4 => {
                self.primary.kill();
                sleep(rng.millis(50..300)).await;
                self.primary.restart().await;
                "Redis: restarted with its append-only file"
            }
            _ => {
                self.fail_over().await;
                "Redis: failed over, the old primary read-only"
            }
        };
        tally.fault(kind, None, from);
    }

    /// Kills the primary and promotes the replica, which did not get the writes of the last `lag`.
    pub async fn lose_writes(&mut self, lag: Duration) {
        command(&self.replica, &["REPLICAOF", "NO", "ONE"]).await;
        sleep(lag).await;
        self.front.forward_to(self.replica.port());
        self.primary.kill();
        self.front.cut();
        std::mem::swap(&mut self.primary, &mut self.replica);
        self.replica.restart().await;
        self.follow().await;
    }

    /// Promotes the replica, which has all acknowledged writes. Open connections stay on the old primary, which is
    /// then read-only.
    async fn fail_over(&mut self) {
        until(|| self.is_linked()).await;
        command(&self.primary, &["CLIENT", "PAUSE", "5000", "WRITE"]).await;
        let written = self.offset(&self.primary, "master_repl_offset").await;
        until(|| async { self.offset(&self.replica, "slave_repl_offset").await >= written }).await;
        command(&self.replica, &["REPLICAOF", "NO", "ONE"]).await;
        self.front.forward_to(self.replica.port());
        std::mem::swap(&mut self.primary, &mut self.replica);
        let port = self.primary.port().to_string();
        command(&self.replica, &["REPLICAOF", "127.0.0.1", &port]).await;
        command(&self.replica, &["CLIENT", "UNPAUSE"]).await;
        until(|| self.is_linked()).await;
    }
}

/// A cluster of three masters, with a replica each.
pub struct Cluster(RedisCluster);

impl Cluster {
    pub async fn start() -> Self {
        let cluster = || RedisCluster::new(RedisClusterConfiguration::single_replica_config());
        Self(spawn_blocking(cluster).await.unwrap())
    }

    fn address(&self) -> String {
        self.0.servers[0].addr.to_string()
    }

    async fn inject_fault(&mut self, rng: &mut Rng, tally: &Tally) {
        let from = Instant::now();
        let kind = match rng.draw(0..4) {
            0 => {
                for node in 0..self.0.servers.len() {
                    self.ask(node, &["SCRIPT", "FLUSH"]).await;
                }
                "cluster: scripts flushed"
            }
            1 => {
                self.fail_over(rng).await;
                "cluster: failed over"
            }
            _ => {
                self.move_slots(rng).await;
                "cluster: slots moved"
            }
        };
        tally.fault(kind, None, from);
    }

    /// Promotes a replica, which has all acknowledged writes.
    async fn fail_over(&self, rng: &mut Rng) {
        let replicas = self.nodes("slave").await;
        let replica = replicas[rng.index(replicas.len())];
        let is_promoted = || async { self.nodes("master").await.contains(&replica) };
        // The masters may refuse it, because they vote only every ten seconds on a shard. The replica gives up after
        // five.
        while !is_promoted().await {
            self.ask(replica, &["CLUSTER", "FAILOVER"]).await;
            let _ = timeout(Duration::from_secs(6), until(is_promoted)).await;
        }
        self.agree().await;
    }

    /// Moves slots and their records from one master to another.
    async fn move_slots(&self, rng: &mut Rng) {
        let masters = self.nodes("master").await;
        let source = rng.index(masters.len());
        let id = async |n: usize| self.ask(masters[n % masters.len()], &["CLUSTER", "MYID"]).await;
        let (source, destination) = (id(source).await, id(source + 1).await);
        let slots = rng.draw(200..600).to_string();
        let moved = Command::new("redis-cli")
            .args(["--cluster", "reshard", &self.address(), "--cluster-from", &source, "--cluster-to", &destination])
            .args(["--cluster-slots", &slots, "--cluster-yes"])
            .output()
            .await
            .unwrap();
        assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stdout));
        self.agree().await;
    }

    /// The nodes of this role.
    async fn nodes(&self, role: &str) -> Vec<usize> {
        let mut nodes = Vec::new();
        for node in 0..self.0.servers.len() {
            if self.ask(node, &["INFO", "replication"]).await.contains(&format!("role:{role}")) {
                nodes.push(node);
            }
        }
        nodes
    }

    async fn ask(&self, node: usize, command: &[&str]) -> String {
        let mut connection = connect(self.0.servers[node].connection_info()).await;
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.unwrap()
    }

    /// Waits until all nodes agree which master serves which slot.
    async fn agree(&self) {
        let check = || async {
            let check = Command::new("redis-cli").args(["--cluster", "check", &self.address()]).output().await;
            check.unwrap().status.success()
        };
        until(check).await;
    }
}

async fn info(redis: &Redis) -> String {
    let mut connection = redis.connection().await;
    redis::cmd("INFO").arg("replication").query_async(&mut connection).await.unwrap_or_default()
}

async fn command(redis: &Redis, command: &[&str]) {
    let mut connection = redis.connection().await;
    let () = redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.unwrap();
}
