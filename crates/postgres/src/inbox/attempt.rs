//! An attempt: the work and its row in one transaction, and what the row says where the transaction's end is not
//! known.

use tokio::time::Instant;

use super::table::{self, Recorded};
use super::{Inbox, InboxError, TransactionalWork};
use crate::database::{CommitError, DatabaseError, Transaction};
use futures_util::future::BoxFuture;
use idempotent_sqs::idempotency::{Attempt, Claim, OwnRecord, RecordedAttempt, Work, WorkError, WorkErrorKind};

impl<T, W> Work<T> for Inbox<W>
where
    T: ?Sized + Sync,
    W: TransactionalWork<T>,
{
    /// For callers without the engine, which calls [`OwnRecord::attempt`].
    async fn run(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        match self.attempt(claim, input).await? {
            RecordedAttempt::Done(result) | RecordedAttempt::DoneBefore(result) => Ok(result),
            RecordedAttempt::Busy { after } => {
                Err(WorkError::unavailable_after("another transaction is doing this work", after))
            }
            RecordedAttempt::Mismatch => Err(WorkError::permanent("the key was used with another payload")),
            RecordedAttempt::Unreachable(reason) => Err(WorkError::unavailable(reason)),
        }
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<T>> {
        Some(self)
    }
}

impl<T, W> OwnRecord<T> for Inbox<W>
where
    T: ?Sized + Sync,
    W: TransactionalWork<T>,
{
    fn attempt<'a>(&'a self, claim: &'a Claim, input: &'a T) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(self.run_in_transaction(claim, input))
    }

    fn recorded<'a>(
        &'a self,
        attempt: &'a Attempt,
        until: Instant,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(self.read_row(attempt, until))
    }
}

impl<W> Inbox<W> {
    async fn run_in_transaction<T>(&self, claim: &Claim, input: &T) -> Result<RecordedAttempt, WorkError>
    where
        T: ?Sized + Sync,
        W: TransactionalWork<T>,
    {
        self.clean_now_and_then(claim.ends()).await;
        let row = self.table.row(claim);
        let (transaction, inserted) = match self.database.begin(claim.ends(), table::WORK, &row.parameters()).await {
            Ok(begun) => begun,
            Err(error) => return self.not_begun(claim, error).await,
        };
        if inserted == 0 {
            return self.found(transaction, claim).await;
        }
        let failed = match self.work.run(&transaction, claim, input).await {
            Ok(result) => match transaction.commit(&row.finished(&result)).await {
                Ok(()) => return Ok(RecordedAttempt::Done(result)),
                Err(CommitError::Undone(error)) => error.into(),
                Err(lost @ CommitError::Unknown(_)) => return self.find_out(claim, lost).await,
                Err(strayed @ CommitError::Strayed) => return Err(WorkError::uncertain(strayed)),
            },
            Err(error) => {
                let has_strayed = transaction.has_strayed().await;
                transaction.roll_back().await;
                if has_strayed {
                    return Err(WorkError::uncertain(format!("{}, and then failed: {error}", CommitError::Strayed)));
                }
                error
            }
        };
        if failed.kind() == WorkErrorKind::Permanent { self.note(claim, input, failed).await } else { Err(failed) }
    }

    async fn read_row(&self, attempt: &Attempt, until: Instant) -> Result<Option<Vec<u8>>, WorkError> {
        match self.look(attempt, until).await {
            Ok(Recorded::Done { result, fence: _ }) => Ok(Some(result)),
            Ok(Recorded::Nothing | Recorded::OtherPayload) => Ok(None),
            Ok(Recorded::Unfinished) => Err(unfinished()),
            Err(error) => match self.explained(error, until).await {
                // No row can be there.
                fault if fault.is_of_the_key() => Ok(None),
                fault => Err(WorkError::unavailable(fault)),
            },
        }
    }

    /// By the row that was there before.
    async fn found(&self, transaction: Transaction, claim: &Claim) -> Result<RecordedAttempt, WorkError> {
        let recorded = self.table.read(&transaction, claim.asked()).await?;
        transaction.roll_back().await;
        match recorded {
            Recorded::Done { result, fence: _ } => Ok(RecordedAttempt::DoneBefore(result)),
            Recorded::OtherPayload => Ok(RecordedAttempt::Mismatch),
            Recorded::Unfinished => Err(unfinished()),
            Recorded::Nothing => {
                Err(WorkError::unavailable("the row of the inbox was removed just now: its retention had ended"))
            }
        }
    }

    /// Whether a commit whose reply was lost took effect. That is known once its transaction has ended, so a
    /// connection that is new to it is asked.
    async fn find_out(&self, claim: &Claim, lost: CommitError) -> Result<RecordedAttempt, WorkError> {
        match self.look(claim.asked(), claim.ends()).await {
            Ok(Recorded::Done { result, fence }) if fence == table::stored(claim.fence()) => {
                Ok(RecordedAttempt::Done(result))
            }
            Ok(Recorded::Done { result, fence: _ }) => Ok(RecordedAttempt::DoneBefore(result)),
            Ok(Recorded::OtherPayload) => Ok(RecordedAttempt::Mismatch),
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

    /// Have the work note its permanent failure. Not where there is a row: another owner has done the work since
    /// this transaction was undone.
    async fn note<T>(&self, claim: &Claim, input: &T, why: WorkError) -> Result<RecordedAttempt, WorkError>
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

    /// The row could not be inserted. Nothing happened.
    async fn not_begun(&self, claim: &Claim, error: DatabaseError) -> Result<RecordedAttempt, WorkError> {
        match (error.code(), &error) {
            // Another transaction has inserted it and is still at work. It began before this one, and so its
            // time is up before this one's would be.
            (Some(LOCK_NOT_AVAILABLE), _) => Ok(RecordedAttempt::Busy { after: claim.asked().lease }),
            (Some(SERIALIZATION_FAILURE | DEADLOCK_DETECTED | TOO_MANY_CONNECTIONS | QUERY_CANCELED), _)
            | (_, DatabaseError::Outdated | DatabaseError::NoneFree) => Err(WorkError::unavailable(error)),
            (Some(_) | None, _) => match self.explained(error, claim.ends()).await {
                fault if fault.is_of_the_key() => Err(WorkError::permanent(fault)),
                fault => Ok(RecordedAttempt::Unreachable(Box::new(fault))),
            },
        }
    }

    /// With the cause. The database does not say which text its encoding cannot hold, so it is asked for the
    /// namespace alone.
    async fn explained(&self, error: DatabaseError, until: Instant) -> InboxError {
        let fault = InboxError::of(error.clone());
        if !matches!(fault, InboxError::Namespace(_)) {
            return fault;
        }
        self.check_until(until).await.err().unwrap_or(InboxError::Key(error))
    }
}

/// Whether the work took effect is for an operator to find out.
fn unfinished() -> WorkError {
    WorkError::uncertain(
        "the work has committed its transaction by itself before it ended, so what took effect is unknown: look at \
         the rows of idempotency_inbox WHERE result IS NULL, as docs/inbox.md says",
    )
}

/// SQLSTATEs: <https://www.postgresql.org/docs/current/errcodes-appendix.html>
const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK_DETECTED: &str = "40P01";
const TOO_MANY_CONNECTIONS: &str = "53300";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const QUERY_CANCELED: &str = "57014";
