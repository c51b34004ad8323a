//! Real PostgreSQL servers: one that all tests share, with a database for each test, and separate ones.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
pub use tokio_postgres::Client;
use tokio_postgres::NoTls;

use super::redis::free_port;
use super::{TIMEOUT, until, workspace};

/// One server. It ends with its test, also if the test process is killed.
pub struct Postgres {
    directory: PathBuf,
    pub port: u16,
    options: Vec<String>,
    /// Whether its directory is removed when the server ends. The shared server is never dropped.
    passing: bool,
    process: Option<Child>,
}

/// A database of one test.
pub struct Base {
    pub port: u16,
    pub name: String,
    /// A connection for the test.
    pub client: Client,
}

/// The server that all tests share.
fn shared() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(|| Postgres::made(&["max_connections=400"], true))
}

impl Base {
    /// A database on the shared server, with the inbox's table in it.
    pub async fn with_inbox() -> Self {
        let base = Self::empty().await;
        base.client.batch_execute(&migration()).await.unwrap();
        base
    }

    /// An empty database on the shared server.
    pub async fn empty() -> Self {
        Self::on(shared()).await
    }

    /// A database on the shared server with encoding LATIN1, which has only the characters of Western Europe.
    pub async fn in_latin1() -> Self {
        Self::in_latin1_on(shared()).await
    }

    /// A database on this server with encoding LATIN1.
    pub async fn in_latin1_on(server: &Postgres) -> Self {
        Self::made(server, "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0").await
    }

    /// An empty database on this server.
    pub async fn on(server: &Postgres) -> Self {
        Self::made(server, "").await
    }

    async fn made(server: &Postgres, options: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::SeqCst));
        let admin = connect(server.port, "postgres").await;
        admin.batch_execute(&format!("CREATE DATABASE {name} {options}")).await.unwrap();
        let client = connect(server.port, &name).await;
        Self { port: server.port, name, client }
    }

    pub fn url(&self) -> String {
        self.url_by(self.port)
    }

    /// Its URL with another port, such as that of a proxy.
    pub fn url_by(&self, port: u16) -> String {
        format!("postgres://app@127.0.0.1:{port}/{}", self.name)
    }

    /// The first value of the only row of a query.
    pub async fn count(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }
}

/// The migration of the inbox.
pub fn migration() -> String {
    std::fs::read_to_string(workspace("crates/postgres/sql/inbox.sql")).unwrap()
}

pub async fn connect(port: u16, name: &str) -> Client {
    let url = format!("postgres://app@127.0.0.1:{port}/{name}");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Path of a program of PostgreSQL. Debian installs them by version, outside of `PATH`.
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for parent in ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"] {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path().join("bin")).collect();
        found.sort();
        folders.extend(found.into_iter().rev());
    }
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} of PostgreSQL is not installed; `make test` installs it"))
}

impl Postgres {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server with these additional settings.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::made(settings, false)
    }

    fn made(settings: &[&str], passing: bool) -> Self {
        let directory = TempDir::with_prefix("postgres-").unwrap().keep();
        give_away(&directory);
        // The cluster is created once and copied, because `initdb` is slow.
        let pattern = if passing { make_pattern(&directory) } else { shared().directory.join("pattern") };
        let copied = as_server_user("cp").arg("-R").args([&pattern, &directory.join("cluster")]).status().unwrap();
        assert!(copied.success());
        let options = settings.iter().map(ToString::to_string).collect();
        let mut server = Self { directory, port: 0, options, passing, process: None };
        // Another process may take the port first; then another port is tried.
        for _ in 0..20 {
            server.port = free_port();
            if server.run() {
                return server;
            }
        }
        panic!("PostgreSQL did not start: {}", server.log());
    }

    pub fn cluster(&self) -> PathBuf {
        self.directory.join("cluster")
    }

    /// Creates a file in the cluster's directory that only the server can read.
    pub fn put(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.cluster().join(name);
        std::fs::File::create(&path).unwrap().write_all(contents).unwrap();
        give_away(&path);
        assert!(Command::new("chmod").arg("600").arg(&path).status().unwrap().success());
        path
    }

    /// Kills the server without closing its connections, as in an outage.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            process.wait().unwrap();
        }
    }

    /// Starts the server again after [`kill`](Self::kill), with the same port and directory.
    pub fn restart(&mut self) {
        assert!(self.run(), "{}", self.log());
    }

    /// Restarts the server with these additional settings instead of the earlier ones.
    pub fn restart_with(&mut self, settings: &[&str]) {
        self.kill();
        self.options = settings.iter().map(ToString::to_string).collect();
        self.restart();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Whether this process accepts connections, by its log. Another server may listen on the same port.
    fn run(&mut self) -> bool {
        std::fs::write(self.directory.join("log"), "").unwrap();
        // The shell stops the server when its standard input is closed, also if the test process was killed.
        let script = r#""$@" >>log 2>&1 & read -r _; kill -QUIT $!; wait; if [ "$PASSING" ]; then rm -rf "$PWD"; fi"#;
        let mut command = as_server_user("sh");
        command.args(["-c", script, "sh"]).arg(program("postgres")).arg("-D").arg(self.cluster());
        let port = format!("port={}", self.port);
        let usual =
            ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=16MB", &port];
        for option in usual.into_iter().chain(self.options.iter().map(String::as_str)) {
            command.arg("-c").arg(option);
        }
        give_away(&self.directory.join("log"));
        if self.passing {
            command.env("PASSING", "yes");
        }
        let process = command.current_dir(&self.directory).stdin(Stdio::piped()).spawn().unwrap();
        self.process = Some(process);
        let begin = Instant::now();
        while begin.elapsed() < TIMEOUT {
            let log = self.log();
            if log.contains("ready to accept") {
                return true;
            }
            if log.contains("could not create any TCP/IP sockets") || log.contains("database system is shut down") {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
        false
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Creates the cluster that is copied for each server.
fn make_pattern(directory: &Path) -> PathBuf {
    let pattern = directory.join("pattern");
    let made = as_server_user(program("initdb").to_str().unwrap())
        .args(["--no-sync", "--auth=trust", "--username=app", "--encoding=UTF8", "--locale=C", "--pgdata"])
        .arg(&pattern)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    pattern
}

/// PostgreSQL does not run as root.
fn as_server_user(command: &str) -> Command {
    if !is_root() {
        return Command::new(command);
    }
    let mut as_nobody = Command::new("setpriv");
    as_nobody.args(["--reuid=nobody", "--regid=65534", "--clear-groups", "--", command]).current_dir("/");
    as_nobody
}

fn give_away(path: &Path) {
    if is_root() {
        assert!(Command::new("chown").arg("-R").arg("nobody").arg(path).status().unwrap().success());
    }
}

fn is_root() -> bool {
    static ROOT: OnceLock<bool> = OnceLock::new();
    *ROOT.get_or_init(|| Command::new("id").arg("-u").output().unwrap().stdout.trim_ascii() == b"0")
}

/// Waits until this query returns this count.
pub async fn until_count(base: &Base, query: &str, count: i64) {
    until(|| async { base.count(query).await == count }).await;
}
