//! What happens to a server, and what its operator does.

use super::error::SqlError;
use super::server::Server;
use super::shared::Crash;
use crate::lock;
use crate::trace::event;

impl Server {
    /// Whether new sessions are read-only, as those of a standby.
    pub fn set_read_only(&self, is_read_only: bool) {
        event(|| format!("FAULT {} is read-only: {is_read_only}", self.name()));
        lock(&self.shared).is_read_only = is_read_only;
    }

    /// Ends all sessions with an error that says so.
    pub fn end_sessions(&self) {
        event(|| format!("FAULT {} ends its sessions", self.name()));
        lock(&self.shared).sessions.values().for_each(|session| session.signals.end.notify_one());
    }

    /// Cancels the statements that are being executed.
    pub fn cancel_statements(&self) {
        event(|| format!("FAULT {} cancels its statements", self.name()));
        let shared = lock(&self.shared);
        let running = shared.sessions.values().filter(|session| session.is_running);
        running.for_each(|session| session.signals.cancel.notify_waiters());
    }

    /// Cancels the statement of this session, as a client may ask for.
    pub(super) fn cancel(&self, pid: i64) {
        if let Some(session) = lock(&self.shared).sessions.get(&pid) {
            session.signals.cancel.notify_waiters();
        }
    }

    /// The next statement that begins with this text fails with this SQLSTATE. The session ends if that is one of a
    /// connection or of a shutdown.
    pub fn fail_next(&self, statement: &'static str, sqlstate: &'static str) {
        event(|| format!("FAULT {} fails the next {statement} with {sqlstate}", self.name()));
        lock(&self.shared).failures.push((statement, sqlstate));
    }

    pub(super) fn take_failure(&self, text: &str) -> Option<SqlError> {
        let mut shared = lock(&self.shared);
        let at = shared.failures.iter().position(|(statement, _)| text.starts_with(statement))?;
        let (_, sqlstate) = shared.failures.remove(at);
        let is_fatal = sqlstate.starts_with("08") || sqlstate.starts_with("57P");
        Some(SqlError { is_fatal, ..SqlError::new(sqlstate, "this statement was chosen to fail") })
    }

    /// Crashes at the next commit of a transaction that has written something: before it takes effect, or after. The
    /// client gets no reply.
    pub fn crash_at_commit(&self, before: bool) {
        event(|| format!("FAULT {} crashes at its next commit, before it takes effect: {before}", self.name()));
        lock(&self.shared).crash = Some(if before { Crash::BeforeCommit } else { Crash::AfterCommit });
    }
}
