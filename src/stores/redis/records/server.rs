//! The server that the records are on, by its own account.

use std::collections::BTreeSet;

use redis::Value;

use super::super::preflight::{field, findings, texts};
use super::{Records, RecordsError};

/// What INFO shows: of one server, or of all the nodes of a cluster together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// What could cost records, each a sentence with what to do. The function logs the same at its start.
    pub findings: BTreeSet<String>,
    /// `maxmemory-policy` of each node, so usually one.
    pub eviction: BTreeSet<String>,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that may be used; 0 where there is no limit.
    pub limit: u64,
    /// Keys that were dropped for want of memory since the nodes started.
    pub evicted: u64,
    /// Whether it is a node of a cluster.
    pub is_cluster: bool,
}

impl Records {
    /// A look at the server.
    ///
    /// # Errors
    /// [`RecordsError`]; [`RecordsError::NotPermitted`] says nothing of other commands.
    pub async fn server(&self) -> Result<Server, RecordsError> {
        let info: Value = self.ask(&redis::cmd("INFO")).await?;
        let mut nodes = Vec::new();
        texts(&info, &mut nodes);
        let sum = |name| nodes.iter().filter_map(|node| field(node, name)?.parse::<u64>().ok()).sum();
        Ok(Server {
            findings: nodes.iter().flat_map(|node| findings(node)).collect(),
            eviction: nodes.iter().filter_map(|node| field(node, "maxmemory_policy")).map(str::to_owned).collect(),
            used: sum("used_memory"),
            limit: sum("maxmemory"),
            evicted: sum("evicted_keys"),
            is_cluster: nodes.iter().any(|node| field(node, "cluster_enabled") == Some("1")),
        })
    }
}
