//! A transaction: begins in one round trip, ends in another, and is rolled back if it is dropped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::Object;
use futures_util::future::{join, join3, try_join};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::begin::{begin_statement, has_ended};
use super::connection::{Connection, Prepared};
use super::dial::Dialer;
use super::error::has_sqlstate;
use super::{DatabaseError, MARGIN, before};
use crate::sqlstate;

/// The values of `$1`, `$2` and so on.
pub type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A transaction in progress. The inbox commits it or rolls it back: the work must not execute `COMMIT` or `ROLLBACK`.
/// A `SAVEPOINT` is allowed.
///
/// Statements are prepared at their first use on a connection, and behind a pooler at each use if their rows are read.
/// Statements whose futures are polled together (`join!`) are sent together, in one round trip.
pub struct Transaction {
    /// `None` after the end, when the connection is back in its pool.
    connection: Option<Object<Dialer>>,
    /// The last statement.
    last: Option<Prepared<'static>>,
    timeout: Duration,
    ends: Instant,
}

/// The statements that are sent together with BEGIN and COMMIT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionStatements {
    /// Sent with BEGIN.
    pub(crate) first: &'static str,
    /// Sent with COMMIT. Must affect exactly one row. May divide by zero if it affects none, so that the COMMIT rolls
    /// back. Its parameters must have types in the text, because the driver does not send values of other types.
    pub(crate) last: &'static str,
}

/// How a commit failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// The transaction is rolled back.
    #[error("the commit failed")]
    RolledBack(#[source] DatabaseError),
    /// The transaction may have committed.
    #[error("the reply to the commit was lost")]
    Unknown(#[source] DatabaseError),
    /// The last statement did not affect one row: the work has ended the transaction.
    #[error("the work executed COMMIT or ROLLBACK, which only the inbox may do")]
    EndedByWork,
    /// The database refused to say whether the work has ended the transaction.
    #[error("the database did not say whether the work had executed COMMIT or ROLLBACK")]
    Unchecked,
    /// The transaction is rolled back, because its last statement affected no row.
    #[error("the last statement affected no row")]
    NoRow,
    /// The transaction is rolled back, because the work has made it read-only, so that its last statement failed. If
    /// the work has ended it before, it may have committed.
    #[error("the work made its transaction read-only")]
    MadeReadOnly,
}

/// For callers to which the outcome does not matter.
impl From<CommitError> for DatabaseError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::RolledBack(error) | CommitError::Unknown(error) => error,
            CommitError::EndedByWork | CommitError::Unchecked | CommitError::NoRow | CommitError::MadeReadOnly => {
                Self::InvalidStatement(error.to_string())
            }
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl Transaction {
    /// Begins with the first statement. Returns the number of rows that it affected.
    ///
    /// Statements that are not prepared yet are prepared within the transaction, because preparing one waits for locks
    /// on its tables: the timeouts of the transaction apply to that too.
    pub(super) async fn begin(
        connection: Object<Dialer>,
        lock_timeout: Duration,
        ends: Instant,
        statements: TransactionStatements,
        parameters: Parameters<'_>,
    ) -> Result<(Self, u64), DatabaseError> {
        let mut transaction = Self { connection: Some(connection), last: None, timeout: lock_timeout, ends };
        let connection = transaction.connection()?;
        let statement = begin_statement(connection, lock_timeout, ends);
        let executed = async {
            let (first, last) =
                try_join(connection.prepared(statements.first), connection.prepared(statements.last)).await?;
            let affected = connection.client.execute(&first.statement, parameters);
            let (affected, looked) = join(affected, connection.look_for_pooler()).await;
            let affected = connection.executed(&first, affected)?;
            looked?;
            Ok((last, affected))
        };
        let (begun, executed) = join(connection.client.batch_execute(&statement), executed).await;
        match begun.map_err(DatabaseError::from).and(executed) {
            Ok((last, affected)) => {
                // A transaction that is rolled back does not execute it.
                connection.keep(&last);
                transaction.last = Some(last);
                Ok((transaction, affected))
            }
            Err(error) => {
                // After a lock timeout, for example, the connection is still usable.
                if !error.is_of_the_connection() {
                    transaction.roll_back().await;
                }
                Err(error)
            }
        }
    }

    /// Executes a statement and returns the number of rows that it affected.
    ///
    /// # Errors
    /// [`DatabaseError`]. If the server returned an error, every later statement fails too, and the transaction is
    /// rolled back, unless the work rolls back to a savepoint.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the statement may or may not be executed as part of the transaction.
    pub async fn execute(&self, statement: &str, parameters: Parameters<'_>) -> Result<u64, DatabaseError> {
        let connection = self.connection()?;
        let prepared = connection.prepared(statement).await?;
        connection.executed(&prepared, connection.client.execute(&prepared.statement, parameters).await)
    }

    /// Executes a statement and returns its rows.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute).
    ///
    /// ## Cancel safety
    /// As for [`execute`](Self::execute).
    pub async fn query(&self, statement: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, DatabaseError> {
        let connection = self.connection()?;
        let prepared = connection.prepared_to_read(statement).await?;
        connection.executed(&prepared, connection.client.query(&prepared.statement, parameters).await)
    }

    /// Executes a statement and returns its first row, if there is one.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute).
    ///
    /// ## Cancel safety
    /// As for [`execute`](Self::execute).
    pub async fn query_first(&self, statement: &str, parameters: Parameters<'_>) -> Result<Option<Row>, DatabaseError> {
        Ok(self.query(statement, parameters).await?.into_iter().next())
    }

    /// Executes the last statement and commits, in one round trip.
    pub(crate) async fn commit(mut self, parameters: Parameters<'_>) -> Result<(), CommitError> {
        let (Ok(connection), Some(last)) = (self.connection(), &self.last) else {
            return Err(CommitError::EndedByWork);
        };
        if connection.client.is_closed() {
            let closed = "closed before the commit was sent";
            return Err(CommitError::RolledBack(DatabaseError::ConnectionLost(Arc::from(Box::from(closed)))));
        }
        // They are executed in this order. If the statement fails, the COMMIT rolls back, unless the work has ended the
        // transaction.
        let executed = connection.client.execute(&last.statement, parameters);
        let (executed, has_ended, ended) =
            join3(executed, has_ended(&connection.client), connection.end("COMMIT")).await;
        match has_ended {
            Some(false) => {}
            Some(true) => return Err(CommitError::EndedByWork),
            // If the server refuses to answer, that error also aborts the transaction. The COMMIT then rolls back, and
            // reports no error.
            None => return Err(CommitError::Unchecked),
        }
        match (executed, ended) {
            (Ok(1), Ok(is_reset)) => {
                if is_reset {
                    self.return_to_pool();
                }
                Ok(())
            }
            (Ok(_), Ok(_)) => Err(CommitError::EndedByWork),
            (Err(error), _) if has_sqlstate(&error, sqlstate::DIVISION_BY_ZERO) => {
                self.roll_back().await;
                Err(CommitError::NoRow)
            }
            // A server that accepts no writes has not executed the first statement.
            (Err(error), _) if has_sqlstate(&error, sqlstate::READ_ONLY_SQL_TRANSACTION) => {
                self.roll_back().await;
                Err(CommitError::MadeReadOnly)
            }
            (Err(error), _) => {
                let error = connection.failed(last, error);
                Err(self.commit_failed(error).await)
            }
            (Ok(_), Err(error)) => Err(self.commit_failed(error.into()).await),
        }
    }

    async fn commit_failed(self, error: DatabaseError) -> CommitError {
        if error.leaves_commit_unknown() {
            return CommitError::Unknown(error);
        }
        self.roll_back().await;
        CommitError::RolledBack(error)
    }

    /// Whether the work has ended this transaction with COMMIT or ROLLBACK. `None` if the server does not say so in time,
    /// or refuses to. If the session has ended, it is not known either, and counts as not ended.
    pub(crate) async fn was_ended_by_work(&self) -> Option<bool> {
        let Ok(connection) = self.connection() else { return Some(false) };
        timeout_at(self.end_of_wait(), has_ended(&connection.client)).await.ok()?
    }

    /// Rolls back. If the server replies before the deadline, the connection returns to its pool, else it is closed.
    pub(crate) async fn roll_back(mut self) {
        if let Ok(connection) = self.connection()
            && let Ok(Ok(true)) = timeout_at(self.end_of_wait(), connection.end("ROLLBACK")).await
        {
            self.return_to_pool();
        }
    }

    /// The end of the wait for a reply that does not change the outcome.
    fn end_of_wait(&self) -> Instant {
        before(self.ends, MARGIN).min(Instant::now() + self.timeout)
    }

    fn return_to_pool(&mut self) {
        self.connection = None;
    }

    fn connection(&self) -> Result<&Connection, DatabaseError> {
        self.connection.as_deref().ok_or(DatabaseError::Timeout)
    }
}

/// A transaction that is dropped before its end may have statements in flight, so its connection is closed, and the
/// server rolls back.
impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(Object::take(connection));
        }
    }
}
