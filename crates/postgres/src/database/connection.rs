//! A connection: its prepared statements, and the end of each of its transactions.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use futures_util::TryStreamExt;
use futures_util::future::ready;
use tokio::task::JoinHandle;
use tokio_postgres::error::{DbError, ErrorPosition};
use tokio_postgres::{Client, Statement};

use super::DatabaseError;
use crate::sqlstate;

/// A connection, and the statements prepared on it.
pub(super) struct Connection {
    pub(super) client: Client,
    task: JoinHandle<()>,
    statements: Mutex<HashMap<String, Statement>>,
    /// How often statements were outdated.
    outdated: AtomicU32,
    /// Statements whose parameters were outdated.
    retyped: Mutex<HashSet<String>>,
    /// Distinguishes its statements from those of other connections behind a pooler.
    salt: u32,
    /// Whether the work has executed the SQL statement `PREPARE`, `EXECUTE` or `DEALLOCATE`, or a prepared statement is
    /// missing. The session is then closed: `DEALLOCATE ALL` would also remove the statements of the driver, which does not
    /// prepare those again that it keeps for itself.
    is_spent: AtomicBool,
    /// When it was opened, by the wall clock.
    pub(super) opened: SystemTime,
    /// Whether the server has `transaction_timeout`, as since PostgreSQL 17.
    pub(super) has_transaction_timeout: bool,
}

/// Resets session state that the work may have changed: user, settings, cursors, LISTEN channels, temporary tables,
/// last values of sequences, and advisory locks. `DISCARD ALL` would also discard the prepared statements. Settings
/// return to the values that the session started with. Behind a pooler another client may have started it with another
/// encoding, so the encoding is set again.
const RESET_SESSION: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; SET client_encoding = 'UTF8'; \
     CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()";

/// Maximum number of cached prepared statements. Work that binds its values has fewer, and these take some hundred
/// kilobytes of the server's memory.
const MAX_STATEMENTS: usize = 256;

impl Connection {
    pub(super) fn new(client: Client, task: JoinHandle<()>, opened: SystemTime, has_transaction_timeout: bool) -> Self {
        Self {
            client,
            task,
            statements: Mutex::default(),
            outdated: AtomicU32::new(0),
            retyped: Mutex::default(),
            salt: getrandom::u32().unwrap_or_default(),
            is_spent: AtomicBool::new(false),
            opened,
            has_transaction_timeout,
        }
    }

    /// The statement, prepared at its first use on this connection.
    pub(super) async fn prepared(&self, statement: &str) -> Result<Statement, DatabaseError> {
        if let Some(prepared) = self.cached(statement) {
            return Ok(prepared);
        }
        if uses_sql_prepare(statement) {
            self.is_spent.store(true, Ordering::Relaxed);
        }
        // A pooler answers a text that any client has prepared before with the old statement, also after a migration.
        let prepared = match self.outdated.load(Ordering::Relaxed) {
            0 => self.client.prepare(statement).await,
            outdated => self.client.prepare(&format!("{statement}\n/* {:08x} {outdated} */", self.salt)).await,
        };
        let prepared = prepared.map_err(|error| self.error(error))?;
        let mut statements = self.statements();
        if statements.len() >= MAX_STATEMENTS {
            // Dropping a statement deallocates it on the server, once it is no longer in use.
            statements.clear();
        }
        statements.insert(statement.to_owned(), prepared.clone());
        Ok(prepared)
    }

    /// Executes a statement of the work. If it is outdated, it is prepared again in the next transaction: this one can
    /// only be rolled back.
    pub(super) async fn execute<T>(
        &self,
        statement: &str,
        execute: impl AsyncFnOnce(&Statement) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, DatabaseError> {
        let is_new = self.cached(statement).is_none();
        let prepared = self.prepared(statement).await?;
        execute(&prepared).await.map_err(|error| {
            let may_be_outdated = !is_new && error.as_db_error().is_some_and(is_parameter_type_outdated);
            if !may_be_outdated {
                return self.error(error);
            }
            self.forget_statements();
            if self.is_first_time(statement) { DatabaseError::StatementOutdated } else { error.into() }
        })
    }

    /// Whether the parameters of this statement were not outdated before. The same error may have another cause, such as
    /// the `search_path`, and then comes again, and counts.
    fn is_first_time(&self, statement: &str) -> bool {
        let mut retyped = self.retyped.lock().unwrap_or_else(PoisonError::into_inner);
        retyped.len() < MAX_STATEMENTS && retyped.insert(statement.to_owned())
    }

    /// The error of a statement that was prepared, or of preparing it.
    pub(super) fn error(&self, error: tokio_postgres::Error) -> DatabaseError {
        let Some(server) = error.as_db_error() else { return error.into() };
        if server.code().code() == sqlstate::INVALID_SQL_STATEMENT_NAME {
            // A pooler lost it. It is an error of the work in a function, as its context shows, and if the work handles
            // prepared statements itself.
            let was_spent = self.is_spent.swap(true, Ordering::Relaxed);
            let is_of_the_work = was_spent || server.where_().is_some();
            return if is_of_the_work { error.into() } else { DatabaseError::StatementOutdated };
        }
        if !is_row_type_outdated(server) {
            return error.into();
        }
        self.forget_statements();
        DatabaseError::StatementOutdated
    }

    /// Each statement is prepared again at its next use.
    fn forget_statements(&self) {
        self.outdated.fetch_add(1, Ordering::Relaxed);
        self.statements().clear();
    }

    /// Ends the transaction with `COMMIT` or `ROLLBACK`, and resets the session in the same round trip. Returns whether
    /// the session was reset, so that the connection can be used again. An error is one of the COMMIT or ROLLBACK only.
    ///
    /// Both are one query, so that a pooler does not switch sessions between them.
    pub(super) async fn end(&self, command: &str) -> Result<bool, tokio_postgres::Error> {
        let mut replies = pin!(self.client.simple_query_raw(&format!("{command}; {RESET_SESSION}")).await?);
        // The first reply is that to COMMIT or ROLLBACK.
        replies.try_next().await?;
        if let Err(error) = replies.try_for_each(|_| ready(Ok(()))).await {
            let error = DatabaseError::from(error);
            tracing::warn!(%error, "the session in PostgreSQL could not be reset, so its connection is closed");
            return Ok(false);
        }
        Ok(!self.is_spent.load(Ordering::Relaxed))
    }

    fn cached(&self, statement: &str) -> Option<Statement> {
        self.statements().get(statement).cloned()
    }

    fn statements(&self) -> MutexGuard<'_, HashMap<String, Statement>> {
        // Each change is a single operation of the map, so a panic leaves it consistent.
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the socket immediately, even if a reply is outstanding. The server then ends the session.
impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The type of a column that the statement returns has changed since it was prepared. The SQLSTATE, 0A000, has other
/// meanings too, and the message is localized.
fn is_row_type_outdated(error: &DbError) -> bool {
    error.routine() == Some("RevalidateCachedQuery")
}

/// The type of a parameter was dropped, or the statement needs another one since it was prepared: it was analyzed again, as
/// the position in the statement itself shows.
fn is_parameter_type_outdated(error: &DbError) -> bool {
    let is_in_statement = matches!(error.position(), Some(ErrorPosition::Original(_)));
    let types = [sqlstate::UNDEFINED_FUNCTION, sqlstate::DATATYPE_MISMATCH];
    error.routine() == Some("getTypeBinaryInputInfo") || (is_in_statement && types.contains(&error.code().code()))
}

fn uses_sql_prepare(statement: &str) -> bool {
    let statement = after_comments(statement);
    let end = statement.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(statement.len());
    ["PREPARE", "EXECUTE", "DEALLOCATE"].iter().any(|word| statement[..end].eq_ignore_ascii_case(word))
}

/// The statement without white space, comments and empty statements in front of it. Comments in `/* */` may be nested.
fn after_comments(statement: &str) -> &str {
    let statement = statement.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
    if let Some(comment) = statement.strip_prefix("--") {
        return comment.split_once(['\n', '\r']).map_or("", |(_, rest)| after_comments(rest));
    }
    let Some(mut rest) = statement.strip_prefix("/*") else { return statement };
    let mut depth = 1_u32;
    while depth > 0 {
        let Some(at) = ["/*", "*/"].iter().filter_map(|mark| rest.find(mark)).min() else { return "" };
        depth = if rest[at..].starts_with("/*") { depth.saturating_add(1) } else { depth - 1 };
        rest = &rest[at + 2..];
    }
    after_comments(rest)
}
