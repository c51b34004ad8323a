//! A cluster of three primaries with a replica each, whose links can be cut.

use std::net::Ipv4Addr;

use redis::FromRedisValue;

use super::{Deployment, LAGS, Link, Links, Listeners, OPTIONS, SERVERS};
use crate::redis::{Redis, free_port};
use crate::sentinel::is_synchronized;
use crate::until;

/// Milliseconds. A primary that the others do not reach for this time is replaced. A primary that does not reach a
/// majority for this time refuses commands.
const NODE_TIMEOUT: &str = "1000";

/// The last byte of the first node's source address. Each node opens its connections from an address of its own.
const FIRST_SOURCE: u8 = 10;

const PRIMARIES: usize = 3;

/// The first three nodes are primaries until a failover, and the fourth is the replica of the first, and so on.
pub struct Shards {
    pub nodes: Vec<Redis>,
    pub links: Vec<Links>,
    /// The links of the bus.
    buses: Vec<Links>,
}

impl Shards {
    /// All nodes have these additional options.
    pub async fn start(options: &[&str]) -> Self {
        let (mut nodes, mut links, mut buses) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..2 * PRIMARIES {
            let (listeners, bus_listeners) = (Listeners::bind().await, Listeners::bind().await);
            let (port, bus) = (listeners.port.to_string(), bus_listeners.port.to_string());
            let (own_bus, source) = (free_port(), source(number).to_string());
            let own_bus_text = own_bus.to_string();
            let announced = ["--cluster-announce-ip", SERVERS, "--cluster-announce-port", &port];
            let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT];
            let bus = ["--cluster-port", &own_bus_text, "--cluster-announce-bus-port", &bus];
            let source = ["--bind-source-addr", &source];
            let options = [&announced[..], &cluster, &bus, &source, &OPTIONS[..], options].concat();
            let node = Redis::start_with(&options).await;
            links.push(listeners.to(node.port()));
            buses.push(bus_listeners.to(own_bus));
            nodes.push(node);
        }
        let cluster = Self { nodes, links, buses };
        cluster.join().await;
        for links in &cluster.links {
            links.servers.delay(LAGS);
        }
        cluster
    }

    async fn join(&self) {
        let first = [self.links[0].port, self.buses[0].port].map(|port| port.to_string());
        for number in 0..PRIMARIES {
            let slots =
                [16_384 * number / PRIMARIES, 16_384 * (number + 1) / PRIMARIES - 1].map(|slot| slot.to_string());
            let () = self.ask(number, &["CLUSTER", "ADDSLOTSRANGE", &slots[0], &slots[1]]).await;
            let () = self.ask(number, &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await;
        }
        for number in 1..2 * PRIMARIES {
            let () = self.ask(number, &["CLUSTER", "MEET", SERVERS, &first[0], &first[1]]).await;
        }
        let is_known = |number: usize, text: &'static str, count: usize| async move {
            self.ask::<String>(number, &["CLUSTER", "NODES"]).await.matches(text).count() == count
        };
        for number in 0..2 * PRIMARIES {
            until(|| is_known(number, "connected", 2 * PRIMARIES)).await;
            until(|| is_known(number, "handshake", 0)).await;
        }
        for number in 0..PRIMARIES {
            let primary: String = self.ask(number, &["CLUSTER", "MYID"]).await;
            let () = self.ask(PRIMARIES + number, &["CLUSTER", "REPLICATE", &primary]).await;
        }
        for number in 0..2 * PRIMARIES {
            until(|| is_known(number, "slave", PRIMARIES)).await;
            until(|| async { self.ask::<String>(number, &["CLUSTER", "INFO"]).await.contains("cluster_state:ok") })
                .await;
        }
        for number in PRIMARIES..2 * PRIMARIES {
            is_synchronized(&self.nodes[number]).await;
        }
    }

    /// Sends a command to a node.
    pub async fn ask<T: FromRedisValue>(&self, node: usize, command: &[&str]) -> T {
        let mut connection = self.nodes[node].connection().await;
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.unwrap()
    }

    /// The URL of this node for the clients of the side with this address.
    pub fn url(&self, node: usize, side: &str) -> String {
        format!("redis://{side}:{}", self.links[node].port)
    }
}

impl Deployment for Shards {
    fn first(&mut self) -> &mut Redis {
        &mut self.nodes[0]
    }

    fn links(&self) -> &[Links] {
        &self.links
    }

    fn links_to_first(&self) -> Vec<&Link> {
        [&self.links[0], &self.buses[0]].into_iter().flat_map(Links::all).collect()
    }

    fn partition(&self) {
        [&self.links[0].servers, &self.links[0].far, &self.buses[0].servers].into_iter().for_each(Link::cut);
        self.links[1..].iter().for_each(|links| links.near.cut());
        for links in self.links[1..].iter().chain(&self.buses[1..]) {
            links.servers.cut_from(source(0));
        }
    }

    fn heal(&self) {
        self.links.iter().chain(&self.buses).flat_map(Links::all).for_each(Link::heal);
    }

    async fn promoted(&self) -> usize {
        until(|| async { self.ask::<String>(PRIMARIES, &["INFO", "replication"]).await.contains("role:master") }).await;
        PRIMARIES
    }
}

/// The address from which a node opens connections.
fn source(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, FIRST_SOURCE + u8::try_from(node).unwrap())
}
