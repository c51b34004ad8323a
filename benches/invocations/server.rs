//! A Redis of the benchmark's own, on a free port and in its own folder.

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

/// For a server to come up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Of these the benchmark itself sends some, and none is sent for a message.
const NOT_OF_A_MESSAGE: [&str; 12] = [
    "auth", "client", "cluster", "command", "config", "dbsize", "flushall", "hello", "info", "ping", "script", "select",
];

/// Whoever looks for a server of its own at this port, as tests on the same machine may, is turned
/// away.
const PASSWORD: &str = "benchmark";

pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    connection: Connection,
    _directory: TempDir,
}

/// What a server did since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Microseconds in commands.
    pub(crate) command_us: f64,
    /// Commands that were sent to it.
    pub(crate) commands: f64,
    /// Microseconds on the processor, reading, answering and all else.
    pub(crate) cpu_us: f64,
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
    pub(crate) fn start(options: &[&str]) -> Fallible<Self> {
        let directory = tempfile::tempdir()?;
        let log = directory.path().join("redis.log");
        let until = Instant::now() + PATIENCE;
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
            // Somebody may have taken the port meanwhile; then it ends, and another is tried.
            while process.try_wait()?.is_none() {
                if fs::read_to_string(&log).unwrap_or_default().contains("Ready to accept connections") {
                    let connection = redis::Client::open(url(port))?.get_connection()?;
                    return Ok(Self { process, port, connection, _directory: directory });
                }
                sleep(Duration::from_millis(5));
            }
            fs::remove_file(&log)?;
        }
        Err("no redis-server comes up".into())
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }

    pub(crate) fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> Fallible<T> {
        let (name, arguments) = words.split_first().ok_or("no command")?;
        Ok(cmd(name).arg(arguments).query(&mut self.connection)?)
    }

    pub(crate) fn flush(&mut self) -> Fallible<()> {
        self.ask(&["FLUSHALL", "SYNC"])
    }

    pub(crate) fn records(&mut self) -> Fallible<usize> {
        self.ask(&["DBSIZE"])
    }

    pub(crate) fn version(&mut self) -> Fallible<String> {
        let server = self.info("server")?;
        let version = |name: &str| server.get(&format!("{}_version", name.to_lowercase()));
        // Valkey gives a Redis version too, for those who ask for one.
        let found = ["Valkey", "Redis"].into_iter().find_map(|name| Some(format!("{name} {}", version(name)?)));
        Ok(found.unwrap_or_default())
    }

    /// Bytes that are in use.
    pub(crate) fn memory(&mut self) -> Fallible<f64> {
        Ok(self.info("memory")?["used_memory"].parse()?)
    }

    /// What `work` is for the server.
    pub(crate) fn load_of<T>(&mut self, work: impl FnOnce() -> Fallible<T>) -> Fallible<(T, Load)> {
        self.ask::<()>(&["CONFIG", "RESETSTAT"])?;
        let before = self.cpu_us()?;
        let done = work()?;
        let cpu_us = self.cpu_us()? - before;
        let commands: Vec<(String, f64, f64)> = self
            .info("commandstats")?
            .iter()
            .filter_map(|(name, fields)| {
                let name = name.strip_prefix("cmdstat_")?;
                let field = |wanted: &str| fields.split(',').find_map(|field| field.strip_prefix(wanted)?.parse().ok());
                Some((name.to_owned(), field("calls=")?, field("usec=")?))
            })
            .filter(|(name, ..)| !NOT_OF_A_MESSAGE.iter().any(|other| name.split('|').next() == Some(other)))
            .collect();
        // What a script calls is counted with the script, and once more under its own name.
        let runs_scripts = |name: &str| name.starts_with("eval") || name.starts_with("fcall");
        let scripts = commands.iter().any(|(name, ..)| runs_scripts(name));
        let counted = || commands.iter().filter(|(name, ..)| !scripts || runs_scripts(name));
        let load = Load {
            command_us: counted().map(|(_, _, us)| us).sum(),
            commands: counted().map(|(_, calls, _)| calls).sum(),
            cpu_us,
        };
        Ok((done, load))
    }

    fn cpu_us(&mut self) -> Fallible<f64> {
        let cpu = self.info("cpu")?;
        let seconds = cpu["used_cpu_user"].parse::<f64>()? + cpu["used_cpu_sys"].parse::<f64>()?;
        Ok(seconds * 1e6)
    }

    fn info(&mut self, section: &str) -> Fallible<HashMap<String, String>> {
        let text: String = self.ask(&["INFO", section])?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Of a server behind this port, or of a relay to one.
pub(crate) fn url(port: u16) -> String {
    format!("redis://:{PASSWORD}@127.0.0.1:{port}")
}
