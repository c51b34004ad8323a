//! Crashes of a server right after a call: it has executed the call, and sends no reply.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::resp::Command;
use super::server::Server;
use crate::lock;
use crate::network;
use crate::trace::event;

/// The server stops as soon as it has executed a call.
pub(super) struct Crash {
    /// Whether it must be one that records of several slots share.
    is_shared: bool,
    has_crashed: Arc<Notify>,
}

impl Server {
    /// The server stops right after a call, if it executes one in this time. Returns whether it has stopped.
    pub async fn crash(&self, is_shared: bool, within: Duration) -> bool {
        let has_crashed = Arc::new(Notify::new());
        lock(&self.state).crash = Some(Crash { is_shared, has_crashed: Arc::clone(&has_crashed) });
        let crashed = timeout(within, has_crashed.notified()).await;
        lock(&self.state).crash = None;
        crashed.is_ok()
    }

    /// Stops if it is to crash after one of these commands.
    pub(super) fn crashes(&self, commands: &[Command]) -> bool {
        let is_call = |command: &Command| command[0].starts_with(b"EVAL");
        let is_shared = |command: &Command| is_call(command) && command.get(2).is_some_and(|count| count == b"0");
        let crash = lock(&self.state).crash.take_if(|crash| {
            commands.iter().any(|command| if crash.is_shared { is_shared(command) } else { is_call(command) })
        });
        if let Some(Crash { has_crashed, .. }) = &crash {
            event(|| format!("FAULT {} crashes", self.name()));
            network::stop(self.name());
            has_crashed.notify_one();
        }
        crash.is_some()
    }
}
