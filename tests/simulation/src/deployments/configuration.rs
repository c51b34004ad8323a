//! The configuration of a server in INFO, and which of its settings can lose records: docs/runbook.md.

use std::collections::BTreeSet;

use history::Rng;

/// What INFO says: <https://redis.io/docs/latest/commands/info/>.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    version: &'static str,
    /// Bytes, 0 without a limit. ElastiCache Serverless does not say it.
    max_memory: Option<u32>,
    policy: &'static str,
    appends: bool,
    replicas: u32,
    pub(super) is_replica: bool,
    /// Whether it accepts writes only with a replica.
    needs_replica: bool,
}

impl Configuration {
    pub(super) fn of(rng: &mut Rng, is_replica: bool) -> Self {
        Self {
            version: *rng.pick(&["8.2.0", "7.2.4", "6.2.14", "6.2.0", "10.0.1", "6.0.16", "5.10.0"]),
            max_memory: *rng.pick(&[None, Some(0), Some(1000)]),
            policy: *rng.pick(&["noeviction", "noeviction", "allkeys-lru", "volatile-ttl"]),
            appends: rng.happens(600),
            replicas: *rng.pick(&[0, 0, 1, 10]),
            is_replica,
            needs_replica: rng.happens(500),
        }
    }

    /// The text of INFO.
    pub(super) fn info(&self) -> String {
        let max_memory = self.max_memory.map(|bytes| format!("maxmemory:{bytes}\r\nmaxmemory_human:1.00K\r\n"));
        let needs_replica = if self.needs_replica { "min_slaves_good_slaves:1\r\n" } else { "" };
        format!(
            "# Server\r\nredis_version:{}\r\nredis_mode:standalone\r\n\r\n# Memory\r\nused_memory:2000\r\n{}\
             maxmemory_policy:{}\r\n\r\n# Persistence\r\naof_enabled:{}\r\naof_rewrite_in_progress:0\r\n\r\n\
             # Replication\r\nrole:{}\r\nconnected_slaves:{}\r\n{needs_replica}master_failover_state:no-failover\r\n",
            self.version,
            max_memory.unwrap_or_default(),
            self.policy,
            u32::from(self.appends),
            if self.is_replica { "slave" } else { "master" },
            self.replicas,
        )
    }

    /// A part of the text of each finding.
    pub(super) fn findings(&self, by_sentinel: bool) -> BTreeSet<String> {
        let is_old = ["6.0.16", "5.10.0"].contains(&self.version);
        let evicts = self.policy != "noeviction" && self.max_memory != Some(0);
        let loses = !self.is_replica && self.replicas == 0 && !self.appends;
        let findings = [
            (is_old, format!("Redis {}", self.version)),
            (evicts, format!("maxmemory-policy is {}", self.policy)),
            (self.is_replica, "is a replica".to_owned()),
            (loses, "neither a replica nor an append-only file".to_owned()),
            (by_sentinel && !self.needs_replica, "min-replicas-to-write is 0".to_owned()),
        ];
        findings.into_iter().filter_map(|(is_found, text)| is_found.then_some(text)).collect()
    }
}
