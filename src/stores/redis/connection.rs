//! The connection to a server or a cluster, which is replaced when it fails.
//!
//! The client library does not reconnect from a demoted primary or an unresponsive server. So a connection whose call
//! failed is dropped, and the call is sent again on a new one: every script is safe to run twice. Sentinels are asked
//! for the primary before each connection.
//!
//! - `errors`: classifies errors of the client library
//! - `operator`: plain commands for the operator's view of the records
//! - `reconnect`: opens the connection, and replaces it
//! - `sentinel`: finds the primary by Redis Sentinel
//! - `shards`: the shard of each key of a cluster, so that its records share script calls
//! - `simulation`: connections of a simulated network, for tests
//! - `target`: what to connect to
//! - `wire`: opens a connection to one server, and sends commands

mod errors;
mod operator;
mod reconnect;
mod sentinel;
mod shards;
#[cfg(feature = "simulation")]
pub mod simulation;
mod target;
mod wire;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::credentials::is_rejected;
use super::script_call::{Dialect, Keys, NOT_LOCAL, ScriptCall};
use super::{RedisSettings, RedisSettingsError};
use crate::credentials::CredentialsSource;
use crate::idempotency::StoreError;

use errors::{
    is_not_compiled, is_redirection, is_rejected_whole, is_reply, lacks_permission, repeats_on_any_connection,
};
use reconnect::Wires;
use shards::Sharing;
use target::Target;

pub(super) use errors::is_wrong_type;

/// Two tries: one on the open connection, one on a new connection. A server that refuses a new connection needs longer
/// to recover than a caller can wait.
pub(super) const TRIES: u32 = 2;

/// First pause before a call that was redirected too often is sent again. It doubles each time, because after each
/// redirection the client library asks the cluster for its slots.
const REDIRECTION_PAUSE: Duration = Duration::from_millis(5);

/// Longest pause before a call that was redirected too often is sent again.
const MAX_REDIRECTION_PAUSE: Duration = Duration::from_millis(80);

/// Records in one script call. Redis serves no other client during a call: half a millisecond for this many, at 4 to
/// 8 µs a record (`INFO commandstats`). More would gain little, as a call has a fixed cost of only 10 µs.
const RECORDS_PER_CALL: usize = 64;

pub(super) struct Connection {
    target: Target,
    credentials: Option<Arc<dyn CredentialsSource>>,
    timeout: Duration,
    wires: Wires,
    /// Whether the server has been checked.
    checked: Once,
    /// Number of findings of that check.
    findings: Arc<OnceLock<u64>>,
    /// Whether the server has rejected the first line of a script, as Redis 6.2 does.
    no_flags: AtomicBool,
    sharing: std::sync::Mutex<Sharing>,
    /// Held while a call is sent again that was redirected too often, so that such calls do not take the ASKING of each
    /// other.
    redirected: Mutex<()>,
}

/// A try that failed.
struct Failed {
    error: RedisError,
    /// Whether the command may have reached the server.
    sent: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(settings: &RedisSettings) -> Result<Self, RedisSettingsError> {
        let target = Target::new(settings)?;
        Ok(Self {
            target,
            credentials: settings.credentials.clone(),
            timeout: settings.timeout,
            wires: Wires::default(),
            checked: Once::new(),
            findings: Arc::default(),
            no_flags: AtomicBool::new(false),
            sharing: std::sync::Mutex::default(),
            redirected: Mutex::default(),
        })
    }

    /// Number of findings of the server check, once it is done.
    pub(super) fn findings(&self) -> Option<u64> {
        self.findings.get().copied()
    }

    /// Whether sentinels name the server.
    pub(super) fn uses_sentinel(&self) -> bool {
        matches!(self.target, Target::Sentinel(_))
    }

    /// How many records may share one script call. On a cluster a call with declared keys has one record, because they
    /// must be of one slot.
    pub(super) fn records_per_call(&self, shard: Option<usize>) -> usize {
        if self.is_cluster() && shard.is_none() { 1 } else { RECORDS_PER_CALL }
    }

    /// Calls a script for these requests, and returns a reply for each that is left. Requests whose callers were
    /// cancelled are removed before anything is sent.
    ///
    /// A call for a shard is tried once. If it fails, each reply is `NOT_LOCAL`, so that each record is judged alone.
    pub(super) async fn call_script(&self, call: &mut ScriptCall) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut last = RedisError::from((ErrorKind::Io, "no try was made"));
        while call.tries > 0 {
            match self.try_script(call).await {
                Ok(replies) if replies.len() == call.requests.len() => {
                    if call.shard.is_some() {
                        self.note_replies(&replies);
                        // The cluster client may have sent the call to another node before, and got no reply.
                        call.may_have_run |= replies.iter().any(|reply| reply == NOT_LOCAL);
                    }
                    return Ok(replies);
                }
                Ok(_) => return Err(StoreError::unavailable("the number of replies differs from that of the records")),
                Err(Failed { error, sent }) => {
                    // The cluster client retries by itself and reports only its last error. That the user lacks a
                    // permission counts for all nodes: each node of a cluster should have the same users.
                    let rejected = is_rejected_whole(&error) && (!self.is_cluster() || lacks_permission(&error));
                    call.may_have_run |= sent && !rejected;
                    if call.shard.is_some() {
                        self.note_failure(call, &error);
                        return Ok(vec![NOT_LOCAL.to_vec(); call.requests.len()]);
                    }
                    call.tries -= 1;
                    // The try has already repeated a call that is redirected on a cluster.
                    let is_final = repeats_on_any_connection(&error) || self.is_redirected(&error);
                    last = error;
                    if is_final {
                        break;
                    }
                }
            }
        }
        let reason = self.explain(last);
        Err(if call.may_have_run { StoreError::unavailable(reason) } else { StoreError::unreachable(reason) })
    }

    /// One try: EVALSHA, or EVAL if the server lacks the script.
    async fn try_script(&self, call: &mut ScriptCall) -> Result<Vec<Vec<u8>>, Failed> {
        let (dial, mut wire) = self.wire(call.tries < TRIES).await.map_err(|error| Failed { error, sent: false })?;
        let mut send_source = false;
        let (began, mut pause, mut turn) = (Instant::now(), REDIRECTION_PAUSE, None);
        loop {
            // Waiting for a connection or for the previous reply may have taken longer than the caller's deadline. A
            // claim would then hold its record while no work runs.
            call.requests.retain(|pending| !pending.reply.is_closed());
            let Some(first) = call.requests.first() else { return Ok(Vec::new()) };
            let dialect = if self.no_flags.load(Ordering::Relaxed) { Dialect::NoFlags } else { Dialect::Flags };
            let source = call.terms.source(dialect, call.keys());
            let command =
                if send_source { command("EVAL", &source.text, call) } else { command("EVALSHA", &source.hash, call) };
            let reply = match call.keys() {
                Keys::Declared => wire.send(&command, self.timeout).await,
                Keys::InArguments => wire.send_to_master(&first.request.key, command, self.timeout).await,
            };
            match reply {
                Ok(replies) => return Ok(replies),
                // A restart, a failover, SCRIPT FLUSH and the move of a slot all lose the script. EVAL sends it to the
                // node that lacks it.
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) && !send_source => {
                    send_source = true;
                }
                Err(error) if send_source && dialect == Dialect::Flags && is_not_compiled(&error) => {
                    if !self.no_flags.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            "the server does not support script flags, as Redis 7.0 and Valkey do: while it is out of \
                             memory, completed work cannot be recorded"
                        );
                    }
                }
                // To follow a redirection to a slot that is being moved, the client library sends ASKING and then the
                // call. Another command that is sent between them takes the ASKING, and the call is redirected again.
                // The library gives up after a few redirections. A node that redirects a call has not executed it.
                Err(error) if self.is_redirected(&error) && call.shard.is_none() && began.elapsed() < self.timeout => {
                    drop(turn.take());
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_REDIRECTION_PAUSE);
                    turn = timeout(self.timeout.saturating_sub(began.elapsed()), self.redirected.lock()).await.ok();
                }
                Err(error) => {
                    let keeps = repeats_on_any_connection(&error) || call.shard.is_some() && is_reply(&error);
                    if !keeps {
                        self.drop_wire(dial, &error).await;
                    }
                    return Err(Failed { error, sent: true });
                }
            }
        }
    }

    /// Whether a node of the cluster redirected the call. A single server that does so is part of a cluster.
    fn is_redirected(&self, error: &RedisError) -> bool {
        self.is_cluster() && is_redirection(error)
    }

    /// The error, with advice if there is any.
    pub(super) fn explain(&self, error: RedisError) -> Box<dyn std::error::Error + Send + Sync> {
        if is_rejected(&error) {
            const URL: &str = "Redis rejected the user and password of REDIS_URL, or requires them";
            let advice = self.credentials.as_ref().map_or(URL, |source| source.advice());
            return format!("{advice} ({error})").into();
        }
        match (&self.target, error.kind()) {
            (Target::Server(_), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::CrossSlot)) => {
                format!("the server is part of a cluster: set REDIS_CLUSTER=true ({error})").into()
            }
            (Target::Server(_) | Target::Sentinel(_) | Target::Cluster(..), _) => error.into(),
        }
    }
}

/// `name` with the source or the hash of the script, its keys and its arguments.
fn command(name: &str, script: &str, call: &ScriptCall) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script);
    if call.keys() == Keys::InArguments {
        // Number of the declared keys.
        command.arg(0);
    }
    command.arg(call.requests.len());
    for pending in &call.requests {
        command.arg(&pending.request.key);
    }
    for argument in call.terms.arguments() {
        command.arg(argument);
    }
    for pending in &call.requests {
        command.arg(&pending.request.argument);
    }
    command
}
