//! A session: its login, and the messages of its client.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::connection::Connection;
use super::error::{Result, SqlError};
use super::execution::{Core, forever};
use super::server::Server;
use super::settings::Settings;
use super::shared::{Opened, SessionState, Signals};
use super::sql::commands;
use super::wire::{Body, Replies};
use crate::lock;

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;
const PROTOCOL_3: i32 = 196_608;

/// Serves a client until its session ends.
pub(super) async fn serve(server: Server, host: String, client: String, mut connection: Connection) {
    let Some((user, database, options)) = begin(&server, &mut connection).await else { return };
    let mut replies = Replies::default();
    let mut core = match log_in(&server, (host, client), &mut connection, (user, database, options)).await {
        Ok(Some(core)) => core,
        Ok(None) => return,
        Err(error) => {
            replies.error(&error);
            connection.send(&replies.0).await;
            return;
        }
    };
    core.greet();
    core.ready();
    if !core.flush(&mut connection).await {
        return;
    }
    while let Some((kind, body)) = next(&mut core, &mut connection).await {
        if kind == b'X' {
            return;
        }
        let outcome = core.message(kind, &body, &mut connection).await;
        if core.has_crashed {
            return;
        }
        match outcome {
            Ok(false) => {}
            Ok(true) => {
                if !core.flush(&mut connection).await {
                    return;
                }
            }
            Err(fatal) => {
                core.replies.error(&fatal);
                core.flush(&mut connection).await;
                return;
            }
        }
    }
}

/// Reads requests until the session begins: its user, its database and its options.
async fn begin(server: &Server, connection: &mut Connection) -> Option<(String, String, Vec<(String, String)>)> {
    loop {
        let message = connection.startup().await?;
        let mut body = Body(&message);
        match body.int4().ok()? {
            SSL_REQUEST | GSS_REQUEST => _ = connection.send(b"N").await,
            CANCEL_REQUEST => {
                let pid = body.int4().ok()?;
                server.cancel(pid.into());
                return None;
            }
            PROTOCOL_3 => {
                let (mut user, mut database, mut options) = (String::new(), None, Vec::new());
                while let Ok(name) = body.text()
                    && !name.is_empty()
                {
                    let value = body.text().ok()?;
                    match name.as_str() {
                        "user" => user = value,
                        "database" => database = Some(value),
                        _ => options.push((name, value)),
                    }
                }
                let database = database.unwrap_or_else(|| user.clone());
                return Some((user, database, options));
            }
            _ => return None,
        }
    }
}

async fn log_in(
    server: &Server,
    (host, client): (String, String),
    connection: &mut Connection,
    (user, database, options): (String, String, Vec<(String, String)>),
) -> Result<Option<Core>> {
    let (logins, is_full, is_read_only) = {
        let shared = lock(&server.shared);
        (shared.logins.clone(), shared.sessions.len() >= shared.max_connections, shared.is_read_only)
    };
    if is_full {
        return Err(SqlError::fatal("53300", "sorry, too many clients already").by("InitProcess"));
    }
    let application = options.iter().find(|(name, _)| name == "application_name").map(|(_, name)| name.clone());
    let mut core =
        open(server, (host.clone(), client), (user, database, application.unwrap_or_default()), is_read_only);
    if let Some(accepts) = logins {
        core.replies.authentication(3);
        if !core.flush(connection).await {
            return Ok(None);
        }
        let Some((b'p', body)) = connection.message().await else { return Ok(None) };
        if !accepts(&core.user, &Body(&body).text()?) {
            let message = format!("password authentication failed for user \"{}\"", core.user);
            return Err(SqlError::fatal("28P01", message).by("auth_failed"));
        }
    }
    for (name, value) in options {
        core.settings.begin_with(&name, &value)?;
    }
    lock(&server.shared).opened.push(Opened { host, at: Instant::now() });
    Ok(Some(core))
}

/// A new session, until it is dropped.
fn open(
    server: &Server,
    hosts: (String, String),
    (user, database, application): (String, String, String),
    is_read_only: bool,
) -> Core {
    let mut shared = lock(&server.shared);
    let (pid, settings) = (shared.next_pid(), Settings::new(&shared.version, is_read_only));
    let signals = Arc::new(Signals::default());
    let state = SessionState {
        user: user.clone(),
        database: database.clone(),
        application,
        transaction_us: None,
        query: String::new(),
        is_running: false,
        opened: Instant::now(),
        settings: settings.clone(),
        prepared_by_sql: 0,
        advisory_locks: 0,
        signals: Arc::clone(&signals),
    };
    shared.sessions.insert(pid, state);
    drop(shared);
    Core::new(server.clone(), hosts, pid, (user, database), settings, signals)
}

impl Server {
    /// Executes statements as an operator at the server, also if it is stopped or read-only. Waits for locks.
    pub async fn execute(&self, statements: &str) -> Result<()> {
        let names = ("operator".to_owned(), "inbox".to_owned(), "psql".to_owned());
        let mut core = open(self, (String::new(), "the operator".to_owned()), names, false);
        let outcome = core.simple(statements, &mut Connection::new(None)).await;
        core.end_implicit(outcome.clone())?;
        outcome
    }
}

/// The next message. `None` if the session ends, whose reason is then sent.
async fn next(core: &mut Core, connection: &mut Connection) -> Option<(u8, Vec<u8>)> {
    let is_idle_in_transaction = core.is_in_block();
    let idle = if is_idle_in_transaction { "idle_in_transaction_session_timeout" } else { "idle_session_timeout" };
    let idle_until = core.settings.timeout(idle).map(|timeout| Instant::now() + timeout);
    let signals = Arc::clone(&core.signals);
    let until = |time: Option<Instant>| async move {
        match time {
            Some(time) => sleep_until(time).await,
            None => forever().await,
        }
    };
    let fatal = tokio::select! {
        biased;
        () = signals.end.notified() => terminated(),
        message = connection.message() => return message,
        () = until(core.transaction_ends) => transaction_timeout(),
        () = until(idle_until) => {
            if is_idle_in_transaction {
                let message = "terminating connection due to idle-in-transaction timeout";
                SqlError::fatal("25P03", message).by("ProcessInterrupts")
            } else {
                SqlError::fatal("57P05", "terminating connection due to idle-session timeout").by("ProcessInterrupts")
            }
        }
    };
    core.say(|| format!("ends: {}", fatal.message));
    core.replies.error(&fatal);
    core.flush(connection).await;
    None
}

pub(super) fn terminated() -> SqlError {
    SqlError::fatal("57P01", "terminating connection due to administrator command").by("ProcessInterrupts")
}

pub(super) fn transaction_timeout() -> SqlError {
    SqlError::fatal("25P04", "terminating connection due to transaction timeout").by("ProcessInterrupts")
}

impl Core {
    /// Handles a message. Returns whether the replies are sent now. An error ends the session.
    async fn message(&mut self, kind: u8, body: &[u8], connection: &mut Connection) -> Result<bool> {
        let mut body = Body(body);
        match kind {
            b'Q' => {
                let text = body.text()?;
                let outcome = self.simple(&text, connection).await;
                self.end_implicit(outcome)?;
                self.ready();
                return Ok(true);
            }
            b'S' => {
                self.skips_until_sync = false;
                self.end_implicit(Ok(()))?;
                self.ready();
                return Ok(true);
            }
            b'H' => return Ok(true),
            _ if self.skips_until_sync => return Ok(false),
            _ => {}
        }
        let outcome = match kind {
            b'P' => self.parse(&mut body),
            b'B' => self.bind(&mut body),
            b'D' => self.describe(&mut body),
            b'E' => self.execute(&mut body, connection).await,
            b'C' => self.close(&mut body),
            _ => Err(SqlError::fatal("08P01", format!("invalid frontend message type {kind}"))),
        };
        if let Err(error) = outcome {
            self.skips_until_sync = true;
            self.fail(error)?;
        }
        Ok(false)
    }

    async fn simple(&mut self, text: &str, connection: &mut Connection) -> Result<()> {
        self.portals.remove("");
        let statements = commands::parse(text)?;
        if statements.is_empty() {
            self.replies.message(b'I', &[]);
        }
        for parsed in statements {
            let prepared = self.prepare(parsed, Vec::new())?;
            self.run(&prepared, &[], None, connection).await?;
        }
        Ok(())
    }
}
