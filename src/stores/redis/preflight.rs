//! Checks the server once, and logs each server setting that can lose records. A failed check is ignored.

use std::collections::BTreeSet;

use redis::{RedisResult, Value};

/// The first version whose SET takes PXAT: <https://redis.io/docs/latest/commands/set/>. Every version of Valkey
/// reports a higher `redis_version`.
const OLDEST: (u32, u32) = (6, 2);

/// Logs the findings in the INFO of a server, or of each node of a cluster, and returns their count. `None` where the
/// server gave no INFO.
pub(super) fn report(info: RedisResult<Value>, by_sentinel: bool) -> Option<u64> {
    let info = match info {
        Ok(info) => info,
        // An ACL may forbid INFO. Nothing depends on it.
        Err(error) => {
            tracing::debug!(%error, "INFO is not available: the server was not checked");
            return None;
        }
    };
    let mut nodes = Vec::new();
    texts(&info, &mut nodes);
    let findings: BTreeSet<String> = nodes.iter().flat_map(|node| findings(node, by_sentinel)).collect();
    for finding in &findings {
        tracing::warn!(finding, "unsafe Redis configuration");
    }
    Some(findings.len() as u64)
}

/// Collects the texts of INFO: one from a server, one of each node from a cluster.
pub(super) fn texts(info: &Value, found: &mut Vec<String>) {
    if let Ok(text) = redis::from_redis_value_ref::<String>(info) {
        found.push(text);
    } else if let Some(nodes) = info.as_map_iter() {
        for (_, node) in nodes {
            texts(node, found);
        }
    } else if let Some(nodes) = info.as_sequence() {
        for node in nodes {
            texts(node, found);
        }
    }
}

/// The value of a field of one node's INFO.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
}

/// The unsafe settings in one node's INFO. `by_sentinel`: whether sentinels named the server.
pub(super) fn findings(info: &str, by_sentinel: bool) -> Vec<String> {
    let field = |name: &str| field(info, name);
    let is = |name: &str, value: &str| field(name).is_some_and(|field| field == value);
    let mut findings = Vec::new();
    if let Some(version) = field("redis_version")
        && let mut numbers = version.split('.').map_while(|number| number.parse().ok())
        && let (Some(major), Some(minor)) = (numbers.next(), numbers.next())
        && (major, minor) < OLDEST
    {
        findings.push(format!(
            "the server is Redis {version}, which cannot write records: upgrade it to Redis 6.2 or newer, or to Valkey"
        ));
    }
    if let Some(policy) = field("maxmemory_policy")
        && policy != "noeviction"
        && !is("maxmemory", "0")
    {
        findings.push(format!(
            "maxmemory-policy is {policy}: when memory runs out, Redis evicts records without an error, and their work \
             runs again; set it to noeviction"
        ));
    }
    if is("role", "slave") {
        findings.push("the server is a replica, which does not accept writes: set REDIS_URL to the primary".to_owned());
    } else if is("connected_slaves", "0") && is("aof_enabled", "0") {
        findings.push(
            "the server has neither a replica nor an append-only file: a restart loses its records, and their work \
             runs again; add a replica or set appendonly yes"
                .to_owned(),
        );
    }
    // INFO has this field if min-replicas-to-write is set.
    if by_sentinel && field("min_slaves_good_slaves").is_none() {
        findings.push(
            "min-replicas-to-write is 0: after a failover by Sentinel, the old primary may accept records for seconds, \
             which are then lost, and their work runs again; set it to 1 on every server, and run two replicas"
                .to_owned(),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE: &str = "# Memory\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\n\
                        # Replication\r\nrole:master\r\nconnected_slaves:0\r\n";

    /// The findings of a server whose address is known.
    fn findings(info: &str) -> Vec<String> {
        super::findings(info, false)
    }

    #[test]
    fn a_safe_server_has_no_findings() {
        assert_eq!(findings(SAFE), [""; 0]);
        let replicated = SAFE.replace("aof_enabled:1", "aof_enabled:0").replace("slaves:0", "slaves:1");
        assert_eq!(findings(&replicated), [""; 0]);
    }

    #[test]
    fn an_eviction_policy_is_a_finding_if_memory_is_limited() {
        let evicts = SAFE.replace("noeviction", "volatile-lru");
        assert!(findings(&evicts)[0].contains("volatile-lru"));
        assert_eq!(findings(&evicts.replace("maxmemory:1000", "maxmemory:0")), [""; 0]);
        assert_eq!(findings(&evicts.replace("maxmemory:1000\r\n", "")).len(), 1, "Serverless shows no limit");
    }

    #[test]
    fn a_server_without_persistence_or_replicas_and_a_replica_are_findings() {
        assert!(findings(&SAFE.replace("aof_enabled:1", "aof_enabled:0"))[0].contains("neither a replica"));
        assert!(findings(&SAFE.replace("role:master", "role:slave"))[0].contains("is a replica"));
    }

    #[test]
    fn a_server_of_sentinels_that_needs_no_replica_to_write_is_a_finding() {
        let found = super::findings(SAFE, true);
        assert!(found.len() == 1 && found[0].contains("min-replicas-to-write is 0"), "{found:?}");
        assert_eq!(super::findings(&format!("{SAFE}min_slaves_good_slaves:2\r\n"), true), [""; 0]);
    }

    #[test]
    fn an_old_server_is_a_finding() {
        let of = |version: &str| findings(&format!("redis_version:{version}\r\n{SAFE}"));
        assert!(of("6.0.16")[0].contains("Redis 6.0.16"));
        assert!(of("5.10.0")[0].contains("Redis 5.10.0"));
        assert_eq!(of("6.2.0"), [""; 0]);
        assert_eq!(of("10.0.0"), [""; 0]);
    }

    #[test]
    fn the_info_of_each_node_of_a_cluster_is_collected() {
        let node = |info: &str| Value::BulkString(info.as_bytes().to_vec());
        let address = || Value::SimpleString("127.0.0.1:7000".into());
        let cluster = Value::Map(vec![(address(), node(SAFE)), (address(), node("role:slave"))]);
        let mut nodes = Vec::new();
        texts(&cluster, &mut nodes);
        assert_eq!(nodes, [SAFE, "role:slave"]);
    }
}
