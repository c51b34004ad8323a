//! Whether requests are on connections that have been idle for too long.

use serde::{Deserialize, Serialize};

use super::Received;

/// How long a connection may be idle, µs: docs/webhook.md. The rest is tolerance.
const LONGEST_IDLE_US: u64 = 4_500_000;

/// The longest time after which a process that was stopped sends a request for which it had chosen a connection before,
/// µs. It is stopped for three seconds at most.
const SENT_AFTER_STOP_US: u64 = 4_000_000;

/// A request to a server on a connection that was idle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReusedConnection {
    /// The name of the server.
    pub server: String,
    /// When the request arrived, by the monotonic clock, µs.
    pub at_us: u64,
    /// How long the connection was idle since the last response, µs.
    pub idle_us: u64,
}

impl Received {
    /// Whether a connection was idle for longer than one may be until this time, and no process may have been stopped
    /// between the choice of this connection and the request.
    pub(super) fn was_idle_for_too_long(&self, at_us: u64, idle_us: u64) -> bool {
        let shortly_before = at_us.saturating_sub(SENT_AFTER_STOP_US)..at_us;
        idle_us > LONGEST_IDLE_US && !self.stopped_us.iter().any(|at_us| shortly_before.contains(at_us))
    }

    /// Requests to the AWS API on connections that were idle for too long.
    pub(super) fn wrong_connections(&self) -> impl Iterator<Item = String> {
        let wrong =
            self.reused_connections.iter().filter(|reused| self.was_idle_for_too_long(reused.at_us, reused.idle_us));
        wrong.map(|reused| format!("this connection was idle for too long: {reused:?}"))
    }
}
