//! A redis-server on a free port and in a folder of its own, and its statistics.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::iter::Sum;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, cmd};
use tempfile::TempDir;

use crate::Fallible;

/// Limit for the start of the server.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Commands that are sent once per connection or by the benchmark, not per message.
const NOT_PER_MESSAGE: [&str; 12] = [
    "auth", "client", "cluster", "command", "config", "dbsize", "flushall", "hello", "info", "ping", "script", "select",
];

/// Rejects clients of other servers on the same machine, such as tests, that reuse this port.
const PASSWORD: &str = "benchmark";

pub struct Server {
    process: Child,
    pub port: u16,
    connection: RefCell<Connection>,
    _directory: TempDir,
}

/// What a server did during a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Microseconds in commands.
    pub command_us: f64,
    /// Commands that it received.
    pub commands: f64,
    /// Microseconds of processor time, which includes reading requests and writing replies.
    pub cpu_us: f64,
}

impl Sum for Load {
    fn sum<I: Iterator<Item = Self>>(loads: I) -> Self {
        loads.fold(Self::default(), |one, other| Self {
            command_us: one.command_us + other.command_us,
            commands: one.commands + other.commands,
            cpu_us: one.cpu_us + other.cpu_us,
        })
    }
}

impl Server {
    /// Starts a server with these options besides the usual ones.
    pub fn start(options: &[&str]) -> Fallible<Self> {
        let directory = tempfile::tempdir()?;
        let log = directory.path().join("redis.log");
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut process = Command::new("redis-server")
                .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--logfile", "redis.log"])
                .args(["--port", &port.to_string(), "--requirepass", PASSWORD])
                .args(options)
                .current_dir(directory.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| format!("redis-server: {error}; `make bench` installs it"))?;
            // If another process took the port in the meantime, the server ends, and the next port is tried.
            while process.try_wait()?.is_none() {
                if fs::read_to_string(&log).unwrap_or_default().contains("Ready to accept connections") {
                    let connection = RefCell::new(redis::Client::open(url(port))?.get_connection()?);
                    return Ok(Self { process, port, connection, _directory: directory });
                }
                sleep(Duration::from_millis(5));
            }
            fs::remove_file(&log)?;
        }
        Err("redis-server did not start".into())
    }

    pub fn url(&self) -> String {
        url(self.port)
    }

    /// Sends a command.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> Fallible<T> {
        let (name, arguments) = words.split_first().ok_or("the command is empty")?;
        Ok(cmd(name).arg(arguments).query(&mut *self.connection.borrow_mut())?)
    }

    pub fn flush(&self) -> Fallible<()> {
        self.command(&["FLUSHALL", "SYNC"])
    }

    /// The number of keys.
    pub fn records(&self) -> Fallible<usize> {
        self.command(&["DBSIZE"])
    }

    /// Name and version.
    pub fn version(&self) -> Fallible<String> {
        let server = self.info("server")?;
        let version = |name: &str| server.get(&format!("{}_version", name.to_lowercase()));
        // Valkey reports a Redis version too, for compatibility.
        let found = ["Valkey", "Redis"].into_iter().find_map(|name| Some(format!("{name} {}", version(name)?)));
        Ok(found.unwrap_or_default())
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> Fallible<f64> {
        Ok(self.info("memory")?["used_memory"].parse()?)
    }

    /// Runs `work` and returns the load that it causes on the server.
    pub fn load_of<T>(&self, work: impl FnOnce() -> Fallible<T>) -> Fallible<(T, Load)> {
        let before = self.start_load()?;
        let done = work()?;
        Ok((done, self.load_since(before)?))
    }

    /// Starts a measurement of the load. Returns the processor time so far.
    pub fn start_load(&self) -> Fallible<f64> {
        self.command::<()>(&["CONFIG", "RESETSTAT"])?;
        self.cpu_us()
    }

    /// The load since the start of the measurement.
    pub fn load_since(&self, cpu_before: f64) -> Fallible<Load> {
        let cpu_us = self.cpu_us()? - cpu_before;
        let commands: Vec<(String, f64, f64)> = self
            .info("commandstats")?
            .iter()
            .filter_map(|(name, fields)| {
                let name = name.strip_prefix("cmdstat_")?;
                let field = |wanted: &str| fields.split(',').find_map(|field| field.strip_prefix(wanted)?.parse().ok());
                Some((name.to_owned(), field("calls=")?, field("usec=")?))
            })
            .filter(|(name, ..)| !NOT_PER_MESSAGE.iter().any(|other| name.split('|').next() == Some(other)))
            .collect();
        // Redis counts the commands of a script twice: as part of the script and by their own name.
        let runs_scripts = |name: &str| name.starts_with("eval") || name.starts_with("fcall");
        let scripts = commands.iter().any(|(name, ..)| runs_scripts(name));
        let counted = || commands.iter().filter(|(name, ..)| !scripts || runs_scripts(name));
        Ok(Load {
            command_us: counted().map(|(_, _, us)| us).sum(),
            commands: counted().map(|(_, calls, _)| calls).sum(),
            cpu_us,
        })
    }

    fn cpu_us(&self) -> Fallible<f64> {
        let cpu = self.info("cpu")?;
        let seconds = cpu["used_cpu_user"].parse::<f64>()? + cpu["used_cpu_sys"].parse::<f64>()?;
        Ok(seconds * 1e6)
    }

    fn info(&self, section: &str) -> Fallible<HashMap<String, String>> {
        let text: String = self.command(&["INFO", section])?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The URL of a server on this port, or of a proxy to one.
pub fn url(port: u16) -> String {
    format!("redis://:{PASSWORD}@127.0.0.1:{port}")
}
