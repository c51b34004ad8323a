//! The Redis servers that hold the records: one server, or the masters of a cluster.

use std::thread::sleep;
use std::time::{Duration, Instant};

use benches::Fallible;
use benches::server::{Load, Server};

/// Limit for the nodes to agree on the cluster, which usually takes two seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>
const SLOTS: usize = 16_384;

pub(crate) struct Stack {
    masters: Vec<Server>,
    is_cluster: bool,
}

impl Stack {
    /// One server without cluster mode.
    pub(crate) fn single() -> Fallible<Self> {
        Ok(Self { masters: vec![Server::start(&[])?], is_cluster: false })
    }

    /// A cluster of this many shards, each with an equal share of the slots and no replica.
    pub(crate) fn cluster(shards: usize) -> Fallible<Self> {
        let start = |_| Server::start(&["--cluster-enabled", "yes"]);
        let masters = (0..shards).map(start).collect::<Fallible<Vec<_>>>()?;
        let first = masters[0].port.to_string();
        for (index, master) in masters.iter().enumerate() {
            let (from, to) = (SLOTS * index / shards, SLOTS * (index + 1) / shards - 1);
            master.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
            master.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &first])?;
        }
        let until = Instant::now() + TIMEOUT;
        for master in &masters {
            while !master.command::<String>(&["CLUSTER", "INFO"])?.contains("cluster_state:ok") {
                if Instant::now() > until {
                    return Err("the cluster did not start".into());
                }
                sleep(Duration::from_millis(50));
            }
        }
        Ok(Self { masters, is_cluster: true })
    }

    pub(crate) fn name(&self) -> String {
        match (self.is_cluster, self.masters.len()) {
            (false, _) => "one server".to_owned(),
            (true, 1) => "cluster, 1 shard".to_owned(),
            (true, shards) => format!("cluster, {shards} shards"),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.masters[0].url()
    }

    /// The value of `REDIS_CLUSTER`.
    pub(crate) fn cluster_mode(&self) -> &'static str {
        if self.is_cluster { "true" } else { "false" }
    }

    pub(crate) fn flush(&self) -> Fallible<()> {
        self.masters.iter().try_for_each(Server::flush)
    }

    /// The number of keys.
    pub(crate) fn records(&self) -> Fallible<usize> {
        self.masters.iter().map(Server::records).sum()
    }

    /// Runs `work` and returns the load that it causes on all servers.
    pub(crate) fn load_of<T>(&self, work: impl FnOnce() -> Fallible<T>) -> Fallible<(T, Load)> {
        let before = self.masters.iter().map(Server::start_load).collect::<Fallible<Vec<_>>>()?;
        let done = work()?;
        let loads = self.masters.iter().zip(before).map(|(master, before)| master.load_since(before));
        Ok((done, loads.sum::<Fallible<Load>>()?))
    }
}
