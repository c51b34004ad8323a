//! PostgreSQL: a pool of connections, and transactions with a deadline.
//!
//! - `address`: the URL, and whether TLS is used
//! - `roots`: the root certificates that TLS trusts
//! - `dial`: opens connections
//! - `connection`: one session: its prepared statements, and the end of each of its transactions
//! - `begin`: the BEGIN of a transaction, and whether that still exists
//! - `transaction`: the transaction that is passed to the work
//! - `error`: errors, and what they mean for the work
//! - `simulation`: streams of a simulated network, for tests

mod address;
mod begin;
mod connection;
mod dial;
mod error;
mod roots;
#[cfg(feature = "simulation")]
pub mod simulation;
mod transaction;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{Object, Pool, PoolError, TimeoutType, Timeouts};
use tokio::time::{Instant, timeout, timeout_at};

use idempotent_sqs::aws::CREDENTIALS_TIMEOUT;
use idempotent_sqs::credentials::CredentialsSource;

use dial::Dialer;

pub use address::{DatabaseUrl, DatabaseUrlError};
pub use error::DatabaseError;
pub use tokio_postgres::{Row, types};
pub(crate) use transaction::{CommitError, TransactionStatements};
pub use transaction::{Parameters, Transaction};

/// Tries to begin a transaction: one on a pooled connection, one on a new one. A server that also fails a new
/// connection needs more time than a caller has.
const BEGIN_TRIES: u32 = 2;

/// `begin` times out this long before the deadline, so that the caller can report the failure. Waits for a connection
/// or a lock time out earlier by the same margin, so that the error identifies the wait.
const MARGIN: Duration = Duration::from_millis(50);

/// Longer than any invocation. A socket and the server reject more than 24 days.
const LONGEST_TIMEOUT: Duration = Duration::from_hours(24);

/// Largest pool: a client has fewer ports.
const MAX_CONNECTIONS: usize = 65_536;

/// An age of rows as a parameter of `make_interval(secs => …)`: at most a thousand years, which no row reaches.
/// Thousands of years more are beyond the timestamps of PostgreSQL.
pub(crate) fn interval_seconds(age: Duration) -> f64 {
    const LONGEST: Duration = Duration::from_hours(1_000 * 366 * 24);
    age.min(LONGEST).as_secs_f64()
}

fn before(deadline: Instant, margin: Duration) -> Instant {
    deadline.checked_sub(margin).unwrap_or(deadline)
}

/// Settings of a [`Database`].
#[derive(Clone)]
#[non_exhaustive]
pub struct DatabaseSettings {
    /// The server, the database, the user, and whether TLS is used.
    pub url: DatabaseUrl,
    /// Longest time to open a connection, to begin a transaction, and to wait for a lock; a day at most. Fetching a
    /// token or a secret may take 3 seconds more.
    pub timeout: Duration,
    /// Maximum number of pooled connections. Each running message uses one, or waits for a free one until its
    /// deadline. More than 65,536 count as this number.
    pub connections: NonZeroUsize,
    /// Source of the user and password. Without it, those of the URL are used. A transaction begins only on a
    /// connection that is younger than the source's [`max_session`](CredentialsSource::max_session).
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

/// A pool of connections to one database. A connection is opened when it is needed, and replaced when it fails. Clones
/// share the pool.
#[derive(Clone)]
pub struct Database {
    connections: Pool<Dialer>,
    timeout: Duration,
    /// Longest time to open a connection, including the time to fetch its password.
    connect_timeout: Duration,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Database {
    /// Creates the pool. No connection is opened yet.
    ///
    /// # Panics
    /// Never. Building a pool fails only if it has timeouts and no runtime, and this pool has a runtime.
    #[must_use]
    pub fn new(settings: &DatabaseSettings) -> Self {
        let settings = DatabaseSettings { timeout: settings.timeout.min(LONGEST_TIMEOUT), ..settings.clone() };
        let (timeout, has_credentials) = (settings.timeout, settings.credentials.is_some());
        // The pool allocates a place for each at once.
        let size = settings.connections.get().min(MAX_CONNECTIONS);
        let pool = Pool::builder(Dialer::new(settings)).max_size(size).runtime(Runtime::Tokio1);
        let connections = pool.build().expect("a pool with a runtime can be built");
        let connect_timeout = if has_credentials { timeout + CREDENTIALS_TIMEOUT } else { timeout };
        Self { connections, timeout, connect_timeout }
    }

    /// Begins a transaction with its first statement, in one round trip. Returns the transaction and the number of rows
    /// that the statement affected. If the connection is closed, unresponsive or connected to a read-only server,
    /// another one is tried once.
    ///
    /// The server itself ends the transaction if it waits for a lock longer than the timeout of the settings, and at
    /// `ends` if the client is silent.
    ///
    /// # Errors
    /// [`DatabaseError`]. Nothing took effect.
    ///
    /// ## Cancel safety
    /// Dropping the future closes the connection. Nothing took effect.
    pub(crate) async fn begin(
        &self,
        ends: Instant,
        statements: TransactionStatements,
        parameters: Parameters<'_>,
    ) -> Result<(Transaction, u64), DatabaseError> {
        let begin = self.begin_with_retry(ends, statements, parameters);
        timeout_at(before(ends, MARGIN), begin).await.unwrap_or(Err(DatabaseError::Timeout))
    }

    async fn begin_with_retry(
        &self,
        ends: Instant,
        statements: TransactionStatements,
        parameters: Parameters<'_>,
    ) -> Result<(Transaction, u64), DatabaseError> {
        let (mut failed, mut was_outdated) = (0, false);
        loop {
            let connection = self.connection(ends).await?;
            // The time to begin, and to wait for a lock.
            let limit = 2 * self.timeout;
            let begin = Transaction::begin(connection, self.timeout, ends, statements, parameters);
            match timeout(limit, begin).await.unwrap_or(Err(DatabaseError::Timeout)) {
                Err(error) if error.is_of_the_connection() => {
                    // The other pooled connections lead to the same server and have been idle as long.
                    self.connections.retain(|_, _| false);
                    failed += 1;
                    if failed == BEGIN_TRIES {
                        return Err(error);
                    }
                }
                // Nothing happened. It is prepared again.
                Err(DatabaseError::StatementOutdated) if !was_outdated => was_outdated = true,
                outcome => return outcome,
            }
        }
    }

    async fn connection(&self, ends: Instant) -> Result<Object<Dialer>, DatabaseError> {
        let wait = before(ends, 2 * MARGIN).saturating_duration_since(Instant::now());
        let timeouts = Timeouts { wait: Some(wait), create: Some(self.connect_timeout), recycle: None };
        self.connections.timeout_get(&timeouts).await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Timeout(TimeoutType::Wait) => DatabaseError::PoolExhausted,
            PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => dial::not_in_time(self.connect_timeout),
        })
    }
}
