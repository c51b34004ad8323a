//! A connection: its statements, and the end of each of its transactions.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::TryStreamExt;
use futures_util::future::ready;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Statement};

use super::DatabaseError;

/// A connection, and the statements that are prepared on it.
pub(super) struct Connection {
    pub(super) client: Client,
    task: JoinHandle<()>,
    statements: Mutex<HashMap<String, Statement>>,
    /// Whether a work has named a statement by SQL. Only the end of the session takes that name back, as
    /// `DEALLOCATE ALL` would take the driver's own too.
    has_named: AtomicBool,
    /// Whether the server can end a transaction by the clock, as since PostgreSQL 17.
    pub(super) ends_transactions: bool,
}

/// What a message may have left in the session: the user it became, settings, cursors, channels that it listens
/// to, temporary tables, numbers drawn from sequences, and locks. `DISCARD ALL` would do it, but it takes the
/// prepared statements too. Settings go back to what the session began with. That need not be the driver's encoding
/// where a pooler's session was begun by another client.
const CLEAR: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; SET client_encoding = 'UTF8'; CLOSE ALL; \
     UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()";

/// Most statements that are kept prepared: more than a work has that binds its values, and some hundred kilobytes
/// of the server's memory.
const MOST_STATEMENTS: usize = 256;

impl Connection {
    pub(super) fn new(client: Client, task: JoinHandle<()>, ends_transactions: bool) -> Self {
        Self { client, task, statements: Mutex::default(), has_named: AtomicBool::new(false), ends_transactions }
    }

    /// The statement, prepared at its first use on this connection.
    pub(super) async fn prepared(&self, statement: &str) -> Result<Statement, DatabaseError> {
        if let Some(known) = self.known(statement) {
            return Ok(known);
        }
        if names_a_statement(statement) {
            self.has_named.store(true, Ordering::Relaxed);
        }
        let prepared = self.client.prepare(statement).await?;
        let mut statements = self.statements();
        if statements.len() >= MOST_STATEMENTS {
            // The server is told of each. Those in use end with their last use.
            statements.clear();
        }
        statements.insert(statement.to_owned(), prepared.clone());
        Ok(prepared)
    }

    /// Have it prepared anew at its next use.
    pub(super) fn forget(&self, statement: &str) {
        self.statements().remove(statement);
    }

    /// End the transaction, by `COMMIT` or `ROLLBACK`, and clear the session in the same flight. Answers whether
    /// the session is clear, so that another transaction may follow. An error is that of the end alone.
    ///
    /// They are one query, so that a pooler does not come between them.
    pub(super) async fn end(&self, by: &str) -> Result<bool, tokio_postgres::Error> {
        let mut replies = pin!(self.client.simple_query_raw(&format!("{by}; {CLEAR}")).await?);
        // The first reply is to the end of the transaction.
        replies.try_next().await?;
        if let Err(error) = replies.try_for_each(|_| ready(Ok(()))).await {
            tracing::warn!(error = %DatabaseError::from(error), "a session of PostgreSQL could not be cleared, and is closed");
            return Ok(false);
        }
        Ok(!self.has_named.load(Ordering::Relaxed))
    }

    fn known(&self, statement: &str) -> Option<Statement> {
        self.statements().get(statement).cloned()
    }

    fn statements(&self) -> MutexGuard<'_, HashMap<String, Statement>> {
        // Every change is one insert, one removal or the removal of all, so a panic elsewhere cannot have left
        // half of one.
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket closes at once, also where a reply is still to come: the server takes that as the end.
impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn names_a_statement(statement: &str) -> bool {
    statement.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("PREPARE"))
}
