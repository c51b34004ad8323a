//! Effects in PostgreSQL that take place once: a row of the inbox commits in the same transaction as the effect.
//!
//! - `attempt`: the work and its row in one transaction
//! - `table`: the rows, and the statements on them
//! - `error`: why the inbox cannot be used

mod attempt;
mod error;
mod table;

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use idempotent_sqs::idempotency::{Claim, WorkError};

use crate::database::{Database, DatabaseError, Parameters, Transaction, interval_seconds};

pub use error::InboxError;
use table::InboxTable;

/// Work whose effects are rows of one PostgreSQL database. `T` is its input, as for
/// [`Work`](idempotent_sqs::Work).
///
/// ```
/// use idempotent_sqs::{Claim, Message, WorkError};
/// use idempotent_sqs_postgres::{Transaction, TransactionalWork};
///
/// struct Reserve;
///
/// impl TransactionalWork<Message> for Reserve {
///     async fn run(&self, transaction: &Transaction, _: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
///         let article = message.body();
///         let reserve = "UPDATE stock SET reserved = reserved + 1 WHERE article = $1 AND reserved < quantity";
///         match transaction.execute(reserve, &[&article]).await? {
///             0 => Err(WorkError::permanent("the article is out of stock")),
///             _ => Ok(b"reserved".to_vec()),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `TransactionalWork` on `{T}`",
    note = "implement `idempotent_sqs_postgres::TransactionalWork<{T}>` for it"
)]
pub trait TransactionalWork<T: ?Sized>: Send + Sync {
    /// Does the work in this transaction. The returned bytes are its result: they commit with the effect, and
    /// are returned to duplicates.
    ///
    /// All effects must be made through `transaction`. The claim may be a recovery; even then no earlier attempt has
    /// committed anything, unless the work itself executed COMMIT or ROLLBACK.
    ///
    /// # Errors
    /// A [`WorkError`] rolls everything back, and states whether and when to try again. `?` converts a
    /// [`DatabaseError`]: wrong data and violated constraints are permanent; contention is busy, and a database that
    /// cannot be used unavailable, so that the attempt is not counted; any other error is retryable.
    ///
    /// ## Cancel safety
    /// The future is dropped at the deadline, and everything is rolled back.
    fn run(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        input: &T,
    ) -> impl Future<Output = Result<Vec<u8>, WorkError>> + Send;

    /// Records that the work failed permanently, in a separate, committed transaction. By default it records nothing.
    ///
    /// It is called if the work returned a permanent error, or a deferred constraint failed the commit; not if all
    /// attempts are used up. It may be called again for the same message, also after its commit: if the store could
    /// not record the failure, or lost its record. So make it idempotent by [`Claim::key`].
    ///
    /// # Errors
    /// After a [`WorkError`], even a permanent one, the message is retried: the failure is final only when it is
    /// recorded.
    ///
    /// ## Cancel safety
    /// As for [`run`](Self::run).
    fn record_failure(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        input: &T,
        why: &WorkError,
    ) -> impl Future<Output = Result<(), WorkError>> + Send {
        let _ = (transaction, claim, input, why);
        async { Ok(()) }
    }
}

/// Settings of an [`Inbox`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InboxSettings {
    /// The logical consumer. Use the namespace of the store.
    pub namespace: String,
    /// Lifetime of a row. It should be at least as long as a message can stay in its queue and then in its dead-letter
    /// queue.
    pub retention: Duration,
    /// On average one of this many attempts, chosen at random, first deletes expired rows, at most twice this number.
    /// So the table is cleaned up faster than it grows. An attempt with less than a second left deletes none.
    pub cleanup_one_in: NonZeroU32,
}

impl InboxSettings {
    /// 28 days: as long as SQS can keep a message in a queue and then in its dead-letter queue.
    pub const DEFAULT_RETENTION: Duration = Duration::from_hours(2 * 14 * 24);

    /// Default settings for this consumer: a retention of 28 days, and a cleanup in one of 100 attempts.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        // Two hundred rows are deleted in a few milliseconds.
        let cleanup_one_in = const { NonZeroU32::new(100).unwrap() };
        Self { namespace: namespace.into(), retention: Self::DEFAULT_RETENTION, cleanup_one_in }
    }
}

/// A [`Work`](idempotent_sqs::Work) that runs a [`TransactionalWork`] in a transaction. The row of the inbox is
/// inserted first and commits with the effect, so the effect takes place once even if the store loses its records.
#[derive(Debug)]
pub struct Inbox<W> {
    work: W,
    database: Database,
    table: InboxTable,
    settings: InboxSettings,
}

impl<W> Inbox<W> {
    /// Creates the inbox of this work. No connection is opened yet.
    pub fn new(work: W, database: Database, settings: InboxSettings) -> Self {
        Self { work, database, table: InboxTable::new(&settings), settings }
    }

    /// The work.
    pub fn work(&self) -> &W {
        &self.work
    }

    /// Checks that the database can be reached and accepts writes, and that the table exists, has all columns, and may
    /// be read and changed. For this it inserts a row, updates it, and rolls back. The right to delete expired rows is
    /// not checked, because another user may do that. Takes a few round trips, and 10 seconds at most. It fails while
    /// another session locks the table against writes, such as one that creates an index.
    ///
    /// # Errors
    /// [`InboxError`], whose message says what to do.
    ///
    /// ## Cancel safety
    /// Changes nothing.
    pub async fn check(&self) -> Result<(), InboxError> {
        self.check_until(Instant::now() + MAINTENANCE_TIMEOUT).await
    }

    async fn check_until(&self, ends: Instant) -> Result<(), InboxError> {
        let row = self.table.row_of_check();
        let begun = self.database.begin(ends, table::RUN, &row.parameters()).await;
        let (transaction, _) = begun.map_err(InboxError::of)?;
        let check = timeout_at(ends, self.table.check(&transaction, &row)).await;
        transaction.roll_back().await;
        check.unwrap_or(Err(DatabaseError::Timeout)).map_err(InboxError::of)
    }

    /// Deletes expired rows, oldest first, and returns their number, at most twice `cleanup_one_in`. If it returns that
    /// many, call it again. Takes milliseconds, and 10 seconds at most.
    ///
    /// # Errors
    /// [`InboxError`]. After a timeout or a lost connection the rows may be deleted, else they are not.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the rows may or may not be deleted.
    pub async fn delete_expired(&self) -> Result<u64, InboxError> {
        self.delete_expired_until(Instant::now() + MAINTENANCE_TIMEOUT).await.map_err(InboxError::of)
    }

    async fn delete_expired_until(&self, ends: Instant) -> Result<u64, DatabaseError> {
        let seconds = interval_seconds(self.settings.retention);
        let limit = i64::from(self.settings.cleanup_one_in.get()) * 2;
        let parameters: Parameters<'_> = &[&self.settings.namespace, &seconds, &limit];
        let deletion = async {
            let (transaction, deleted) = self.database.begin(ends, table::CLEAN_UP, parameters).await?;
            transaction.commit(&[]).await?;
            Ok(deleted)
        };
        timeout_at(ends, deletion).await.unwrap_or(Err(DatabaseError::Timeout))
    }

    /// Deletes expired rows in one of `cleanup_one_in` attempts. It runs before the work, when a failure of the cleanup
    /// cannot affect a commit.
    async fn clean_up_at_random(&self, claim_ends: Instant) {
        if !getrandom::u32().is_ok_and(|random| random % self.settings.cleanup_one_in == 0) {
            return;
        }
        let now = Instant::now();
        let timeout = CLEANUP_TIMEOUT.min(claim_ends.saturating_duration_since(now) / 10);
        // One that is cut off closes its connection, which the attempt needs.
        if timeout < SHORTEST_CLEANUP {
            return;
        }
        if let Err(error) = self.delete_expired_until(now + timeout).await {
            tracing::warn!(%error, "expired rows of the inbox were not deleted; a later attempt tries again");
        }
    }
}

/// Longest time of a call outside an attempt.
const MAINTENANCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time of a cleanup in an attempt, which also takes at most a tenth of the time that the attempt has. It
/// usually takes milliseconds.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Attempts with less time for a cleanup leave it to others.
const SHORTEST_CLEANUP: Duration = Duration::from_millis(100);
