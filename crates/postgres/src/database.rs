//! PostgreSQL: connections that are made when they are needed, and transactions that end in time.
//!
//! - `address`: the URL, and whether TLS is used
//! - `connection`: its statements, and the end of each of its transactions
//! - `dial`: makes connections
//! - `transaction`: what a work is given

mod address;
mod connection;
mod dial;
mod transaction;

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{Object, Pool, PoolError, TimeoutType, Timeouts};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::error::SqlState;

use idempotent_sqs::WorkError;
use idempotent_sqs::aws::CREDENTIALS_TIMEOUT;
use idempotent_sqs::credentials::CredentialsSource;

use crate::sqlstate;
use dial::Dialler;

pub use address::{DatabaseUrl, DatabaseUrlError};
pub use tokio_postgres::{Row, types};
pub(crate) use transaction::{CommitError, Frame};
pub use transaction::{Parameters, Transaction};

/// Once on a connection at hand, once on a new one. A server that refuses a fresh connection needs more
/// time than a caller has patience.
const TRIES: u32 = 2;

/// How long before its end the begin of a transaction is given up, in time for the caller to say that nothing
/// happened. What is waited for in it, a free connection and a lock, is given up earlier by as much again, in time
/// to say which it was.
const MARGIN: Duration = Duration::from_millis(50);

fn before(ends: Instant, margin: Duration) -> Instant {
    ends.checked_sub(margin).unwrap_or(ends)
}

/// Settings of a [`Database`].
#[derive(Clone)]
#[non_exhaustive]
pub struct DatabaseSettings {
    /// The server, the database in it, and how to get in.
    pub url: DatabaseUrl,
    /// The longest time to make a connection and to begin a transaction, and the longest wait for a lock. The
    /// time for a password from elsewhere comes on top.
    pub timeout: Duration,
    /// The most connections. Each message that is worked on needs one, and waits for a free one until its
    /// deadline.
    pub connections: NonZeroUsize,
    /// Where the password comes from, where it is not the one of the URL.
    pub credentials: Option<Arc<dyn CredentialsSource>>,
}

impl DatabaseSettings {
    /// Default settings for this database: a timeout of 2 seconds and 16 connections.
    #[must_use]
    pub fn new(url: DatabaseUrl) -> Self {
        let connections = const { NonZeroUsize::new(16).unwrap() };
        Self { url, timeout: Duration::from_secs(2), connections, credentials: None }
    }
}

impl fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, timeout, connections, credentials: _ } = self;
        f.debug_struct("DatabaseSettings")
            .field("url", url)
            .field("timeout", timeout)
            .field("connections", connections)
            .finish_non_exhaustive()
    }
}

/// A database. It connects at the first use, and again whenever a connection is in doubt.
#[derive(Clone)]
pub struct Database {
    connections: Pool<Dialler>,
    timeout: Duration,
    /// The longest time to make a connection, with that for its password.
    connect_timeout: Duration,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Database {
    /// The database of these settings. Nothing is connected yet.
    ///
    /// # Panics
    /// Never: a pool cannot be built only where it has timeouts and no runtime to keep them.
    #[must_use]
    pub fn new(settings: &DatabaseSettings) -> Self {
        let DatabaseSettings { url: _, timeout, connections, credentials } = settings;
        let pool = Pool::builder(Dialler::new(settings)).max_size(connections.get()).runtime(Runtime::Tokio1);
        let connections = pool.build().expect("a pool with a runtime can be built");
        let connect_timeout = if credentials.is_some() { *timeout + CREDENTIALS_TIMEOUT } else { *timeout };
        Self { connections, timeout: *timeout, connect_timeout }
    }

    /// Begin a transaction with its opening statement, in one round trip, and count the rows that it touched.
    /// A connection that proves dead is replaced by a new one, once.
    ///
    /// The server undoes it by itself when it has waited for a lock for as long as the settings say, and
    /// at `ends` where its client is silent.
    ///
    /// # Errors
    /// [`DatabaseError`]; nothing took effect.
    ///
    /// ## Cancel safety
    /// Dropped, it drops the connection, and nothing took effect.
    pub(crate) async fn begin(
        &self,
        ends: Instant,
        frame: Frame,
        parameters: Parameters<'_>,
    ) -> Result<(Transaction, u64), DatabaseError> {
        let begin = self.begin_with_retry(ends, frame, parameters);
        timeout_at(before(ends, MARGIN), begin).await.unwrap_or(Err(DatabaseError::Late))
    }

    async fn begin_with_retry(
        &self,
        ends: Instant,
        frame: Frame,
        parameters: Parameters<'_>,
    ) -> Result<(Transaction, u64), DatabaseError> {
        let mut last = None;
        for _ in 0..TRIES {
            let connection = self.connection(ends).await?;
            // A begin, and a wait for a lock in it.
            let limit = 2 * self.timeout;
            let begin = Transaction::begin(connection, self.timeout, ends, frame, parameters);
            match timeout(limit, begin).await.unwrap_or(Err(DatabaseError::Late)) {
                Err(error) if error.is_of_the_connection() => {
                    // The others were made by the same way, and have been idle for as long.
                    self.connections.retain(|_, _| false);
                    last = Some(error);
                }
                begun_or_refused => return begun_or_refused,
            }
        }
        Err(last.unwrap_or(DatabaseError::Late))
    }

    async fn connection(&self, ends: Instant) -> Result<Object<Dialler>, DatabaseError> {
        let wait = before(ends, 2 * MARGIN).saturating_duration_since(Instant::now());
        let timeouts = Timeouts { wait: Some(wait), create: Some(self.connect_timeout), recycle: None };
        self.connections.timeout_get(&timeouts).await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Timeout(TimeoutType::Wait) => DatabaseError::NoneFree,
            PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => DatabaseError::Unreachable(Arc::from(Box::from("no connection in time"))),
        })
    }
}

/// Why the database did not do as it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DatabaseError {
    /// No connection can be made.
    #[error("PostgreSQL is out of reach: {0}")]
    Unreachable(Arc<dyn Error + Send + Sync>),
    /// All connections of this process were in use.
    #[error("no connection to PostgreSQL came free in time")]
    NoneFree,
    /// The connection broke.
    #[error("the connection to PostgreSQL broke")]
    Broken(#[source] Arc<dyn Error + Send + Sync>),
    /// There was no reply in time.
    #[error("no reply from PostgreSQL in time")]
    Late,
    /// A prepared statement is no longer valid: the type of its rows has changed, or a pooler has lost it.
    #[error("the prepared statement is no longer valid, and is prepared anew at its next use")]
    Outdated,
    /// The server refused.
    #[error("PostgreSQL answered {}{}", code.code(), said(code, message))]
    Refused {
        /// SQLSTATE: <https://www.postgresql.org/docs/current/errcodes-appendix.html>
        code: SqlState,
        /// In words. The detail is left out, as it quotes rows.
        message: String,
        /// The constraint that was violated.
        constraint: Option<String>,
    },
    /// The statement, its parameters and its rows do not go together.
    #[error("the statement does not go with its parameters or rows: {0}")]
    Misused(String),
}

/// The server's words, but where they quote values: of wrong data, and of a function's own.
fn said(code: &SqlState, message: &str) -> String {
    if code.code().starts_with("22") || code.code().starts_with("P0") { String::new() } else { format!(": {message}") }
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(said) = error.as_db_error() {
            let (message, constraint) = (said.message().to_owned(), said.constraint().map(str::to_owned));
            return Self::Refused { code: said.code().clone(), message, constraint };
        }
        let io = error.source().is_some_and(<dyn Error>::is::<std::io::Error>);
        if error.is_closed() || io { Self::Broken(Arc::new(error)) } else { Self::Misused(error.to_string()) }
    }
}

impl DatabaseError {
    /// The server's SQLSTATE, where it answered.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        let Self::Refused { code, message: _, constraint: _ } = self else { return None };
        Some(code.code())
    }

    /// The constraint that was violated, where one was.
    #[must_use]
    pub fn constraint(&self) -> Option<&str> {
        let Self::Refused { code: _, message: _, constraint } = self else { return None };
        constraint.as_deref()
    }

    /// Whether another connection may do better: this one broke or is silent, or its server goes down, comes up,
    /// or is a standby that takes no writes.
    fn is_of_the_connection(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Late => true,
            Self::Unreachable(_) | Self::NoneFree | Self::Outdated | Self::Misused(_) => false,
            Self::Refused { code, message: _, constraint: _ } => {
                let code = code.code();
                code.starts_with("08") || code.starts_with("57P") || code == sqlstate::READ_ONLY_SQL_TRANSACTION
            }
        }
    }

    /// Whether it says nothing against the message whose work met it.
    fn is_unavailable(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::NoneFree | Self::Broken(_) | Self::Late | Self::Outdated => true,
            Self::Misused(_) => false,
            Self::Refused { code, message: _, constraint: _ } => {
                let code = code.code();
                UNAVAILABLE_CLASSES.iter().any(|class| code.starts_with(class)) || UNAVAILABLE.contains(&code)
            }
        }
    }

    /// Whether it can never succeed: wrong data, and what a constraint forbids.
    fn is_permanent(&self) -> bool {
        let is_of = |class| self.code().is_some_and(|code| code.starts_with(class));
        matches!(self, Self::Misused(_)) || is_of("22") || is_of("23")
    }
}

/// Classes of SQLSTATEs: the connection, too few resources, an operator who shuts down or cancels, and the
/// system that the server runs on.
const UNAVAILABLE_CLASSES: [&str; 4] = ["08", "53", "57", "58"];

/// A read-only server, a serialization failure, a deadlock, and a lock that was not released in time.
const UNAVAILABLE: [&str; 4] = [
    sqlstate::READ_ONLY_SQL_TRANSACTION,
    sqlstate::SERIALIZATION_FAILURE,
    sqlstate::DEADLOCK_DETECTED,
    sqlstate::LOCK_NOT_AVAILABLE,
];

/// Of an error before a commit was asked for, so that nothing happened: the transaction is undone. What the
/// message is to blame for counts as an attempt.
impl From<DatabaseError> for WorkError {
    fn from(error: DatabaseError) -> Self {
        if error.is_permanent() {
            Self::permanent(error)
        } else if error.is_unavailable() {
            Self::unavailable(error)
        } else {
            Self::retryable(error)
        }
    }
}
