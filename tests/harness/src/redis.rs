//! Real Redis servers, each on a free port and in its own directory. They end with their test.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use idempotent_sqs::{RedisSettings, RedisStore};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, Parser};
use redis_test::utils::{TlsFilePaths, build_keys_and_certs_for_tls};
use tempfile::TempDir;
use tokio::net::TcpSocket;

use super::{TIMEOUT, until};

/// One server.
pub struct Redis {
    process: Child,
    directory: TempDir,
    port: u16,
    options: Vec<String>,
    scheme: &'static str,
}

impl Redis {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A server with these additional options, such as `--requirepass`.
    pub async fn start_with(options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let directory = tempfile::tempdir().unwrap();
        // Another process may take the port first; then another port is tried.
        for _ in 0..20 {
            let port = free_port();
            let mut process = spawn(&directory, &["--port".into(), port.to_string()], &options);
            if listens(&mut process, || is_ready(&directory)).await {
                return Self { process, directory, port, options, scheme: "redis" };
            }
        }
        panic!("redis-server did not start: {}", log(&directory));
    }

    /// A server that accepts only TLS, with a certificate of its own certificate authority.
    pub async fn start_with_tls() -> (Self, TlsFilePaths) {
        let directory = tempfile::tempdir().unwrap();
        let files = build_keys_and_certs_for_tls(&directory);
        for _ in 0..20 {
            let port = free_port();
            let options = tls_options(port, &files);
            let mut process = spawn(&directory, &["--port".into(), "0".into()], &options);
            if listens(&mut process, || is_ready(&directory)).await {
                return (Self { process, directory, port, options, scheme: "rediss" }, files);
            }
        }
        panic!("redis-server with TLS did not start: {}", log(&directory));
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// A store on this server, with a new namespace.
    pub fn store(&self) -> RedisStore {
        store(&self.url(), false)
    }

    /// A connection for the test.
    pub async fn connection(&self) -> MultiplexedConnection {
        connect(self.url()).await
    }

    /// Closes every connection except the one that sends this command.
    pub async fn kill_connections(&self) {
        let mut connection = self.connection().await;
        let () = redis::cmd("CLIENT").arg("KILL").arg("SKIPME").arg("yes").query_async(&mut connection).await.unwrap();
    }

    /// Kills the process. Data that is not in its append-only file is lost.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts the server again after [`kill`](Self::kill), with the same port and directory.
    pub async fn restart(&mut self) {
        self.process = spawn(&self.directory, &["--port".into(), self.port.to_string()], &self.options);
        assert!(listens(&mut self.process, || is_ready(&self.directory)).await, "{}", log(&self.directory));
    }

    /// Its append-only file, which must be on. It can be read after the server has replaced it.
    pub async fn append_only(&self) -> AppendOnly {
        let mut connection = self.connection().await;
        until(|| {
            let mut connection = connection.clone();
            async move {
                let info: String = redis::cmd("INFO").arg("persistence").query_async(&mut connection).await.unwrap();
                info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
            }
        })
        .await;
        let files: Vec<String> =
            redis::cmd("CONFIG").arg(&["GET", "appenddirname"]).query_async(&mut connection).await.unwrap();
        let parts =
            std::fs::read_dir(self.directory.path().join(&files[1])).unwrap().map(|entry| entry.unwrap().path());
        let number = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?.strip_suffix(".incr.aof")?;
            name.rsplit('.').next()?.parse::<u64>().ok()
        };
        let last = parts.filter(|path| number(path).is_some()).max_by_key(number);
        AppendOnly(File::open(last.unwrap()).unwrap())
    }

    /// Sends a signal: `-STOP` freezes the process, `-CONT` resumes it.
    pub fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(done.success());
    }
}

/// What a server appends to its file.
pub struct AppendOnly(File);

impl AppendOnly {
    /// The commands so far.
    pub fn commands(&mut self) -> Vec<Vec<Vec<u8>>> {
        self.0.rewind().unwrap();
        let (mut file, mut parser, mut commands) = (BufReader::new(&self.0), Parser::new(), Vec::new());
        // The last command of a server that was killed may be incomplete.
        while let Ok(command) = parser.parse_value(&mut file) {
            commands.push(redis::from_redis_value(command).unwrap());
        }
        commands
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection for the test, with timeouts that allow for a slow test machine.
pub async fn connect(to: impl IntoConnectionInfo) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(TIMEOUT)).set_response_timeout(Some(TIMEOUT));
    let client = redis::Client::open(to).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// A store on the server or cluster at `url`, with a new namespace.
pub fn store(url: &str, cluster: bool) -> RedisStore {
    store_with_timeout(url, cluster, Duration::from_millis(500))
}

/// As [`store`], with this timeout.
pub fn store_with_timeout(url: &str, cluster: bool, timeout: Duration) -> RedisStore {
    let mut settings = RedisSettings::new(url.parse().unwrap(), format!("test-{:08x}", getrandom::u32().unwrap()));
    settings.cluster = cluster;
    settings.timeout = timeout;
    RedisStore::new(&settings).unwrap()
}

/// A port on which a server can be started. Until then, any process may get it.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A port that refuses connections. It is bound until this process ends, so no server can get it.
pub fn closed_port() -> u16 {
    static NOT_LISTENING: LazyLock<TcpSocket> = LazyLock::new(|| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        socket
    });
    NOT_LISTENING.local_addr().unwrap().port()
}

/// Options of a process that accepts only TLS on this port.
pub(crate) fn tls_options(port: u16, files: &TlsFilePaths) -> Vec<String> {
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    vec![
        "--tls-port".into(),
        port.to_string(),
        "--tls-cert-file".into(),
        path(&files.redis_crt),
        "--tls-key-file".into(),
        path(&files.redis_key),
        "--tls-ca-cert-file".into(),
        path(&files.ca_crt),
        "--tls-auth-clients".into(),
        "no".into(),
    ]
}

fn spawn(directory: &TempDir, port: &[String], options: &[String]) -> Child {
    // The log of an earlier process would be mistaken for that of this one.
    let _ = std::fs::remove_file(directory.path().join("redis.log"));
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--logfile", "redis.log", "--enable-debug-command", "yes"])
        .args(port)
        .args(options)
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is not installed; `make test` installs it")
}

/// Whether this process becomes ready, by its log. Another server may listen on the same port, in which case this
/// process ends.
pub(crate) async fn listens(process: &mut Child, is_ready: impl Fn() -> bool) -> bool {
    let mut ended = false;
    until(|| {
        ended = process.try_wait().unwrap().is_some();
        let ready = is_ready();
        async move { ended || ready }
    })
    .await;
    !ended
}

fn is_ready(directory: &TempDir) -> bool {
    log(directory).contains("Ready to accept connections")
}

pub(crate) fn log(directory: &TempDir) -> String {
    std::fs::read_to_string(directory.path().join("redis.log")).unwrap_or_default()
}
