//! A small Redis Cluster, whose slots are moved step by step.

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;

use super::redis::{Redis, free_port};
use super::until;

/// Masters with an equal share of the slots each, in order.
pub struct SmallCluster {
    pub nodes: Vec<Redis>,
    connections: Vec<MultiplexedConnection>,
    /// Port of the first node for other nodes.
    first_bus: u16,
}

impl SmallCluster {
    pub async fn start(masters: u16) -> Self {
        let (mut nodes, mut connections) = (Vec::new(), Vec::new());
        let mut first_bus = 0;
        for n in 0..masters {
            let bus = free_port();
            nodes.push(Redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]).await);
            connections.push(nodes[usize::from(n)].connection().await);
            first_bus = if n == 0 { bus } else { first_bus };
        }
        let cluster = Self { nodes, connections, first_bus };
        let first = cluster.nodes[0].port().to_string();
        for n in 0..masters {
            let slot = |n: u16| (16_384 * u32::from(n) / u32::from(masters)).to_string();
            let last = (16_384 * (u32::from(n) + 1) / u32::from(masters) - 1).to_string();
            let node = usize::from(n);
            let () = cluster.ask(node, &["CLUSTER", "ADDSLOTSRANGE", &slot(n), &last]).await;
            let () = cluster.ask(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]).await;
            if n > 0 {
                let () = cluster.ask(node, &["CLUSTER", "MEET", "127.0.0.1", &first, &first_bus.to_string()]).await;
            }
        }
        for node in 0..cluster.nodes.len() {
            until(|| async { cluster.ask::<String>(node, &["CLUSTER", "INFO"]).await.contains("cluster_state:ok") })
                .await;
        }
        cluster
    }

    /// Adds a replica of the first node.
    pub async fn replica_of_first(&self) -> Redis {
        let replica =
            Redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", &free_port().to_string()]).await;
        let (port, bus) = (self.nodes[0].port().to_string(), self.first_bus.to_string());
        let master: String = self.ask(0, &["CLUSTER", "MYID"]).await;
        let connection = replica.connection().await;
        let ask = |command: Vec<String>| {
            let mut connection = connection.clone();
            async move { redis::cmd("CLUSTER").arg(command).query_async::<redis::Value>(&mut connection).await }
        };
        ask(vec!["MEET".into(), "127.0.0.1".into(), port, bus]).await.unwrap();
        // The replica has to know its master first.
        until(|| async { ask(vec!["REPLICATE".into(), master.clone()]).await.is_ok() }).await;
        replica
    }

    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// Sends a command to a node.
    pub async fn ask<T: FromRedisValue>(&self, node: usize, command: &[&str]) -> T {
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut self.connections[node].clone()).await.unwrap()
    }

    /// Starts to move a slot. Its records stay where they are.
    pub async fn start_to_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let (source, target): (String, String) =
            (self.ask(from, &["CLUSTER", "MYID"]).await, self.ask(to, &["CLUSTER", "MYID"]).await);
        let () = self.ask(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).await;
        let () = self.ask(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).await;
    }

    /// Moves a record of a slot that is being moved.
    pub async fn move_record(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        let () = self.ask(from, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await;
    }

    /// Ends the move of a slot. Other nodes learn of it by gossip.
    pub async fn end_move(&self, slot: u16, from: usize, to: usize) {
        let target: String = self.ask(to, &["CLUSTER", "MYID"]).await;
        for node in [to, from] {
            let () = self.ask(node, &["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &target]).await;
        }
    }

    /// Number of calls of a command on each node since its start.
    pub async fn calls(&self, command: &str) -> Vec<u64> {
        let mut calls = Vec::new();
        for node in 0..self.nodes.len() {
            let stats: String = self.ask(node, &["INFO", "commandstats"]).await;
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
            calls.push(line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap()));
        }
        calls
    }

    /// Number of connections to the first node since its start.
    pub async fn connections(&self) -> u64 {
        let stats: String = self.ask(0, &["INFO", "stats"]).await;
        let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().parse().unwrap()
    }

    /// Number of records on each node.
    pub async fn records(&self) -> Vec<usize> {
        let mut records = Vec::new();
        for node in 0..self.nodes.len() {
            records.push(self.ask(node, &["DBSIZE"]).await);
        }
        records
    }
}
