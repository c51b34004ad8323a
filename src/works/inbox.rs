//! Effects in PostgreSQL that take place once: the row that says so commits together with the effect.
//!
//! - [`table`]: the rows, and the statements on them

mod table;

use std::future::Future;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::database::{CommitError, Database, DatabaseError, Parameters, Transaction};
use crate::message::Message;
use crate::store::{Attempt, Claim};
use crate::work::{Work, WorkError, WorkErrorKind, Worked};

use table::{Recorded, Table};

/// A work whose effects are rows of one PostgreSQL database. `T` is what it works on, as of a [`Work`].
///
/// ```
/// # use idempotent_sqs::database::Transaction;
/// # use idempotent_sqs::message::Message;
/// # use idempotent_sqs::store::Claim;
/// # use idempotent_sqs::work::WorkError;
/// # use idempotent_sqs::works::TransactionalWork;
/// struct Reserve;
///
/// impl TransactionalWork for Reserve {
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
pub trait TransactionalWork<T: ?Sized = Message>: Send + Sync {
    /// Do the work by this transaction, and by nothing else. The bytes it returns are its result: they
    /// commit with the effect, and are handed back when the same work is asked for again.
    ///
    /// The claim may be a recovery; then too, no earlier attempt has committed anything.
    ///
    /// # Errors
    /// A [`WorkError`] undoes everything, and says whether and when to try again. `?` makes one of a
    /// [`DatabaseError`]: wrong data and violated constraints are permanent, anything else is retryable.
    ///
    /// ## Cancel safety
    /// The future is dropped at the deadline, wherever it is, and everything is undone.
    fn run(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        input: &T,
    ) -> impl Future<Output = Result<Vec<u8>, WorkError>> + Send;

    /// Note down that the work has failed for good, by a transaction of its own, which is committed. By
    /// default nothing is noted. A note may be made again where its commit was not heard of. It is asked
    /// for where the work itself said permanent, not where its attempts are used up.
    ///
    /// # Errors
    /// A [`WorkError`] leaves the failure for another attempt: it is final only once it is noted.
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

/// How the inbox is kept.
#[derive(Clone, Debug)]
pub struct InboxSettings {
    /// The logical consumer: the same as the store's, so that both know the same work.
    pub namespace: String,
    /// Life of a row. It should outlive the message in every queue that it may still come from.
    pub retention: Duration,
    /// One attempt in so many, at random, first removes rows that have outlived their retention, up to twice as
    /// many: so that the table shrinks wherever it would grow.
    pub clean_one_in: NonZeroU32,
}

impl Default for InboxSettings {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            // As long as a message can be in a queue, and then in its dead-letter queue.
            retention: Duration::from_hours(2 * 14 * 24),
            // Two hundred rows are removed in a few milliseconds.
            clean_one_in: const { NonZeroU32::new(100).unwrap() },
        }
    }
}

/// A [`Work`] that runs a [`TransactionalWork`] in a transaction. A row of the inbox is inserted first
/// and commits with the effect, so the effect takes place once whatever becomes of the store's records.
#[derive(Debug)]
pub struct Inbox<W> {
    work: W,
    database: Database,
    table: Table,
    settings: InboxSettings,
}

impl<W> Inbox<W> {
    /// The inbox of this work. Nothing is connected yet.
    pub fn new(work: W, database: Database, settings: InboxSettings) -> Self {
        Self { work, database, table: Table { namespace: settings.namespace.clone() }, settings }
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
        let ends = Instant::now() + LONGEST_STEP;
        let (transaction, _) = self.database.begin(ends, table::LOOK, &[]).await.map_err(InboxError::of)?;
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

impl<T, W> Work<T> for Inbox<W>
where
    T: ?Sized + Sync,
    W: TransactionalWork<T>,
{
    /// For a caller without the engine.
    async fn run(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        match self.attempt(claim, input).await? {
            Worked::Done(result) | Worked::DoneBefore(result) => Ok(result),
            Worked::Busy { after } => Err(WorkError::unavailable_after("another transaction is at this work", after)),
            Worked::Mismatch => Err(WorkError::permanent("the key stands for another payload")),
            Worked::Unreachable(reason) => Err(WorkError::unavailable(reason)),
        }
    }

    async fn attempt(&self, claim: &Claim, input: &T) -> Result<Worked, WorkError> {
        // On the heap, as the driver's futures are too deep for the compiler within the batch's own.
        Box::pin(self.work_within_a_transaction(claim, input)).await
    }

    async fn recorded(&self, attempt: &Attempt, until: Instant) -> Result<Option<Vec<u8>>, WorkError> {
        match Box::pin(self.look(attempt, until)).await {
            Ok(Recorded::Done { result, fence: _ }) => Ok(Some(result)),
            Ok(Recorded::Nothing | Recorded::OtherPayload) => Ok(None),
            Ok(Recorded::Unfinished) => Err(unfinished()),
            Err(error) => Err(WorkError::unavailable(InboxError::of(error))),
        }
    }

    fn keeps_record(&self) -> bool {
        true
    }
}

impl<W> Inbox<W> {
    async fn work_within_a_transaction<T>(&self, claim: &Claim, input: &T) -> Result<Worked, WorkError>
    where
        T: ?Sized + Sync,
        W: TransactionalWork<T>,
    {
        self.clean_now_and_then(claim.ends()).await;
        let row = self.table.row(claim);
        let (transaction, inserted) = match self.database.begin(claim.ends(), table::WORK, &row.parameters()).await {
            Ok(begun) => begun,
            Err(error) => return not_begun(claim, error),
        };
        if inserted == 0 {
            return self.found(transaction, claim).await;
        }
        let failed = match self.work.run(&transaction, claim, input).await {
            Ok(result) => match transaction.commit(&row.finished(&result)).await {
                Ok(()) => return Ok(Worked::Done(result)),
                Err(CommitError::Undone(error)) => error.into(),
                Err(lost @ CommitError::Unknown(_)) => return self.find_out(claim, lost).await,
                Err(strayed @ CommitError::Strayed) => return Err(WorkError::uncertain(strayed)),
            },
            Err(error) => {
                transaction.roll_back().await;
                error
            }
        };
        if failed.kind() == WorkErrorKind::Permanent { self.note(claim, input, failed).await } else { Err(failed) }
    }

    /// By the row that was there before.
    async fn found(&self, transaction: Transaction, claim: &Claim) -> Result<Worked, WorkError> {
        let recorded = self.table.read(&transaction, claim.asked()).await?;
        transaction.roll_back().await;
        match recorded {
            Recorded::Done { result, fence: _ } => Ok(Worked::DoneBefore(result)),
            Recorded::OtherPayload => Ok(Worked::Mismatch),
            Recorded::Unfinished => Err(unfinished()),
            Recorded::Nothing => {
                Err(WorkError::unavailable("the row of the inbox was removed just now: its retention had ended"))
            }
        }
    }

    /// Whether a commit whose reply was lost took effect. That is known once its transaction has ended, so a
    /// connection that is new to it is asked.
    async fn find_out(&self, claim: &Claim, lost: CommitError) -> Result<Worked, WorkError> {
        match self.look(claim.asked(), claim.ends()).await {
            Ok(Recorded::Done { result, fence }) if fence == table::stored(claim.fence()) => Ok(Worked::Done(result)),
            Ok(Recorded::Done { result, fence: _ }) => Ok(Worked::DoneBefore(result)),
            Ok(Recorded::OtherPayload) => Ok(Worked::Mismatch),
            Ok(Recorded::Nothing) => Err(WorkError::unavailable("the connection broke before the commit took effect")),
            Ok(Recorded::Unfinished) => Err(unfinished()),
            Err(_) => Err(WorkError::uncertain(lost)),
        }
    }

    /// What the inbox says, once every transaction that may have inserted the row has ended: an insert waits for
    /// them, where a mere SELECT would not see their rows.
    async fn look(&self, attempt: &Attempt, until: Instant) -> Result<Recorded, DatabaseError> {
        let trial = self.table.trial(attempt);
        let (transaction, inserted) = self.database.begin(until, table::WORK, &trial.parameters()).await?;
        let recorded = if inserted == 0 { self.table.read(&transaction, attempt).await } else { Ok(Recorded::Nothing) };
        transaction.roll_back().await;
        recorded
    }

    /// Have the work note its permanent failure. Not where there is a row after all: the work has committed its
    /// transaction by itself, or another has done it since this one was undone.
    async fn note<T>(&self, claim: &Claim, input: &T, why: WorkError) -> Result<Worked, WorkError>
    where
        T: ?Sized + Sync,
        W: TransactionalWork<T>,
    {
        let row = self.table.row(claim);
        let (transaction, found) = self.database.begin(claim.ends(), table::NOTE, &row.place()).await?;
        if found > 0 {
            return self.found(transaction, claim).await;
        }
        let noted = match self.work.refused(&transaction, claim, input, &why).await {
            // Whether a lost reply was to a commit that took effect does not matter: a note may be made again.
            Ok(()) => transaction.commit(&[]).await.map_err(|error| DatabaseError::from(error).into()),
            Err(error) => {
                transaction.roll_back().await;
                Err(error)
            }
        };
        match noted {
            Ok(()) => Err(why),
            Err(error) if error.kind() == WorkErrorKind::Permanent => Err(WorkError::retryable(error)),
            Err(error) => Err(error),
        }
    }
}

/// Whether the work took effect is for an operator to find out.
fn unfinished() -> WorkError {
    WorkError::uncertain(
        "the work has committed its transaction by itself before it ended, so what took effect is unknown: look at \
         the rows of idempotency_inbox WHERE result IS NULL, as docs/inbox.md says",
    )
}

/// The row could not be inserted. Nothing happened.
fn not_begun(claim: &Claim, error: DatabaseError) -> Result<Worked, WorkError> {
    match (error.code(), &error) {
        // Another transaction has inserted it and is still at work. It began before this one, and so its
        // time is up before this one's would be.
        (Some(LOCK_NOT_AVAILABLE), _) => Ok(Worked::Busy { after: claim.asked().lease }),
        (Some(SERIALIZATION_FAILURE | DEADLOCK_DETECTED | QUERY_CANCELED), _)
        | (_, DatabaseError::Outdated | DatabaseError::NoneFree) => Err(WorkError::unavailable(error)),
        (Some(_) | None, _) => Ok(Worked::Unreachable(Box::new(InboxError::of(error)))),
    }
}

/// Why the inbox cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The table is not there, or an older one.
    #[error("the table idempotency_inbox is missing, or older than this function: run sql/inbox.sql by psql ({0})")]
    NoTable(DatabaseError),
    /// The user has no right to the table.
    #[error("the database's user may not use the table idempotency_inbox: see sql/inbox.sql for what it needs ({0})")]
    NoRight(DatabaseError),
    /// The database gives no answer, or another than it should.
    #[error(transparent)]
    Database(DatabaseError),
}

impl InboxError {
    fn of(error: DatabaseError) -> Self {
        match error.code() {
            Some(UNDEFINED_TABLE | UNDEFINED_COLUMN | UNDEFINED_CONSTRAINT) => Self::NoTable(error),
            Some(INSUFFICIENT_PRIVILEGE) => Self::NoRight(error),
            Some(_) | None => Self::Database(error),
        }
    }
}

/// Longest time of a step that no claim bounds.
const LONGEST_STEP: Duration = Duration::from_secs(10);

/// Longest time that an attempt gives to old rows, and no more than a tenth of what it has. A step takes
/// milliseconds.
const LONGEST_CLEANING: Duration = Duration::from_secs(1);

/// SQLSTATEs: <https://www.postgresql.org/docs/current/errcodes-appendix.html>
const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK_DETECTED: &str = "40P01";
const INSUFFICIENT_PRIVILEGE: &str = "42501";
const UNDEFINED_COLUMN: &str = "42703";
const UNDEFINED_TABLE: &str = "42P01";
/// There is no unique constraint for an ON CONFLICT.
const UNDEFINED_CONSTRAINT: &str = "42P10";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const QUERY_CANCELED: &str = "57014";
