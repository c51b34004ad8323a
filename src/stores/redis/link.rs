//! The connection to one server or to a cluster, and its repair.
//!
//! The client library's own reconnection stays with a demoted primary for ever, and with a silent
//! peer for as long as the peer is silent. So a connection in doubt is dropped here, and the call
//! asked again on a new one: every script is safe to run twice.

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
use super::calls::{Dialect, Terms, Waiting};
use super::checkup;
use super::credentials::{Logins, is_refusal, signed_in};
use super::url::RedisUrl;
use crate::identity::Login;
use crate::store::StoreError;

/// Once on the connection at hand, once on a new one. A server that refuses a fresh connection
/// needs more time than a caller has patience.
const TRIES: u32 = 2;

/// Records in one run of a script. Redis serves nobody else meanwhile: half a millisecond for so many,
/// at 4 µs a record, or 8 on a busy machine (`INFO commandstats`). More of them would gain little, as
/// a run costs 10 µs of its own, and the next is prepared while Redis is at this one.
const RECORDS_A_RUN: usize = 64;

/// Redirections that the cluster client follows within one try.
const REDIRECTIONS: u32 = 3;

pub(super) struct Link {
    target: Target,
    logins: Logins,
    timeout: Duration,
    /// Counts dials, so that of the callers that wait for one only the first dials.
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
    /// When, by the clock that goes on while the process is frozen.
    at: SystemTime,
    wire: RedisResult<Wire>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Link {
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

    /// How many records may share one run of a script. On a cluster their keys live on different
    /// nodes, so each is a run of its own, all on the way at once.
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
                    may_have_run |= sent && !is_refused_whole(&error);
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
        // The dial that somebody else made while this call waited counts, also where it failed:
        // else every waiting call would wait through a failed dial of its own, one after another.
        if (dialled.wire.is_err() && dialled.dial <= known) || self.is_over(&dialled) {
            dialled.dial = self.dials.fetch_add(1, Ordering::SeqCst) + 1;
            dialled.at = SystemTime::now();
            // Apart, since every call's own future would be as large as that of a dial with AWS's clients.
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

    /// Look the server over, beside the first call and not before it.
    fn check_up(&self, mut wire: Wire) {
        let (patience, findings) = (self.timeout, Arc::clone(&self.findings));
        self.checked.call_once(|| {
            let look = async move {
                // Not of sections by name: before Redis 7 it took one only.
                let info = wire.ask(&redis::cmd("INFO"), patience).await;
                if let Some(count) = checkup::report(info) {
                    let _only_look = findings.set(count);
                }
            };
            // It ends by itself within its patience, and nothing waits for it.
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
    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd, patience: Duration) -> RedisResult<T> {
        let reply = match self {
            Self::Server(connection) => timeout(patience, command.query_async(connection)).await,
            Self::Cluster(connection) => timeout(patience, command.query_async(connection)).await,
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
