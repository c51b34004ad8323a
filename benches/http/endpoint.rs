//! A server process, and the connections to it.

use std::io::{BufRead, BufReader};
use std::ops::Sub;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use benches::Fallible;
use futures_util::future::try_join_all;

use crate::load::Connection;

/// An endpoint that can be measured.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Whether its layer is that of another crate. If it runs a handler twice for a key, that is reported. If another
    /// endpoint with a layer does, the benchmark fails.
    pub(crate) is_peer: bool,
}

/// The floor, which has no layer.
pub(crate) const FLOOR: &str = "none";

/// The floor is the first.
pub(crate) const KINDS: [Kind; 6] = [
    Kind { name: FLOOR, is_peer: false },
    Kind { name: "lua", is_peer: false },
    Kind { name: "lua-pool", is_peer: false },
    Kind { name: "watch", is_peer: false },
    Kind { name: "idempotent", is_peer: true },
    Kind { name: "axum-idempotent", is_peer: true },
];

impl Kind {
    /// Whether its handler must run once for each key.
    pub(crate) fn must_run_once(&self) -> bool {
        !self.is_peer && self.name != FLOOR
    }
}

/// A server process that runs until this is dropped.
pub(crate) struct Endpoint {
    pub(crate) kind: &'static Kind,
    process: Child,
    pub(crate) connections: Vec<Connection>,
}

/// What a server process counts.
#[derive(Clone, Copy)]
pub(crate) struct Counters {
    /// Runs of the handler.
    pub(crate) runs: u32,
    /// Repeated transactions.
    pub(crate) retries: u32,
    pub(crate) cpu_us: f64,
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { runs: self.runs - other.runs, retries: self.retries - other.retries, cpu_us: self.cpu_us - other.cpu_us }
    }
}

impl Endpoint {
    /// Starts the server and opens connections to it.
    pub(crate) async fn start(kind: &'static Kind, program: &Path, redis: &str, connections: usize) -> Fallible<Self> {
        let mut process = Command::new(program)
            .args([kind.name, redis])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let stdout = process.stdout.take();
        let mut endpoint = Self { kind, process, connections: Vec::new() };
        let mut port = String::new();
        BufReader::new(stdout.ok_or("no output")?).read_line(&mut port)?;
        let port = port.trim().parse().map_err(|_| format!("{} did not start", kind.name))?;
        endpoint.connections = try_join_all((0..connections).map(|_| Connection::open(port))).await?;
        Ok(endpoint)
    }

    pub(crate) async fn counters(&mut self) -> Fallible<Counters> {
        let (_, body) = self.connections[0].send(b"GET /counters HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
        let text = String::from_utf8_lossy(body);
        let mut numbers = text.split(' ');
        let mut next = || numbers.next().ok_or("too few counters");
        let (runs, retries, cpu_ns) = (next()?.parse()?, next()?.parse()?, next()?.parse::<f64>()?);
        Ok(Counters { runs, retries, cpu_us: cpu_ns / 1e3 })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
