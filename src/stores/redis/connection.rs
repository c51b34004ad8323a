//! The connection to one server or to a cluster, and its repair.
//!
//! The client library reconnects neither from a demoted primary nor from a peer that is silent. So a connection whose
//! call failed is dropped here, and the call is sent again on a new one: every script is safe to run twice.

#[cfg(feature = "records")]
mod ask;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, SystemTime};

use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::RedisSettings;
use super::credentials::{Logins, is_refusal, signed_in};
use super::preflight;
use super::scripts::{Dialect, Terms, Waiting};
use super::url::RedisUrl;
use crate::identity::Login;
use crate::store::StoreError;

/// Once on the open connection and once on a new one. A server that refuses a new connection needs longer to recover
/// than a caller can wait.
const TRIES: u32 = 2;

/// Records in one run of a script. Redis serves no other client during a run: half a millisecond for this many, at 4 to
/// 8 µs a record (`INFO commandstats`). More would gain little, as a run has a fixed cost of only 10 µs.
const RECORDS_A_RUN: usize = 64;

/// Redirections that the cluster client follows within one try.
const REDIRECTIONS: u32 = 3;

pub(super) struct Connection {
    target: Target,
    logins: Logins,
    timeout: Duration,
    /// Counts connection attempts, so that only the first of the callers that wait for one connects.
    dials: AtomicU64,
    wire: Mutex<Dialled>,
    /// Whether the server has been looked over.
    checked: Once,
    /// How many findings that look had.
    findings: Arc<OnceLock<u64>>,
    /// Whether the server has refused a script for its first line, as Redis 6.2 does.
    no_flags: AtomicBool,
}

enum Target {
    Server(Box<Client>),
    Cluster(Box<ClusterClient>),
}

#[derive(Clone)]
enum Wire {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

struct Dialled {
    /// Which dial this is the result of.
    dial: u64,
    /// When, by the wall clock, which goes on while the process is frozen.
    at: SystemTime,
    wire: RedisResult<Wire>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(settings: &RedisSettings) -> Result<Self, String> {
        let logins = Logins::new(&settings.credentials, &settings.url)?;
        let target = Target::new(settings, &logins).map_err(|error| error.to_string())?;
        let not_yet = RedisError::from((ErrorKind::Io, "not connected yet"));
        let wire = Mutex::new(Dialled { dial: 0, at: SystemTime::UNIX_EPOCH, wire: Err(not_yet) });
        let (dials, checked, findings) = (AtomicU64::new(0), Once::new(), Arc::default());
        let no_flags = AtomicBool::new(false);
        Ok(Self { target, logins, timeout: settings.timeout, dials, wire, checked, findings, no_flags })
    }

    /// How many findings the look at the server had, once it was had.
    pub(super) fn findings(&self) -> Option<u64> {
        self.findings.get().copied()
    }

    /// How many records may share one run of a script. On a cluster their keys are on different nodes, so each record
    /// has a run of its own, all in flight at once.
    pub(super) fn records_a_run(&self) -> usize {
        match self.target {
            Target::Server(_) => RECORDS_A_RUN,
            Target::Cluster(_) => 1,
        }
    }

    /// One run of a script for these calls, which agree on its terms: an answer for each that is left. Calls
    /// whose callers have given up are taken out before anything is sent.
    pub(super) async fn run(&self, terms: &Terms, calls: &mut Vec<Waiting>) -> Result<Vec<Vec<u8>>, StoreError> {
        // Whether a try before this one may have been executed.
        let mut may_have_run = false;
        let mut last = RedisError::from((ErrorKind::Io, "nothing was tried"));
        for _ in 0..TRIES {
            match self.try_run(terms, calls).await {
                Ok(answers) if answers.len() == calls.len() => return Ok(answers),
                Ok(_) => return Err(StoreError::unavailable("the number of replies is not that of the records")),
                Err(Failed { error, sent }) => {
                    // A cluster's client tries by itself, and tells of its last try only.
                    let refused = matches!(self.target, Target::Server(_)) && is_refused_whole(&error);
                    may_have_run |= sent && !refused;
                    let is_final = repeats_on_any_connection(&error);
                    last = error;
                    if is_final {
                        break;
                    }
                }
            }
        }
        let reason = self.explained(last);
        Err(if may_have_run { StoreError::unavailable(reason) } else { StoreError::unreachable(reason) })
    }

    async fn try_run(&self, terms: &Terms, calls: &mut Vec<Waiting>) -> Result<Vec<Vec<u8>>, Failed> {
        let (dial, mut wire) = self.wire().await.map_err(|error| Failed { error, sent: false })?;
        let outcome = self.evaluate(&mut wire, terms, calls).await;
        if let Err(error) = &outcome
            && !repeats_on_any_connection(error)
        {
            self.drop_wire(dial, error).await;
        }
        outcome.map_err(|error| Failed { error, sent: true })
    }

    async fn evaluate(&self, wire: &mut Wire, terms: &Terms, calls: &mut Vec<Waiting>) -> RedisResult<Vec<Vec<u8>>> {
        let mut whole = false;
        loop {
            // The wait for a connection, or for the reply before this one, may have taken longer than an
            // invocation had: a claim would hold its record while no work runs, and what was given up would be
            // settled after all.
            calls.retain(|waiting| !waiting.answer.is_closed());
            if calls.is_empty() {
                return Ok(Vec::new());
            }
            let dialect = if self.no_flags.load(Ordering::Relaxed) { Dialect::NoFlags } else { Dialect::Flags };
            let command = if whole {
                command("EVAL", terms.script(dialect), terms, calls)
            } else {
                command("EVALSHA", terms.hash(dialect), terms, calls)
            };
            match wire.ask(&command, self.timeout).await {
                // A restart, a failover, SCRIPT FLUSH and a slot's new node all lose the script. EVAL
                // brings it to the very node that lacks it.
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) && !whole => whole = true,
                Err(error) if whole && dialect == Dialect::Flags && is_not_compiled(&error) => {
                    if !self.no_flags.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            "the server does not know script flags, as Redis 7.0 and Valkey do: when it is out of \
                             memory, finished work cannot be recorded"
                        );
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// The connection at hand, or a new one.
    async fn wire(&self) -> RedisResult<(u64, Wire)> {
        let known = self.dials.load(Ordering::SeqCst);
        let mut dialled = self.wire.lock().await;
        // An attempt that another call made while this one waited counts, also where it failed: else every waiting call
        // would make a failing attempt of its own, one after another.
        if (dialled.wire.is_err() && dialled.dial <= known) || self.is_over(&dialled) {
            dialled.dial = self.dials.fetch_add(1, Ordering::SeqCst) + 1;
            dialled.at = SystemTime::now();
            // Boxed, since the future of a connection attempt with AWS's clients is large.
            dialled.wire = Box::pin(self.dial()).await;
            if let Ok(wire) = &dialled.wire {
                self.check_up(wire.clone());
            }
        }
        dialled.wire.clone().map(|wire| (dialled.dial, wire))
    }

    /// Whether a connection is as old as its login allows. One from the future is too: the clock was
    /// set, and nothing tells its age.
    fn is_over(&self, dialled: &Dialled) -> bool {
        let over = |session| dialled.at.elapsed().map_or(true, |age| age >= session);
        dialled.wire.is_ok() && self.logins.session().is_some_and(over)
    }

    /// A new connection, signed in. A refused login is tried once more if it may have changed.
    async fn dial(&self) -> RedisResult<Wire> {
        match self.try_dial().await {
            Err(error) if is_refusal(&error) && self.logins.refused().await => self.try_dial().await,
            outcome => outcome,
        }
    }

    async fn try_dial(&self) -> RedisResult<Wire> {
        // Before the clock starts: AWS may take longer than Redis, and is bounded by itself.
        let login = self.logins.next().await?;
        let dial = timeout(self.target.dials() * self.timeout, self.target.dial(login)).await;
        dial.unwrap_or_else(|_elapsed| Err(too_late("no connection to Redis in time")))
    }

    /// Check the server, concurrently with the first call.
    fn check_up(&self, mut wire: Wire) {
        let (limit, findings) = (self.timeout, Arc::clone(&self.findings));
        self.checked.call_once(|| {
            let look = async move {
                // Not of sections by name: before Redis 7 it took one only.
                let info = wire.ask(&redis::cmd("INFO"), limit).await;
                if let Some(count) = preflight::report(info) {
                    let _only_look = findings.set(count);
                }
            };
            // It ends within its timeout, and nothing waits for it.
            drop(tokio::spawn(look));
        });
    }

    /// Drop the connection of this dial, if it is still the one in use.
    async fn drop_wire(&self, dial: u64, error: &RedisError) {
        let mut dialled = self.wire.lock().await;
        if dialled.dial == dial {
            dialled.wire = Err(error.clone());
        }
    }

    /// The error, with advice where there is some.
    pub(super) fn explained(&self, error: RedisError) -> Box<dyn std::error::Error + Send + Sync> {
        if is_refusal(&error) {
            return format!("{} ({error})", self.logins.advice()).into();
        }
        match (&self.target, error.kind()) {
            (Target::Server(_), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::CrossSlot)) => {
                format!("the server is part of a cluster; set REDIS_CLUSTER=true ({error})").into()
            }
            (Target::Server(_) | Target::Cluster(_), _) => error.into(),
        }
    }
}

/// A try that failed.
struct Failed {
    error: RedisError,
    /// Whether the command may have reached the server.
    sent: bool,
}

impl Wire {
    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd, limit: Duration) -> RedisResult<T> {
        let reply = match self {
            Self::Server(connection) => timeout(limit, command.query_async(connection)).await,
            Self::Cluster(connection) => timeout(limit, command.query_async(connection)).await,
        };
        reply.unwrap_or_else(|_elapsed| Err(too_late("no reply from Redis in time")))
    }
}

impl Target {
    fn new(settings: &RedisSettings, logins: &Logins) -> RedisResult<Self> {
        // A call must not wait in the socket for the acknowledgement of the one before (Nagle).
        let tcp = TcpSettings::default().set_nodelay(true);
        let RedisUrl(info) = settings.url.clone();
        if !settings.cluster {
            return Client::open(info.set_tcp_settings(tcp)).map(|client| Self::Server(Box::new(client)));
        }
        let mut cluster = ClusterClientBuilder::new([info]);
        if !matches!(logins, Logins::Url) {
            cluster = cluster.set_credentials_provider(logins.clone());
        }
        cluster
            .tcp_settings(tcp)
            .connection_timeout(settings.timeout)
            .response_timeout(settings.timeout)
            .retries(REDIRECTIONS)
            .min_retry_wait(10)
            .max_retry_wait(100)
            .build()
            .map(|client| Self::Cluster(Box::new(client)))
    }

    /// Connections that are made one after another: to a cluster's first node, then to all at once.
    fn dials(&self) -> u32 {
        match self {
            Self::Server(_) => 1,
            Self::Cluster(_) => 2,
        }
    }

    async fn dial(&self, login: Option<Login>) -> RedisResult<Wire> {
        match self {
            Self::Server(client) => {
                let server = client.get_connection_info().clone();
                let client = Client::open(match login {
                    Some(login) => signed_in(server, &login),
                    None => server,
                })?;
                // Both are bounded above, together with what they wait for.
                let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
                client.get_multiplexed_async_connection_with_config(&config).await.map(Wire::Server)
            }
            // It asks for the login of each node's connection by itself.
            Self::Cluster(client) => client.get_async_connection().await.map(Wire::Cluster),
        }
    }
}

/// The script is named by its hash, or given whole.
fn command(name: &str, script: &str, terms: &Terms, calls: &[Waiting]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(calls.len());
    for Waiting { call, answer: _ } in calls {
        command.arg(&call.key);
    }
    for argument in terms.arguments() {
        command.arg(argument);
    }
    for Waiting { call, answer: _ } in calls {
        command.arg(&call.argument);
    }
    command
}

/// A refusal that says nothing against the connection. A plain ERR may: before Redis 7 it is what
/// becomes of a READONLY inside a script.
fn repeats_on_any_connection(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) || is_wrong_type(error)
}

/// Whether the server refused the script before it wrote anything. It names the reason by a code of its own then;
/// a plain ERR may come from the middle of a script, and another error from the network.
fn is_refused_whole(error: &RedisError) -> bool {
    // Before Redis 7 the first write of a script is refused by a plain ERR.
    let out_of_memory = error.detail().is_some_and(|detail| detail.contains("OOM command not allowed"));
    out_of_memory || error.code().is_some_and(|code| code != "ERR")
}

/// Whether the server could not compile the script: before Redis 7 its first line is no Lua.
fn is_not_compiled(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("compiling script"))
}

/// Whether the value under the key is no string, and so no record.
pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

fn too_late(what: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, what).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::redis::credentials::RedisCredentials;

    #[test]
    fn a_cluster_has_time_for_its_first_node_and_then_for_all() {
        let target = |cluster| {
            let url = "redis://127.0.0.1".parse().unwrap();
            let timeout = Duration::from_millis(500);
            let credentials = RedisCredentials::Url;
            let settings = RedisSettings { url, cluster, timeout, namespace: String::new(), credentials };
            Target::new(&settings, &Logins::Url).unwrap()
        };
        assert_eq!((target(false).dials(), target(true).dials()), (1, 2));
    }
}
