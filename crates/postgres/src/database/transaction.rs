//! A transaction: begun in one round trip, ended in another, and undone wherever it is left.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::Object;
use futures_util::future::{join, try_join};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, SimpleQueryMessage, Statement};

use super::connection::Connection;
use super::dial::Dialler;
use super::{DatabaseError, MARGIN, before};

/// What stands for `$1`, `$2` and so on.
pub type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A transaction under way. What is done by it takes effect when it commits, all at once or not at all.
///
/// Statements are prepared at their first use on a connection. Those whose futures are polled together
/// (`join!`) travel together. `COMMIT` and `ROLLBACK` are not the work's to ask for; a `SAVEPOINT` may be.
pub struct Transaction {
    /// `None` once it has ended and the connection is back in its pool.
    connection: Option<Object<Dialler>>,
    /// What it commits with.
    closing: Option<Statement>,
    timeout: Duration,
    ends: Instant,
}

/// What a transaction begins and commits with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The first statement, which goes in one flight with the begin.
    pub(crate) opening: &'static str,
    /// The last statement, which goes in one flight with the commit, and has to touch one row.
    pub(crate) closing: &'static str,
}

/// How a commit failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// Nothing took effect.
    #[error("the commit was refused")]
    Undone(#[source] DatabaseError),
    /// It may have taken effect: its reply was lost.
    #[error("the reply to the commit was lost")]
    Unknown(#[source] DatabaseError),
    /// The last statement did not touch the one row that it had to: the transaction was not the one that
    /// was begun.
    #[error("the work has ended its transaction by itself")]
    Strayed,
}

/// Where it does not matter which.
impl From<CommitError> for DatabaseError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Undone(error) | CommitError::Unknown(error) => error,
            CommitError::Strayed => Self::Misused(error.to_string()),
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl Transaction {
    /// Begin with the opening statement, and count the rows that it touched.
    pub(super) async fn begin(
        connection: Object<Dialler>,
        lock_timeout: Duration,
        ends: Instant,
        frame: Frame,
        parameters: Parameters<'_>,
    ) -> Result<(Self, u64), DatabaseError> {
        let mut transaction = Self { connection: Some(connection), closing: None, timeout: lock_timeout, ends };
        let connection = transaction.connection()?;
        let (opening, closing) =
            try_join(connection.prepared(frame.opening), connection.prepared(frame.closing)).await?;
        let bounds = begin(connection, lock_timeout, ends);
        let (begun, touched) =
            join(connection.client.batch_execute(&bounds), connection.client.execute(&opening, parameters)).await;
        let touched = touched.map_err(|error| refused(connection, frame.opening, error));
        match begun.map_err(DatabaseError::from).and(touched) {
            Ok(touched) => {
                transaction.closing = Some(closing);
                Ok((transaction, touched))
            }
            Err(error) => {
                // What holds the lock that was waited for says nothing against the connection.
                if !error.is_of_the_connection() {
                    transaction.roll_back().await;
                }
                Err(error)
            }
        }
    }

    /// Execute a statement, and count the rows that it touched.
    ///
    /// # Errors
    /// [`DatabaseError`]; where the server refused, the transaction can only be undone.
    ///
    /// ## Cancel safety
    /// Dropped, it may have been executed, as part of the transaction.
    pub async fn execute(&self, statement: &str, parameters: Parameters<'_>) -> Result<u64, DatabaseError> {
        let connection = self.connection()?;
        let prepared = connection.prepared(statement).await?;
        let executed = connection.client.execute(&prepared, parameters).await;
        executed.map_err(|error| refused(connection, statement, error))
    }

    /// Execute a statement, and fetch its rows.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    ///
    /// ## Cancel safety
    /// As [`execute`](Self::execute).
    pub async fn query(&self, statement: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, DatabaseError> {
        let connection = self.connection()?;
        let prepared = connection.prepared(statement).await?;
        let rows = connection.client.query(&prepared, parameters).await;
        rows.map_err(|error| refused(connection, statement, error))
    }

    /// Execute a statement, and fetch the first of its rows, if it has any.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    ///
    /// ## Cancel safety
    /// As [`execute`](Self::execute).
    pub async fn query_first(&self, statement: &str, parameters: Parameters<'_>) -> Result<Option<Row>, DatabaseError> {
        Ok(self.query(statement, parameters).await?.into_iter().next())
    }

    /// Commit with the closing statement, in one round trip.
    pub(crate) async fn commit(mut self, parameters: Parameters<'_>) -> Result<(), CommitError> {
        let (Ok(connection), Some(closing)) = (self.connection(), &self.closing) else {
            return Err(CommitError::Strayed);
        };
        if connection.client.is_closed() {
            let closed = "it was closed before the commit was sent";
            return Err(CommitError::Undone(DatabaseError::Broken(Arc::from(Box::from(closed)))));
        }
        // They are sent in this order. Where the first is refused, the commit only undoes.
        let ended = join(connection.client.execute(closing, parameters), connection.end("COMMIT")).await;
        match ended {
            (Ok(1), Ok(is_clear)) => {
                if is_clear {
                    self.give_back();
                }
                Ok(())
            }
            (Ok(_), Ok(_)) => Err(CommitError::Strayed),
            // A work has deallocated it, or a pooler has lost it. The connection goes with the transaction, so that
            // none of its statements is used again.
            (Err(error), _) if is_outdated(&error) => Err(CommitError::Undone(DatabaseError::Outdated)),
            (Err(error), _) | (Ok(_), Err(error)) => {
                let error = DatabaseError::from(error);
                // A server that goes down may have come to the commit before.
                if error.code().is_none() || error.is_of_the_connection() {
                    return Err(CommitError::Unknown(error));
                }
                self.roll_back().await;
                Err(CommitError::Undone(error))
            }
        }
    }

    /// Whether the server says that this transaction has ended: the work has committed it or rolled it back.
    pub(crate) async fn has_strayed(&self) -> bool {
        let Ok(connection) = self.connection() else { return false };
        // After an error nothing is executed but the end of the transaction, so that there still is one.
        match timeout_at(self.end_of_wait(), connection.client.simple_query(BEGUN)).await {
            Ok(Ok(replies)) => !replies.iter().any(says_yes),
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Undo everything, and give the connection back, if it answers.
    pub(crate) async fn roll_back(mut self) {
        if let Ok(connection) = self.connection()
            && let Ok(Ok(true)) = timeout_at(self.end_of_wait(), connection.end("ROLLBACK")).await
        {
            self.give_back();
        }
    }

    /// The end of the wait for a reply that decides nothing.
    fn end_of_wait(&self) -> Instant {
        before(self.ends, MARGIN).min(Instant::now() + self.timeout)
    }

    fn give_back(&mut self) {
        self.connection = None;
    }

    fn connection(&self) -> Result<&Connection, DatabaseError> {
        self.connection.as_deref().ok_or(DatabaseError::Late)
    }
}

/// An outdated statement is prepared anew by the next transaction; this one can only be undone.
fn refused(connection: &Connection, statement: &str, error: tokio_postgres::Error) -> DatabaseError {
    if is_outdated(&error) {
        connection.forget(statement);
        return DatabaseError::Outdated;
    }
    error.into()
}

fn is_outdated(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|said| {
        *said.code() == SqlState::INVALID_SQL_STATEMENT_NAME || said.routine() == Some(ROWS_HAVE_CHANGED)
    })
}

/// Where the server finds that a prepared statement's rows are no longer of the type that its client knows. The
/// code, 0A000, has other meanings too, and the message is in the server's language.
const ROWS_HAVE_CHANGED: &str = "RevalidateCachedQuery";

/// Where it was left before its end nobody knows what is on its way, so the connection ends too, and the
/// server undoes what was done.
impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(Object::take(connection));
        }
    }
}

/// Everything that the server needs to end it by itself. A timeout of 0 would be none.
fn begin(connection: &Connection, lock_timeout: Duration, ends: Instant) -> String {
    let ms = |time: Duration| u64::try_from(time.as_millis()).map_or(MOST_MS, |ms| ms.clamp(1, MOST_MS));
    let now = Instant::now();
    let left = ms(ends.saturating_duration_since(now));
    let lock = ms(lock_timeout.min(before(ends, 2 * MARGIN).saturating_duration_since(now)));
    let by_the_clock =
        if connection.ends_transactions { format!("; SET LOCAL transaction_timeout = {left}") } else { String::new() };
    // The server looks once in a while whether its client is still there, also within a statement. The last
    // setting tells whether a statement is within this transaction.
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {lock}; SET LOCAL statement_timeout = {left}; \
         SET LOCAL idle_in_transaction_session_timeout = {left}; SET LOCAL client_connection_check_interval = \
         {lock}{by_the_clock}; SET LOCAL idempotent_sqs.begun = 'yes'"
    )
}

fn says_yes(reply: &SimpleQueryMessage) -> bool {
    matches!(reply, SimpleQueryMessage::Row(row) if row.get(0) == Some("yes"))
}

const BEGUN: &str = "SELECT current_setting('idempotent_sqs.begun', true)";

/// PostgreSQL's own largest timeout.
const MOST_MS: u64 = 2_147_483_647;
