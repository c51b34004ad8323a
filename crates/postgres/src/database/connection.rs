//! A connection: its prepared statements, and the end of each of its transactions.

use std::collections::HashMap;
use std::error::Error;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use futures_util::TryStreamExt;
use futures_util::future::ready;
use tokio::task::JoinHandle;
use tokio_postgres::error::ErrorPosition;
use tokio_postgres::types::WrongType;
use tokio_postgres::{Client, SimpleQueryMessage, Statement};

use super::DatabaseError;
use super::error::has_sqlstate;
use crate::sqlstate;

/// A connection, and the statements prepared on it.
pub(super) struct Connection {
    pub(super) client: Client,
    task: JoinHandle<()>,
    statements: Mutex<HashMap<String, Kept>>,
    /// Number of statements that were prepared.
    prepared_count: AtomicU32,
    /// Distinguishes its statements from those of other connections behind a pooler.
    salt: u32,
    /// Whether the session has the statements of this connection alone, under the names that the driver gave them. If not,
    /// there may be a pooler that changes the session between transactions.
    is_direct: OnceLock<bool>,
    /// Whether the work has executed the SQL statement `PREPARE`, `EXECUTE` or `DEALLOCATE`, or a prepared statement is
    /// missing. The session is then closed: `DEALLOCATE ALL` would also remove the statements of the driver, which does not
    /// prepare those again that it keeps for itself.
    is_spent: AtomicBool,
    /// When it was opened, by the wall clock.
    pub(super) opened: SystemTime,
    /// Whether the server has `transaction_timeout`, as since PostgreSQL 17.
    pub(super) has_transaction_timeout: bool,
}

/// What is kept of a statement that has succeeded, or is the last one of transactions.
enum Kept {
    Prepared(Statement),
    /// It was outdated once, so it is prepared at each use. Otherwise tenants whose tables have other types would make each
    /// other's statements fail.
    Changing,
}

/// A statement that can be executed.
pub(super) struct Prepared<'a> {
    text: &'a str,
    pub(super) statement: Statement,
    /// Whether it was prepared for this use.
    is_new: bool,
}

/// Resets session state that the work may have changed: user, settings, cursors, LISTEN channels, temporary tables,
/// last values of sequences, and advisory locks. `DISCARD ALL` would also discard the statements by which the driver reads
/// types. Settings return to the values that the session started with. Behind a pooler another client may have started it
/// with another encoding, so the encoding is set again.
const RESET_SESSION: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; SET client_encoding = 'UTF8'; \
     CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()";

/// Maximum number of statements that are kept. Work that binds its values has fewer, and these take some hundred
/// kilobytes of the server's memory.
const MAX_STATEMENTS: usize = 256;

impl Connection {
    pub(super) fn new(client: Client, task: JoinHandle<()>, opened: SystemTime, has_transaction_timeout: bool) -> Self {
        Self {
            client,
            task,
            statements: Mutex::default(),
            prepared_count: AtomicU32::new(0),
            salt: getrandom::u32().unwrap_or_default(),
            is_direct: OnceLock::new(),
            is_spent: AtomicBool::new(false),
            opened,
            has_transaction_timeout,
        }
    }

    /// The statement, prepared at its first use on this connection.
    pub(super) async fn prepared<'a>(&self, text: &'a str) -> Result<Prepared<'a>, DatabaseError> {
        if let Some(Kept::Prepared(statement)) = self.statements().get(text) {
            return Ok(Prepared { text, statement: statement.clone(), is_new: false });
        }
        self.prepare(text).await
    }

    /// As [`prepared`](Self::prepared), of a statement whose rows are read. Behind a pooler it is prepared at each use: in
    /// another session its columns may have other types, which only a new statement tells the driver.
    pub(super) async fn prepared_to_read<'a>(&self, text: &'a str) -> Result<Prepared<'a>, DatabaseError> {
        if self.is_direct() { self.prepared(text).await } else { self.prepare(text).await }
    }

    async fn prepare<'a>(&self, text: &'a str) -> Result<Prepared<'a>, DatabaseError> {
        if uses_sql_prepare(text) {
            self.is_spent.store(true, Ordering::Relaxed);
        }
        // A pooler answers a text that any client has prepared before with the old statement, also after a migration.
        let number = self.prepared_count.fetch_add(1, Ordering::Relaxed);
        let unique = format!("{text}\n/* {:08x} {number} */", self.salt);
        let mut statement = self.client.prepare(&unique).await.map_err(|error| self.error(error))?;
        // A pooler parses the text again for another session, in which its parameters could have other types.
        if !statement.params().is_empty() && !self.is_direct() {
            let typed = self.client.prepare_typed(&unique, statement.params()).await;
            statement = typed.map_err(|error| self.error(error))?;
        }
        Ok(Prepared { text, statement, is_new: true })
    }

    /// Whether it is known that there is no pooler.
    fn is_direct(&self) -> bool {
        self.is_direct.get() == Some(&true)
    }

    /// Looks for a pooler, in the first transaction. The list has the statements that were prepared for it.
    ///
    /// # Errors
    /// If the server refuses, the transaction has failed. Another one assumes a pooler.
    pub(super) async fn look_for_pooler(&self) -> Result<(), DatabaseError> {
        if self.is_direct.get().is_some() {
            return Ok(());
        }
        let rows = match self.client.simple_query("SELECT name, statement FROM pg_prepared_statements").await {
            Ok(rows) => rows,
            Err(error) => {
                if !has_sqlstate(&error, sqlstate::IN_FAILED_SQL_TRANSACTION) {
                    _ = self.is_direct.set(false);
                }
                return Err(DatabaseError::StatementOutdated);
            }
        };
        let salt = format!("/* {:08x} ", self.salt);
        // The driver names its statements s0, s1 and so on.
        let is_own = |reply: &SimpleQueryMessage| {
            let SimpleQueryMessage::Row(row) = reply else { return None };
            let number = row.get(0)?.strip_prefix('s').unwrap_or_default();
            Some(number.parse::<u64>().is_ok() && row.get(1)?.contains(&salt))
        };
        let are_own = rows.iter().filter_map(is_own).reduce(|all, is_own| all && is_own);
        _ = self.is_direct.set(are_own == Some(true));
        Ok(())
    }

    /// The outcome of a statement.
    pub(super) fn executed<T>(
        &self,
        prepared: &Prepared<'_>,
        outcome: Result<T, tokio_postgres::Error>,
    ) -> Result<T, DatabaseError> {
        let value = outcome.map_err(|error| self.failed(prepared, error))?;
        self.keep(prepared);
        Ok(value)
    }

    /// Keeps a statement. One of the work that never has succeeded is not kept, so its errors count.
    pub(super) fn keep(&self, prepared: &Prepared<'_>) {
        if !prepared.is_new {
            return;
        }
        let mut statements = self.statements();
        if statements.len() >= MAX_STATEMENTS && !statements.contains_key(prepared.text) {
            forget_prepared(&mut statements);
        }
        statements.entry(prepared.text.to_owned()).or_insert_with(|| Kept::Prepared(prepared.statement.clone()));
    }

    /// The error of a statement. If the statement may be outdated, it is prepared again at its next use. If the server
    /// returned the error, the next use is in another transaction, because this one has failed.
    pub(super) fn failed(&self, prepared: &Prepared<'_>, error: tokio_postgres::Error) -> DatabaseError {
        if error.source().is_some_and(<dyn Error>::is::<WrongType>) {
            // The driver keeps the variants and fields of each type, which a migration may have changed.
            self.client.clear_type_cache();
        }
        if prepared.is_new || !may_be_outdated(&prepared.statement, &error) {
            return self.error(error);
        }
        let mut statements = self.statements();
        // The same migration may have changed others.
        forget_prepared(&mut statements);
        if statements.len() >= MAX_STATEMENTS {
            // Too many to remember which have been outdated.
            return error.into();
        }
        statements.insert(prepared.text.to_owned(), Kept::Changing);
        DatabaseError::StatementOutdated
    }

    /// The error of a statement that is not outdated, or of preparing one.
    fn error(&self, error: tokio_postgres::Error) -> DatabaseError {
        if let Some(server) = error.as_db_error()
            && server.code().code() == sqlstate::INVALID_SQL_STATEMENT_NAME
        {
            // A pooler has lost the statement. There are two exceptions: an error with a context comes from a function,
            // and work that uses PREPARE, EXECUTE or DEALLOCATE may have caused the error itself. Both are errors of
            // the work.
            let was_spent = self.is_spent.swap(true, Ordering::Relaxed);
            if !was_spent && server.where_().is_none() {
                return DatabaseError::StatementOutdated;
            }
        }
        error.into()
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

    fn statements(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
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

/// Each is prepared again at its next use. Dropping a statement deallocates it on the server, once it is no longer in use.
fn forget_prepared(statements: &mut HashMap<String, Kept>) {
    statements.retain(|_, kept| matches!(kept, Kept::Changing));
}

/// Whether a statement that has succeeded may have failed because the type of a column that it returns, or of a parameter,
/// has changed since or was dropped. Other causes have the same errors.
fn may_be_outdated(statement: &Statement, error: &tokio_postgres::Error) -> bool {
    let Some(server) = error.as_db_error() else {
        return error.source().is_some_and(<dyn Error>::is::<WrongType>);
    };
    let code = server.code().code();
    // It was analyzed again with the types that its parameters had, as the position in the statement itself shows.
    let is_in_statement = matches!(server.position(), Some(ErrorPosition::Original(_)));
    // A type was dropped. A pooler parses the statement again; an error of a function has a context.
    let is_dropped = server.routine() == Some("getTypeBinaryInputInfo")
        || (code == sqlstate::INTERNAL_ERROR && server.where_().is_none());
    let is_of_parameters = is_dropped || (is_in_statement && WRONG_TYPE.contains(&code));
    // Its SQLSTATE, 0A000, has other meanings too, and the message is localized.
    let is_of_columns = server.routine() == Some("RevalidateCachedQuery");
    is_of_columns || (is_of_parameters && !statement.params().is_empty())
}

const WRONG_TYPE: [&str; 3] = [sqlstate::UNDEFINED_FUNCTION, sqlstate::DATATYPE_MISMATCH, sqlstate::CANNOT_COERCE];

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
