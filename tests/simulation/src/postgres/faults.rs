//! What happens to a server, and what its operator does.

use std::time::Duration;

use history::inbox::SECRET;
use tokio::time::{Instant, sleep};

use super::error::SqlError;
use super::server::Server;
use super::shared::{Crash, Failure};
use crate::lock;
use crate::trace::event;

/// How long a crashed server takes to start.
const RESTART: Duration = Duration::from_millis(30);

impl Server {
    /// Whether new sessions are read-only, as those of a standby.
    pub fn set_read_only(&self, is_read_only: bool) {
        event(|| format!("FAULT {} is read-only: {is_read_only}", self.name()));
        lock(&self.shared).is_read_only = is_read_only;
    }

    /// Clients reach the server through a pooler from now on.
    pub fn set_pooled(&self) {
        lock(&self.shared).is_pooled = true;
    }

    /// The statements that clients have executed through a pooler a second time without preparing them again.
    pub fn kept(&self) -> Vec<String> {
        lock(&self.shared).kept.clone()
    }

    /// Ends all sessions with an error that says so.
    pub fn end_sessions(&self) {
        event(|| format!("FAULT {} ends its sessions", self.name()));
        let (mut shared, now) = (lock(&self.shared), Instant::now());
        shared.outages.push((now, now));
        shared.sessions.values().for_each(|session| session.signals.end.notify_one());
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

    /// The next statement of a session of this host that begins with this text fails with this SQLSTATE. The
    /// session ends if that is one of a connection or of a shutdown. Messages about data quote a value.
    pub fn fail_next(&self, host: &str, statement: &'static str, sqlstate: &'static str) {
        event(|| format!("FAULT {} fails the next {statement} of {host} with {sqlstate}", self.name()));
        lock(&self.shared).failures.push(Failure { host: host.to_owned(), statement, sqlstate: Some(sqlstate) });
    }

    /// The next statement of a session of this host that begins with this text does not end by itself.
    pub fn hang_next(&self, host: &str, statement: &'static str) {
        event(|| format!("FAULT {} hangs at the next {statement} of {host}", self.name()));
        lock(&self.shared).failures.push(Failure { host: host.to_owned(), statement, sqlstate: None });
    }

    /// No further statement of the sessions of this host fails or hangs, and none of their commits lets the server
    /// crash.
    pub fn forget_failures(&self, host: &str) {
        let mut shared = lock(&self.shared);
        shared.failures.retain(|failure| failure.host != host);
        shared.crash.take_if(|(of, _)| of == host);
    }

    pub(super) fn take_failure(&self, host: &str, text: &str) -> Option<Failure> {
        let mut shared = lock(&self.shared);
        let is_next = |failure: &Failure| failure.host == host && text.starts_with(failure.statement);
        let at = shared.failures.iter().position(is_next)?;
        Some(shared.failures.remove(at))
    }

    /// Crashes at the next commit of a session of this host whose transaction has written something: before it takes
    /// effect, or after. The client gets no reply. The server starts again soon.
    pub fn crash_at_commit(&self, host: &str, before: bool) {
        event(|| format!("FAULT {} crashes at the next commit of {host}, before it: {before}", self.name()));
        let crash = if before { Crash::BeforeCommit } else { Crash::AfterCommit };
        lock(&self.shared).crash = Some((host.to_owned(), crash));
    }

    /// Stops, and listens again soon.
    pub(super) fn crash(&self) {
        self.stop();
        let server = self.clone();
        tokio::spawn(async move {
            sleep(RESTART).await;
            server.start_again();
        });
    }

    /// Ends the faults.
    pub fn recover(&self) {
        self.set_read_only(false);
        self.start_again();
    }

    fn start_again(&self) {
        let is_stopped = lock(&self.shared).stopped.is_some();
        if is_stopped {
            self.listen();
        }
    }
}

impl Failure {
    /// `None` if the statement hangs.
    pub(super) fn error(&self) -> Option<SqlError> {
        let sqlstate = self.sqlstate?;
        let is_of = |classes: &[&str]| classes.iter().any(|class| sqlstate.starts_with(class));
        // Functions of PL/pgSQL, and errors of other servers.
        let relays = [("23503", "pgfdw_report_error"), ("23514", "dblink_res_error")];
        let relay = relays.iter().find(|(code, _)| *code == sqlstate).map_or("exec_stmt_raise", |(_, routine)| routine);
        Some(if is_of(&["23", "P0"]) {
            SqlError::new(sqlstate, format!("a function refuses {SECRET}")).by(relay)
        } else if is_of(&["22"]) {
            SqlError::new(sqlstate, format!("invalid input \"{SECRET}\"")).by("pg_strtoint64")
        } else {
            let error = SqlError::new(sqlstate, "this statement was chosen to fail").by("ProcessInterrupts");
            SqlError { is_fatal: is_of(&["08", "57P"]), ..error }
        })
    }
}
