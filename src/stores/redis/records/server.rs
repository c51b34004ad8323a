//! The server's memory and settings.

use std::collections::BTreeSet;

use redis::Value;

use super::super::preflight::{field, findings, texts};
use super::{Records, RecordsError};

/// Memory and settings from INFO, of one server or of all nodes of a cluster together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Settings that can lose records, each a sentence with what to do. The function logs the same after its first
    /// connection.
    pub findings: BTreeSet<String>,
    /// The different values of `maxmemory-policy` on the nodes.
    pub eviction_policies: BTreeSet<String>,
    /// `used_memory` of all nodes, in bytes.
    pub used_bytes: u64,
    /// `maxmemory` of all nodes, in bytes. `None` if the server has or shows no limit.
    pub limit_bytes: Option<u64>,
    /// Number of keys that were evicted for lack of memory since the nodes started.
    pub evicted_keys: u64,
    /// Whether the server is a node of a cluster.
    pub is_cluster: bool,
}

impl Records {
    /// Reads the server's memory and settings.
    ///
    /// # Errors
    /// [`RecordsError`]. [`RecordsError::NotPermitted`] concerns only this command: others may be permitted.
    ///
    /// ## Cancel safety
    /// It only reads, so dropping the future changes nothing.
    pub async fn server(&self) -> Result<ServerInfo, RecordsError> {
        let nodes = self.info().await?;
        let sum = |name| nodes.iter().filter_map(|node| field(node, name)?.parse::<u64>().ok()).sum();
        let policies = nodes.iter().filter_map(|node| field(node, "maxmemory_policy"));
        let limit: u64 = sum("maxmemory");
        let by_sentinel = self.connection.uses_sentinel();
        Ok(ServerInfo {
            findings: nodes.iter().flat_map(|node| findings(node, by_sentinel)).collect(),
            eviction_policies: policies.map(str::to_owned).collect(),
            used_bytes: sum("used_memory"),
            limit_bytes: (limit > 0).then_some(limit),
            evicted_keys: sum("evicted_keys"),
            is_cluster: nodes.iter().any(|node| is_of_cluster(node)),
        })
    }

    /// The INFO of the server, or of each master of a cluster.
    pub(super) async fn info(&self) -> Result<Vec<String>, RecordsError> {
        let info: Value = self.send(&redis::cmd("INFO")).await?;
        let mut nodes = Vec::new();
        texts(&info, &mut nodes);
        Ok(nodes)
    }
}

/// Whether the server with this INFO is a node of a cluster.
pub(super) fn is_of_cluster(info: &str) -> bool {
    field(info, "cluster_enabled") == Some("1")
}
