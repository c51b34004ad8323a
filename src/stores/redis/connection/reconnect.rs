//! Opens the connection, and replaces it.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::SystemTime;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Connection;
use super::errors::timed_out;
use super::wire::Wire;
use crate::credentials::{Login, session_has_ended};
use crate::stores::redis::credentials::{is_rejected, login};
use crate::stores::redis::preflight;

/// The connection, and the one that it replaces.
pub(super) struct Wires {
    /// Counts connection attempts, so that only the first of the callers that wait for one connects.
    dials: AtomicU64,
    current: Mutex<Dialled>,
    /// The connection to a cluster that failed last.
    failed: std::sync::Mutex<Option<FailedWire>>,
}

impl Default for Wires {
    fn default() -> Self {
        Self {
            dials: AtomicU64::new(0),
            current: Mutex::new(Dialled::not_connected()),
            failed: std::sync::Mutex::default(),
        }
    }
}

impl Wires {
    fn lock_failed(&self) -> MutexGuard<'_, Option<FailedWire>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a connection attempt.
struct Dialled {
    /// Number of the attempt.
    dial: u64,
    /// Time of the attempt by the wall clock, which advances while the process is frozen.
    at: SystemTime,
    wire: RedisResult<Wire>,
}

/// An open connection to a cluster, of which a call failed.
#[derive(Clone)]
struct FailedWire {
    /// Number of the attempt that opened it.
    dial: u64,
    /// Time of that attempt.
    at: SystemTime,
    wire: Wire,
}

impl Dialled {
    /// As before the first attempt.
    fn not_connected() -> Self {
        let not_connected = RedisError::from((ErrorKind::Io, "not connected yet"));
        Self { dial: 0, at: SystemTime::UNIX_EPOCH, wire: Err(not_connected) }
    }
}

impl Connection {
    /// The current connection, or a new one.
    ///
    /// While another call opens a new connection to a cluster, which waits for a node that does not respond, the first
    /// try of a call is on the old connection: its other nodes may respond.
    pub(super) async fn wire(&self, is_retry: bool) -> RedisResult<(u64, Wire)> {
        let Wires { dials, current, .. } = &self.wires;
        let known = dials.load(Ordering::SeqCst);
        let mut current = match current.try_lock() {
            Ok(current) => current,
            Err(_is_opened) => {
                let failed = self.wires.lock_failed().clone().filter(|failed| !is_retry && !self.has_ended(failed.at));
                if let Some(FailedWire { dial, wire, .. }) = failed {
                    return Ok((dial, wire));
                }
                current.lock().await
            }
        };
        if current.wire.is_ok() && self.has_ended(current.at) {
            // No call uses it any more, even if this call is dropped while it waits for another connection.
            *current = Dialled::not_connected();
        }
        // Reuse the result of an attempt made while this call waited, even if it failed. Otherwise each waiting call
        // would make another failing attempt, one after another.
        if current.wire.is_err() && current.dial <= known {
            let (dial, at) = (dials.fetch_add(1, Ordering::SeqCst) + 1, SystemTime::now());
            // Boxed, because the future of a connection attempt with AWS's clients is large.
            let wire = Box::pin(self.dial()).await;
            *current = Dialled { dial, at, wire };
            if let Ok(wire) = &current.wire {
                *self.wires.lock_failed() = None;
                self.check_server(wire.clone());
            }
        }
        current.wire.clone().map(|wire| (current.dial, wire))
    }

    /// Whether the session of a connection that was opened at this time has ended.
    fn has_ended(&self, opened: SystemTime) -> bool {
        let max_session = self.credentials.as_ref().and_then(|source| source.max_session());
        max_session.is_some_and(|longest| session_has_ended(opened, longest))
    }

    /// Opens a connection and authenticates it. After a rejected login, tries once more if the login has changed.
    async fn dial(&self) -> RedisResult<Wire> {
        let Some(source) = &self.credentials else { return self.open(None).await };
        // Fetched before the timeout starts: a source may take longer than Redis, and has its own timeout.
        let first = login(&**source, None).await?;
        match self.open(Some(&first)).await {
            Err(error) if is_rejected(&error) => match login(&**source, Some(&first)).await {
                Ok(second) if second != first => self.open(Some(&second)).await,
                Ok(_) => Err(error),
                Err(no_login) => Err(no_login),
            },
            outcome => outcome,
        }
    }

    async fn open(&self, login: Option<&Login>) -> RedisResult<Wire> {
        let open = timeout(self.timeout.saturating_mul(self.target.round_trips()), self.target.open(login)).await;
        open.unwrap_or_else(|_elapsed| Err(timed_out("no connection to Redis within the timeout")))
    }

    /// Checks the server's configuration, concurrently with the first call.
    fn check_server(&self, mut wire: Wire) {
        let (limit, findings, by_sentinel) = (self.timeout, Arc::clone(&self.findings), self.uses_sentinel());
        self.checked.call_once(|| {
            let check = async move {
                // All sections: before Redis 7, INFO accepts only one section by name.
                let info = wire.send(&redis::cmd("INFO"), limit).await;
                if let Some(count) = preflight::report(info, by_sentinel) {
                    let _only_check = findings.set(count);
                }
            };
            // The task ends within its timeout; its handle is not needed.
            drop(tokio::spawn(check));
        });
    }

    /// Drops the connection of this attempt, if it is still the current one.
    pub(super) async fn drop_wire(&self, dial: u64, error: &RedisError) {
        // A call that failed on the old connection has nothing to drop, and need not wait for the new one.
        if self.wires.lock_failed().as_ref().is_some_and(|failed| failed.dial == dial) {
            return;
        }
        let mut current = self.wires.current.lock().await;
        if current.dial == dial
            && let Ok(wire) = mem::replace(&mut current.wire, Err(error.clone()))
            && self.is_cluster()
        {
            *self.wires.lock_failed() = Some(FailedWire { dial, at: current.at, wire });
        }
    }
}
