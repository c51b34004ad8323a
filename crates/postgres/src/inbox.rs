//! Effects in PostgreSQL that take place once: the row that says so commits together with the effect.
//!
//! - `attempt`: a work and its row in one transaction, and what the row says where that was lost
//! - `error`: why the inbox cannot be used
//! - `table`: the rows, and the statements on them

mod attempt;
mod error;
mod table;

use std::future::Future;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::database::{Database, DatabaseError, Parameters, Transaction};
use idempotent_sqs::idempotency::{Claim, WorkError};

pub use error::InboxError;
use table::InboxTable;

/// A work whose effects are rows of one PostgreSQL database. `T` is what it works on, as of a [`Work`](idempotent_sqs::idempotency::Work).
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
///             0 => Err(WorkError::permanent("there is none left")),
///             _ => Ok(b"reserved".to_vec()),
///         }
///     }
/// }
/// ```
pub trait TransactionalWork<T: ?Sized>: Send + Sync {
    /// Do the work by this transaction, and by nothing else. The bytes it returns are its result: they
    /// commit with the effect, and are handed back when the same work is asked for again.
    ///
    /// The claim may be a recovery; then too, no earlier attempt has committed anything, unless it has ended its
    /// transaction by itself and gone on.
    ///
    /// # Errors
    /// A [`WorkError`] undoes everything, and says whether and when to try again. `?` makes one of a
    /// [`DatabaseError`]: wrong data and violated constraints are permanent; a database that cannot be used now,
    /// and contention, are unavailable and count as no attempt; anything else is retryable.
    ///
    /// ## Cancel safety
    /// The future is dropped at the deadline, wherever it is, and everything is undone.
    fn run(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        input: &T,
    ) -> impl Future<Output = Result<Vec<u8>, WorkError>> + Send;

    /// Note down that the work has failed for good, by a transaction of its own, which is committed. By default
    /// nothing is noted. A note may be made again where the reply to its commit was lost. It is asked for where
    /// the work said permanent, or a constraint that is checked at its commit, and not where its attempts are
    /// used up.
    ///
    /// # Errors
    /// A [`WorkError`], even a permanent one, leaves the failure for another attempt: it is final only once it is
    /// noted.
    ///
    /// ## Cancel safety
    /// As [`run`](Self::run).
    fn refused(
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

/// How rows of the inbox are kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InboxSettings {
    /// The logical consumer: the same as the store's, so that both know the same work.
    pub namespace: String,
    /// Life of a row. It should outlive the message in every queue that it may still come from.
    pub retention: Duration,
    /// One attempt in so many, at random, first removes rows that have outlived their retention, up to twice as
    /// many: so that the table shrinks wherever it would grow.
    pub clean_one_in: NonZeroU32,
}

impl InboxSettings {
    /// 28 days: as long as SQS can keep a message in a queue and then in its dead-letter queue.
    pub const DEFAULT_RETENTION: Duration = Duration::from_hours(2 * 14 * 24);

    /// Default settings for this consumer.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        // Two hundred rows are deleted in a few milliseconds.
        let clean_one_in = const { NonZeroU32::new(100).unwrap() };
        Self { namespace: namespace.into(), retention: Self::DEFAULT_RETENTION, clean_one_in }
    }
}

/// A [`Work`](idempotent_sqs::idempotency::Work) that runs a [`TransactionalWork`] in a transaction. A row of the inbox is inserted first
/// and commits with the effect, so the effect takes place once whatever becomes of the store's records.
#[derive(Debug)]
pub struct Inbox<W> {
    work: W,
    database: Database,
    table: InboxTable,
    settings: InboxSettings,
}

impl<W> Inbox<W> {
    /// The inbox of this work. Nothing is connected yet.
    pub fn new(work: W, database: Database, settings: InboxSettings) -> Self {
        Self { work, database, table: InboxTable { namespace: settings.namespace.clone() }, settings }
    }

    /// The work within.
    pub fn work(&self) -> &W {
        &self.work
    }

    /// See whether the inbox can be used: whether the database is within reach, and the table is there
    /// and as it should be. It takes two round trips, and a connection that is kept.
    ///
    /// # Errors
    /// [`InboxError`], with a sentence on how to mend it.
    ///
    /// ## Cancel safety
    /// Nothing is changed.
    pub async fn check(&self) -> Result<(), InboxError> {
        self.check_until(Instant::now() + LONGEST_STEP).await
    }

    async fn check_until(&self, ends: Instant) -> Result<(), InboxError> {
        let begun = self.database.begin(ends, table::LOOK, &[&self.settings.namespace]).await;
        let (transaction, _) = begun.map_err(InboxError::of)?;
        transaction.roll_back().await;
        Ok(())
    }

    /// Remove rows that have outlived their retention, the oldest first, in a step that takes
    /// milliseconds. Answers how many there were; a full step, twice `clean_one_in`, leaves more.
    ///
    /// # Errors
    /// [`InboxError`]; the rows are still there.
    ///
    /// ## Cancel safety
    /// Dropped, the rows may be gone or not.
    pub async fn remove_old(&self) -> Result<u64, InboxError> {
        self.remove_old_until(Instant::now() + LONGEST_STEP).await.map_err(InboxError::of)
    }

    async fn remove_old_until(&self, ends: Instant) -> Result<u64, DatabaseError> {
        let seconds = self.settings.retention.as_secs_f64();
        let limit = i64::from(self.settings.clean_one_in.get()) * 2;
        let parameters: Parameters<'_> = &[&self.settings.namespace, &seconds, &limit];
        let removal = async {
            let (transaction, removed) = self.database.begin(ends, table::REMOVAL, parameters).await?;
            transaction.commit(&[]).await?;
            Ok(removed)
        };
        timeout_at(ends, removal).await.unwrap_or(Err(DatabaseError::Late))
    }

    /// Now and then, as no process of its own could do it. It comes before the work: whatever befalls it there,
    /// nothing has happened, where after the commit it could cost the result.
    async fn clean_now_and_then(&self, claim_ends: Instant) {
        if !getrandom::u32().is_ok_and(|drawn| drawn % self.settings.clean_one_in == 0) {
            return;
        }
        let now = Instant::now();
        let time = LONGEST_CLEANING.min(claim_ends.saturating_duration_since(now) / 10);
        if let Err(error) = self.remove_old_until(now + time).await {
            tracing::warn!(%error, "old rows of the inbox were not removed; another attempt will try");
        }
    }
}

/// Longest time of a step that no claim bounds.
const LONGEST_STEP: Duration = Duration::from_secs(10);

/// Longest time that an attempt gives to old rows, and no more than a tenth of what it has. A step takes
/// milliseconds.
const LONGEST_CLEANING: Duration = Duration::from_secs(1);
