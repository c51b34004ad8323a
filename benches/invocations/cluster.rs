//! A Redis Cluster of three masters.

use std::thread::sleep;
use std::time::{Duration, Instant};

use benches::Fallible;
use benches::server::Server;

/// Limit for the nodes to agree on the cluster, which usually takes two seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The slots of each: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>
const SLOTS: [(&str, &str); 3] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

pub(crate) struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    pub(crate) fn start() -> Fallible<Self> {
        let start = |_| Server::start(&["--cluster-enabled", "yes"]);
        let mut nodes = SLOTS.iter().map(start).collect::<Fallible<Vec<_>>>()?;
        let first = nodes[0].port.to_string();
        for (node, (from, to)) in nodes.iter_mut().zip(SLOTS) {
            node.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", from, to])?;
            node.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &first])?;
        }
        let until = Instant::now() + TIMEOUT;
        for node in &mut nodes {
            while !node.command::<String>(&["CLUSTER", "INFO"])?.contains("cluster_state:ok") {
                if Instant::now() > until {
                    return Err("the cluster did not start".into());
                }
                sleep(Duration::from_millis(50));
            }
        }
        Ok(Self { nodes })
    }

    pub(crate) fn url(&self) -> String {
        self.nodes[0].url()
    }

    pub(crate) fn flush(&mut self) -> Fallible<()> {
        self.nodes.iter_mut().try_for_each(Server::flush)
    }

    pub(crate) fn records(&mut self) -> Fallible<usize> {
        self.nodes.iter_mut().map(Server::records).sum()
    }
}
