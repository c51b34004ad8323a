//! Executes the statements of a session, within its transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::connection::Connection;
use super::error::{Result, SqlError};
use super::extended::{Portal, Prepared};
use super::server::Server;
use super::settings::Settings;
use super::shared::{Failure, Signals};
use super::sql::commands::{Command, Kind, Parsed};
use super::sql::plan::Statement;
use super::sql::statements::resolve;
use super::sql::write::Outcome;
use super::transaction::Transaction;
use super::value::{Type, Value};
use super::wire::Replies;
use crate::lock;
use crate::trace::event;

/// A session without its stream.
pub(super) struct Core {
    pub(super) server: Server,
    /// The name of the server to which the client has connected.
    pub(super) host: String,
    client: String,
    pub(super) pid: i64,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) settings: Settings,
    pub(super) signals: Arc<Signals>,
    pub(super) block: Block,
    pub(super) transaction: Option<Transaction>,
    /// When `transaction_timeout` ends the session.
    pub(super) transaction_ends: Option<Instant>,
    pub(super) prepared: BTreeMap<String, Arc<Prepared>>,
    /// Number of those that were prepared by SQL.
    pub(super) prepared_by_sql: usize,
    pub(super) advisory_locks: usize,
    /// The names of those that were executed.
    pub(super) bound: BTreeSet<String>,
    pub(super) portals: BTreeMap<String, Portal>,
    pub(super) replies: Replies,
    /// After an error, messages are skipped until the next Sync.
    pub(super) skips_until_sync: bool,
    pub(super) has_crashed: bool,
}

/// Whether there is a transaction block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    None,
    Open,
    /// A statement has failed. All others fail until the end of the block.
    Failed,
}

pub(super) async fn forever() {
    std::future::pending::<()>().await;
}

impl Core {
    pub(super) fn new(
        server: Server,
        (host, client): (String, String),
        pid: i64,
        (user, database): (String, String),
        settings: Settings,
        signals: Arc<Signals>,
    ) -> Self {
        Self {
            server,
            host,
            client,
            pid,
            user,
            database,
            settings,
            signals,
            block: Block::None,
            transaction: None,
            transaction_ends: None,
            prepared: BTreeMap::new(),
            prepared_by_sql: 0,
            advisory_locks: 0,
            bound: BTreeSet::new(),
            portals: BTreeMap::new(),
            replies: Replies::default(),
            skips_until_sync: false,
            has_crashed: false,
        }
    }

    /// The replies after the login.
    pub(super) fn greet(&mut self) {
        self.replies.authentication(0);
        let reported = ["application_name", "client_encoding", "default_transaction_read_only", "server_version"];
        for name in reported.into_iter().chain(["standard_conforming_strings"]) {
            let value = self.settings.shown(name).unwrap_or_default();
            self.replies.parameter(name, &value);
        }
        for (name, value) in [("DateStyle", "ISO, MDY"), ("TimeZone", "UTC"), ("integer_datetimes", "on")] {
            self.replies.parameter(name, value);
        }
        self.replies.parameter("server_encoding", "UTF8");
        let pid = i32::try_from(self.pid).unwrap_or_default();
        self.replies.message(b'K', &[pid.to_be_bytes(), [0; 4]].concat());
    }

    pub(super) fn ready(&mut self) {
        self.replies.ready(match self.block {
            Block::None => b'I',
            Block::Open => b'T',
            Block::Failed => b'E',
        });
    }

    /// Sends the replies. Returns whether there still is a stream.
    pub(super) async fn flush(&mut self, connection: &mut Connection) -> bool {
        let replies = std::mem::take(&mut self.replies.0);
        connection.send(&replies).await
    }

    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        event(|| format!("{}, session {} of {}: {}", self.server.name(), self.pid, self.client, what()));
    }

    pub(super) fn is_in_block(&self) -> bool {
        self.block != Block::None
    }

    /// Resolves a statement whose first parameters have these types. Like all others, it needs a transaction.
    pub(super) fn prepare(&mut self, parsed: Parsed, types: Vec<Type>) -> Result<Prepared> {
        let ends_block =
            matches!(&parsed.kind, Kind::Command(Command::Commit | Command::Rollback | Command::RollbackTo(_)));
        if self.block == Block::Failed && !ends_block {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(SqlError::new("25P02", message).by("exec_simple_query"));
        }
        self.begin_if_needed();
        let statement = match &parsed.kind {
            Kind::Sql(statement) => Some(resolve(statement, types)?),
            Kind::Command(_) => None,
        };
        Ok(Prepared { parsed, statement })
    }

    pub(super) fn begin_if_needed(&mut self) {
        if self.transaction.is_some() || self.block == Block::Failed {
            return;
        }
        let is_read_only = self.settings.is_on("default_transaction_read_only");
        let mut shared = lock(&self.server.shared);
        let now_us = shared.now_us();
        if let Some(session) = shared.sessions.get_mut(&self.pid) {
            session.transaction_us = Some(now_us);
        }
        let settings = self.settings.clone();
        self.transaction = Some(Transaction::begin(self.pid, now_us, is_read_only, settings));
        self.transaction_ends = self.settings.timeout("transaction_timeout").map(|timeout| Instant::now() + timeout);
    }

    /// Executes a statement and adds its replies. Without formats, the columns are described and are texts.
    pub(super) async fn run(
        &mut self,
        prepared: &Prepared,
        parameters: &[Value],
        formats: Option<&[i16]>,
        connection: &mut Connection,
    ) -> Result<()> {
        let text = &prepared.parsed.text;
        self.note(text, true);
        let failure = self.server.take_failure(&self.host, text);
        let outcome = match (failure.as_ref().and_then(Failure::error), &prepared.parsed.kind, &prepared.statement) {
            (Some(error), ..) => Err(error),
            (None, Kind::Command(command), _) => self.command(command).map(std::borrow::Cow::into_owned),
            (None, Kind::Sql(_), Some(statement)) => {
                self.begin_if_needed();
                let outcome = self.supervise(statement, parameters, failure.is_some(), connection).await;
                outcome.and_then(|outcome| self.reply(outcome, prepared, statement, formats))
            }
            (None, Kind::Sql(_), None) => Err(SqlError::unsupported(text)),
        };
        self.note(text, false);
        self.say(|| match &outcome {
            Ok(tag) => format!("{text} {parameters:?} → {tag}"),
            Err(error) => format!("{text} {parameters:?} → {} {}", error.code, error.message),
        });
        self.replies.complete(&outcome?);
        Ok(())
    }

    fn note(&self, text: &str, is_running: bool) {
        if let Some(session) = lock(&self.server.shared).sessions.get_mut(&self.pid) {
            session.is_running = is_running;
            session.settings = self.settings.clone();
            (session.prepared_by_sql, session.advisory_locks) = (self.prepared_by_sql, self.advisory_locks);
            text.clone_into(&mut session.query);
        }
    }

    fn reply(
        &mut self,
        outcome: Outcome,
        prepared: &Prepared,
        statement: &Statement,
        formats: Option<&[i16]>,
    ) -> Result<String> {
        let Outcome { rows, affected, tag } = outcome;
        if let (None, Some(columns)) = (formats, prepared.columns()) {
            self.replies.columns(columns, &[]);
        }
        let formats = formats.unwrap_or_default();
        for row in &rows {
            if !statement.columns.is_empty() || tag == "SELECT" {
                self.replies.row(row, &statement.columns, formats)?;
            }
        }
        Ok(if tag == "INSERT" { format!("INSERT 0 {affected}") } else { format!("{tag} {affected}") })
    }
}

/// The server ends what the session has begun.
impl Drop for Core {
    fn drop(&mut self) {
        let mut shared = lock(&self.server.shared);
        if let Some(xid) = self.transaction.take().and_then(|transaction| transaction.xid) {
            shared.tables.abort(xid);
        }
        shared.waits.remove(&self.pid);
        // A statement that is dropped does not end.
        if shared.sessions.remove(&self.pid).is_some_and(|session| session.is_running) {
            shared.tables.running = shared.tables.running.saturating_sub(1);
        }
        shared.ended.notify_waiters();
    }
}
