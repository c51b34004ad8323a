//! A primary, a replica, and three sentinels that watch them as the service `mymaster`.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};

use redis::{FromRedisValue, RedisResult};
use redis_test::utils::TlsFilePaths;
use tempfile::TempDir;

use super::redis::{Redis, connect, free_port, listens, log, tls_options};
use super::until;

/// Name of the service.
pub const SERVICE: &str = "mymaster";

/// A password that all servers accept, and that the sentinels do not need.
const LOGIN: &str = "default:SECRET-PASSWORD";

/// Settings that let a test fail over in seconds, and keep the sentinels from pausing on a slow test machine.
const PACE: [(&str, &str); 6] = [
    ("info-period", "500"),
    ("ask-period", "200"),
    ("publish-period", "200"),
    ("ping-period", "200"),
    ("tilt-trigger", "60000"),
    ("election-timeout", "2000"),
];

/// The servers of the service. The first one is the primary until a failover.
pub struct Service {
    pub servers: [Redis; 2],
    pub sentinels: Vec<Sentinel>,
}

/// One sentinel.
pub struct Sentinel {
    process: Child,
    _directory: TempDir,
    port: u16,
}

impl Service {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Both servers have these additional options, such as `--min-replicas-to-write`.
    pub async fn start_with(options: &[&str]) -> Self {
        // A replica is synchronized at once, not after the default 5 s.
        let options = [&["--repl-diskless-sync-delay", "0"], options].concat();
        let primary = Redis::start_with(&options).await;
        let port = primary.port().to_string();
        let replica = Redis::start_with(&[&["--replicaof", "127.0.0.1", &port], &*options].concat()).await;
        let servers = [primary, replica];
        is_synchronized(&servers[1]).await;
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(Sentinel::watch(&servers[0], 2).await);
        }
        let service = Self { servers, sentinels };
        for sentinel in &service.sentinels {
            // It knows the two others and the replica, and can reach all of them.
            until(|| async move { sentinel.has_quorum().await && sentinel.usable_replicas().await == 1 }).await;
        }
        service
    }

    pub fn url(&self) -> String {
        url(&self.sentinels.iter().map(Sentinel::port).collect::<Vec<_>>())
    }

    /// Waits until every sentinel names this server as the primary.
    pub async fn is_primary(&self, server: &Redis) {
        for sentinel in &self.sentinels {
            until(|| async { sentinel.primary().await == Some(server.port()) }).await;
        }
    }
}

/// The URL of the service by these sentinels.
pub fn url(sentinels: &[u16]) -> String {
    let hosts: Vec<_> = sentinels.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+sentinel://{LOGIN}@{}/{SERVICE}", hosts.join(","))
}

/// Waits until this server is a replica that has the data of its primary. A sentinel closes the connections to a server
/// that it demotes.
pub async fn is_synchronized(replica: &Redis) {
    let info = async || {
        let mut connection = redis::Client::open(replica.url())?.get_multiplexed_async_connection().await?;
        redis::cmd("INFO").arg("replication").query_async::<String>(&mut connection).await
    };
    until(|| async { info().await.is_ok_and(|info| info.contains("master_link_status:up")) }).await;
}

impl Sentinel {
    /// A sentinel that watches this primary. `quorum` sentinels must agree on a failover.
    pub async fn watch(primary: &Redis, quorum: u32) -> Self {
        Self::watch_port(primary.port(), quorum, "").await
    }

    /// As [`watch`](Self::watch), with the port that the primary announces, and more settings of the sentinel.
    pub async fn watch_port(primary: u16, quorum: u32, settings: &str) -> Self {
        let sentinel = Self::start(primary, quorum, settings, |port| vec!["--port".into(), port.to_string()]).await;
        for (name, value) in PACE {
            let () = sentinel.call(&["DEBUG", name, value]).await.unwrap();
        }
        sentinel
    }

    /// A sentinel that watches this primary, and accepts and uses only TLS.
    pub async fn watch_with_tls(primary: &Redis, files: &TlsFilePaths) -> Self {
        let only_tls = ["--port", "0", "--tls-replication", "yes"].map(str::to_owned);
        Self::start(primary.port(), 1, "", |port| [only_tls.to_vec(), tls_options(port, files)].concat()).await
    }

    async fn start(primary: u16, quorum: u32, settings: &str, options: impl Fn(u16) -> Vec<String>) -> Self {
        for _ in 0..20 {
            let (directory, port) = (tempfile::tempdir().unwrap(), free_port());
            // A sentinel writes to its file of settings.
            let settings = format!(
                "bind 127.0.0.1\nlogfile redis.log\n\
                 sentinel monitor {SERVICE} 127.0.0.1 {primary} {quorum}\n\
                 sentinel down-after-milliseconds {SERVICE} 1000\n\
                 sentinel failover-timeout {SERVICE} 4000\n\
                 {settings}\n"
            );
            std::fs::write(directory.path().join("sentinel.conf"), settings).unwrap();
            let mut process = Command::new("redis-server")
                .args(["sentinel.conf", "--sentinel"])
                .args(options(port))
                .current_dir(directory.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            if listens(&mut process, || log(&directory).contains("Sentinel ID is")).await {
                return Self { process, _directory: directory, port };
            }
        }
        panic!("redis-server --sentinel did not start");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The reply to `SENTINEL` with these arguments.
    pub async fn call<T: FromRedisValue>(&self, arguments: &[&str]) -> RedisResult<T> {
        let mut connection = connect(format!("redis://127.0.0.1:{}", self.port)).await;
        redis::cmd("SENTINEL").arg(arguments).query_async(&mut connection).await
    }

    /// Requires a password.
    pub async fn require_password(&self, password: &str) {
        let mut connection = connect(format!("redis://127.0.0.1:{}", self.port)).await;
        let () = redis::cmd("ACL")
            .arg(&["SETUSER", "default", "resetpass"])
            .arg(format!(">{password}"))
            .query_async(&mut connection)
            .await
            .unwrap();
    }

    /// Sends a signal: `-STOP` freezes the process.
    pub fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// Port of the server that this sentinel names.
    pub(crate) async fn primary(&self) -> Option<u16> {
        let named: Option<(String, u16)> = self.call(&["GET-MASTER-ADDR-BY-NAME", SERVICE]).await.unwrap();
        named.map(|(_, port)| port)
    }

    /// Whether all three sentinels are up and a failover is possible.
    pub(crate) async fn has_quorum(&self) -> bool {
        self.call::<String>(&["CKQUORUM", SERVICE]).await.is_ok_and(|reply| reply.starts_with("OK 3"))
    }

    /// Number of replicas that this sentinel would promote: their links are up, by its own account.
    pub(crate) async fn usable_replicas(&self) -> usize {
        let replicas: Vec<HashMap<String, String>> = self.call(&["REPLICAS", SERVICE]).await.unwrap();
        let usable =
            |replica: &&HashMap<String, String>| replica["flags"] == "slave" && replica["master-link-status"] == "ok";
        replicas.iter().filter(usable).count()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
