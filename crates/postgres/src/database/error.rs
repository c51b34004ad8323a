//! Errors of the database, and what they mean for the work.

use std::error::Error;
use std::io;
use std::sync::Arc;

use idempotent_sqs::WorkError;
use tokio_postgres::error::{DbError, ErrorPosition};
use tokio_postgres::types::{WasNull, WrongType};

use crate::sqlstate::{self, class};

/// Why a statement or a transaction failed. The messages contain no values of rows or parameters.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// No connection could be opened.
    #[error("cannot connect to PostgreSQL: {0}")]
    Unreachable(Arc<dyn Error + Send + Sync>),
    /// All connections of the pool stayed in use until the deadline.
    #[error("no connection to PostgreSQL became free before the deadline")]
    PoolExhausted,
    /// The connection was closed.
    #[error("the connection to PostgreSQL was closed")]
    ConnectionLost(#[source] Arc<dyn Error + Send + Sync>),
    /// The server did not reply within the timeout.
    #[error("PostgreSQL did not reply within the timeout")]
    Timeout,
    /// A prepared statement may be no longer valid: the type of its rows or parameters has changed, or a pooler has lost
    /// it.
    #[error("the prepared statement may be outdated; it is prepared again at its next use")]
    StatementOutdated,
    /// The server returned an error.
    #[error("PostgreSQL returned error {code}{}", printable(message, *may_quote_values))]
    #[non_exhaustive]
    Server {
        /// SQLSTATE: <https://www.postgresql.org/docs/current/errcodes-appendix.html>
        code: String,
        /// The primary message, without the detail, which quotes rows.
        message: String,
        /// The violated constraint.
        constraint: Option<String>,
        /// Whether the message may contain values of rows or parameters. It is then not displayed.
        may_quote_values: bool,
        /// Whether a lock timeout ended the wait for a row of another transaction, and not for a lock on a table. Also
        /// true of any lock within a PL/pgSQL function, where the two are not distinguished.
        is_row_wait: bool,
    },
    /// The statement cannot be sent with these values: it has more than 65,535 parameters, contains a NUL, or a value
    /// cannot be written.
    #[error("the statement is invalid: {0}")]
    InvalidStatement(String),
    /// The parameters or columns have other types than the values, or another number, or the server replied otherwise than
    /// to a query. The tables may be of another version than this program.
    #[error("the statement does not match its values: {0}")]
    StatementMismatch(String),
}

fn printable(message: &str, may_quote_values: bool) -> String {
    if may_quote_values { String::new() } else { format!(": {message}") }
}

/// Whether the message of this error may quote values of rows or parameters, as `invalid input syntax for type bigint:
/// "…"` does. Names do not, unless a function got them as values.
fn may_quote_values(error: &DbError) -> bool {
    let code = error.code().code();
    let is_of = |classes: &[&str]| classes.iter().any(|class| code.starts_with(class));
    // The position in the statement itself, which has parameters instead of values.
    let is_in_statement =
        is_of(&[class::SYNTAX_OR_ACCESS]) && matches!(error.position(), Some(ErrorPosition::Original(_)));
    // Servers that are only compatible may not name the routine.
    error.routine().is_none_or(|routine| RELAYS.contains(&routine))
        || !(is_of(&WITHOUT_VALUES) || is_in_statement || error.routine() == Some(PERMISSION_CHECK))
}

/// Classes, and some codes, of errors whose messages name tables, constraints, users and states of the server, but no
/// values.
const WITHOUT_VALUES: [&str; 13] = [
    class::CARDINALITY_VIOLATION,
    class::INTEGRITY_CONSTRAINT_VIOLATION,
    class::INVALID_TRANSACTION_STATE,
    class::INVALID_STATEMENT_NAME,
    class::INVALID_AUTHORIZATION,
    class::TRANSACTION_ROLLBACK,
    class::CHECK_OPTION_VIOLATION,
    class::OPERATOR_INTERVENTION,
    sqlstate::DUPLICATE_PREPARED_STATEMENT,
    sqlstate::INVALID_COLUMN_REFERENCE,
    sqlstate::OUT_OF_MEMORY,
    sqlstate::TOO_MANY_CONNECTIONS,
    sqlstate::LOCK_NOT_AVAILABLE,
];

/// The routine of the server that reports that a user may not use a table, or another object.
const PERMISSION_CHECK: &str = "aclcheck_error";

/// Routines of the server that return errors of others with any SQLSTATE: `RAISE` of PL/pgSQL, PL/Python,
/// `postgres_fdw` and `dblink`.
const RELAYS: [&str; 6] = [
    "exec_stmt_raise",
    "PLy_output",
    "PLy_elog_impl",
    "pgfdw_report_error",
    "pgfdw_report_internal",
    "dblink_res_error",
];

/// Whether the server returned this SQLSTATE.
pub(super) fn has_sqlstate(error: &tokio_postgres::Error, sqlstate: &str) -> bool {
    error.code().is_some_and(|code| code.code() == sqlstate)
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(server) = error.as_db_error() {
            return Self::Server {
                code: server.code().code().to_owned(),
                message: server.message().to_owned(),
                constraint: server.constraint().map(str::to_owned),
                may_quote_values: may_quote_values(server),
                // The server says which row it waits for as the context of the error. For a table it has none.
                is_row_wait: server.code().code() == sqlstate::LOCK_NOT_AVAILABLE && server.where_().is_some(),
            };
        }
        // The client could not write the statement, or read what it returns. The connection is intact.
        let is_invalid = |error: &io::Error| error.kind() == io::ErrorKind::InvalidInput;
        let source = error.source();
        let io_error = source.and_then(<dyn Error>::downcast_ref);
        if error.is_closed() || io_error.is_some_and(|error| !is_invalid(error)) {
            return Self::ConnectionLost(Arc::new(error));
        }
        match source {
            Some(types) if types.is::<WrongType>() || types.is::<WasNull>() => {
                Self::StatementMismatch(format!("{error}: {types}"))
            }
            // Its message may quote a value.
            Some(_of_value) => Self::InvalidStatement(error.to_string()),
            None => Self::StatementMismatch(error.to_string()),
        }
    }
}

impl DatabaseError {
    /// The SQLSTATE, if the server returned an error.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        let Self::Server { code, .. } = self else { return None };
        Some(code)
    }

    /// The violated constraint, if there is one.
    #[must_use]
    pub fn constraint(&self) -> Option<&str> {
        let Self::Server { constraint, .. } = self else { return None };
        constraint.as_deref()
    }

    /// Whether another connection may succeed: this one is closed or silent, or its server stops, starts, or is a
    /// read-only standby.
    pub(super) fn is_of_the_connection(&self) -> bool {
        match self {
            Self::ConnectionLost(_) | Self::Timeout => true,
            Self::Unreachable(_)
            | Self::PoolExhausted
            | Self::StatementOutdated
            | Self::InvalidStatement(_)
            | Self::StatementMismatch(_) => false,
            Self::Server { code, .. } => {
                code.starts_with(class::CONNECTION_EXCEPTION)
                    || code.starts_with(class::SHUTDOWN)
                    || code == sqlstate::READ_ONLY_SQL_TRANSACTION
            }
        }
    }

    /// Whether a transaction may be committed although its COMMIT failed with this error: the reply was lost, or the
    /// server shuts down and may have committed before. The COMMIT after an outdated statement rolls back.
    pub(super) fn leaves_commit_unknown(&self) -> bool {
        let has_reply = self.code().is_some() || matches!(self, Self::StatementOutdated);
        !has_reply || self.is_of_the_connection()
    }

    /// Whether the failure is unrelated to the message, and other messages would fail too. The attempt is then not
    /// counted.
    fn is_unavailable(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::ConnectionLost(_) | Self::Timeout => true,
            Self::PoolExhausted | Self::StatementOutdated | Self::InvalidStatement(_) | Self::StatementMismatch(_) => {
                false
            }
            Self::Server { code, .. } => {
                UNAVAILABLE_CLASSES.iter().any(|class| code.starts_with(class))
                    || code == sqlstate::READ_ONLY_SQL_TRANSACTION
            }
        }
    }

    /// Whether the failure is unrelated to the message, and other messages may succeed: contention, or a statement that
    /// was cancelled. The attempt is then not counted.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::PoolExhausted | Self::StatementOutdated => true,
            Self::Unreachable(_)
            | Self::ConnectionLost(_)
            | Self::Timeout
            | Self::InvalidStatement(_)
            | Self::StatementMismatch(_) => false,
            Self::Server { code, .. } => BUSY.contains(&code.as_str()),
        }
    }

    /// Whether no attempt can succeed: wrong data, or a violated constraint.
    fn is_permanent(&self) -> bool {
        let is_of = |class| self.code().is_some_and(|code| code.starts_with(class));
        matches!(self, Self::InvalidStatement(_))
            || is_of(class::DATA_EXCEPTION)
            || is_of(class::INTEGRITY_CONSTRAINT_VIOLATION)
    }
}

const UNAVAILABLE_CLASSES: [&str; 4] =
    [class::CONNECTION_EXCEPTION, class::INSUFFICIENT_RESOURCES, class::OPERATOR_INTERVENTION, class::SYSTEM_ERROR];

const BUSY: [&str; 5] = [
    sqlstate::SERIALIZATION_FAILURE,
    sqlstate::DEADLOCK_DETECTED,
    sqlstate::LOCK_NOT_AVAILABLE,
    sqlstate::QUERY_CANCELED,
    // Open connections still work.
    sqlstate::TOO_MANY_CONNECTIONS,
];

/// For errors before a commit was sent: the transaction is rolled back, so nothing happened.
impl From<DatabaseError> for WorkError {
    fn from(error: DatabaseError) -> Self {
        if error.is_permanent() {
            Self::permanent(error)
        } else if error.is_busy() {
            Self::busy(error)
        } else if error.is_unavailable() {
            Self::unavailable(error)
        } else {
            Self::retryable(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: &str) -> DatabaseError {
        let (code, constraint) = (code.into(), Some("of_an_account".into()));
        DatabaseError::Server { code, message: String::new(), constraint, may_quote_values: false, is_row_wait: false }
    }

    #[test]
    fn a_closed_connection_a_shutdown_and_a_standby_concern_the_connection() {
        let lost = DatabaseError::ConnectionLost(Arc::from(Box::from("closed")));
        for error in [lost, DatabaseError::Timeout, server("08006"), server("57P01"), server("25006")] {
            assert!(error.is_of_the_connection() && error.leaves_commit_unknown(), "{error}");
        }
        for error in [server("40001"), server("23503"), server("57014")] {
            assert!(!error.is_of_the_connection() && !error.leaves_commit_unknown(), "{error}");
        }
    }

    #[test]
    fn an_error_of_the_server_names_the_violated_constraint() {
        assert_eq!(server("23503").constraint(), Some("of_an_account"));
        assert_eq!(DatabaseError::Timeout.constraint(), None);
    }
}
