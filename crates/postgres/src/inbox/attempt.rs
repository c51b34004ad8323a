//! An attempt: the work and its row in one transaction, and the state of the row if the outcome of the commit is
//! unknown.

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use idempotent_sqs::idempotency::{AcquireRequest, Claim, OwnRecord, RecordedAttempt, Work, WorkError, WorkErrorKind};

use super::table::{self, NewRow, RowState};
use super::{Inbox, InboxError, TransactionalWork};
use crate::database::{CommitError, DatabaseError, Transaction};

impl<T, W> Work<T> for Inbox<W>
where
    T: ?Sized + Sync,
    W: TransactionalWork<T>,
{
    /// Runs the work without a store. The core calls [`OwnRecord::attempt`] instead.
    async fn run(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        match self.attempt(claim, input).await? {
            RecordedAttempt::Done(result) | RecordedAttempt::DoneBefore(result) => Ok(result),
            RecordedAttempt::Busy { after } => {
                Err(WorkError::busy_after("another transaction is doing this work", after))
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
        request: &'a AcquireRequest,
        until: Instant,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(self.read_result(request, until))
    }
}

impl<W> Inbox<W> {
    async fn run_in_transaction<T>(&self, claim: &Claim, input: &T) -> Result<RecordedAttempt, WorkError>
    where
        T: ?Sized + Sync,
        W: TransactionalWork<T>,
    {
        self.clean_up_at_random(claim.ends()).await;
        let row = self.table.row(claim);
        let (transaction, inserted) = match self.database.begin(claim.ends(), table::RUN, &row.parameters()).await {
            Ok(begun) => begun,
            Err(error) => return self.not_attempted(claim, error).await,
        };
        if inserted == 0 {
            return self.row_exists(transaction, claim).await;
        }
        let error = match self.work.run(&transaction, claim, input).await {
            Ok(result) => match transaction.commit(&row.with_result(&result)).await {
                Ok(()) => return Ok(RecordedAttempt::Done(result)),
                Err(CommitError::RolledBack(error)) => error.into(),
                Err(CommitError::NoRow) => WorkError::retryable(InboxError::RowNotUpdated),
                Err(unknown @ (CommitError::Unknown(_) | CommitError::MadeReadOnly)) => {
                    return self.resolve_commit(claim, unknown).await;
                }
                Err(error @ (CommitError::EndedByWork | CommitError::Unchecked)) => {
                    return Err(WorkError::uncertain(error));
                }
            },
            Err(error) => {
                let Some(was_ended) = transaction.was_ended_by_work().await else {
                    // The connection is closed, and the server rolls back.
                    return Err(WorkError::uncertain(format!(
                        "the work failed, and the database did not say whether it had executed COMMIT: {error}"
                    )));
                };
                transaction.roll_back().await;
                if was_ended {
                    return Err(WorkError::uncertain(format!("{}, and failed: {error}", CommitError::EndedByWork)));
                }
                error
            }
        };
        if error.kind() == WorkErrorKind::Permanent {
            self.record_failure(claim, input, error).await
        } else {
            Err(error)
        }
    }

    async fn read_result(&self, request: &AcquireRequest, until: Instant) -> Result<Option<Vec<u8>>, WorkError> {
        match self.row_state(&self.table.probe(request), request, until).await {
            Ok(RowState::Done { result, fence: _ }) => Ok(Some(result)),
            Ok(RowState::Absent | RowState::OtherPayload) => Ok(None),
            Ok(RowState::Unfinished) => Err(unfinished()),
            Err(error) => match self.explain(error, until).await {
                // The database cannot store this key, so there is no row.
                error if error.is_of_the_key() => Ok(None),
                // Other messages can be processed.
                error if error.is_busy() => Err(WorkError::busy(error)),
                error => Err(WorkError::unavailable(error)),
            },
        }
    }

    /// The row could not be inserted, because it exists. Nothing happened in this transaction.
    async fn row_exists(&self, transaction: Transaction, claim: &Claim) -> Result<RecordedAttempt, WorkError> {
        let state = self.table.read(&transaction, claim.request()).await;
        transaction.roll_back().await;
        match state {
            Ok(RowState::Done { result, fence: _ }) => Ok(RecordedAttempt::DoneBefore(result)),
            Ok(RowState::OtherPayload) => Ok(RecordedAttempt::Mismatch),
            Ok(RowState::Unfinished) => Err(unfinished()),
            Ok(RowState::Absent) => {
                Err(WorkError::busy("the row of the inbox was just deleted, at the end of its retention"))
            }
            Err(error) => self.not_attempted(claim, error).await,
        }
    }

    /// Whether a commit whose reply was lost took effect, or one of the work before its session was read-only. Uses
    /// another transaction.
    async fn resolve_commit(&self, claim: &Claim, unknown: CommitError) -> Result<RecordedAttempt, WorkError> {
        match self.row_state(&self.table.row(claim), claim.request(), claim.ends()).await {
            Ok(RowState::Done { result, fence }) if fence == table::fence_column(claim.fence()) => {
                Ok(RecordedAttempt::Done(result))
            }
            Ok(RowState::Done { result, fence: _ }) => Ok(RecordedAttempt::DoneBefore(result)),
            Ok(RowState::OtherPayload) => Ok(RecordedAttempt::Mismatch),
            Ok(RowState::Absent) if matches!(unknown, CommitError::MadeReadOnly) => Err(WorkError::retryable(unknown)),
            Ok(RowState::Absent) => {
                Err(WorkError::unavailable("the connection was closed before the commit took effect"))
            }
            Ok(RowState::Unfinished) => Err(unfinished()),
            Err(_) => Err(WorkError::uncertain(unknown)),
        }
    }

    /// Reads the row, after every transaction that may have inserted it has ended. A SELECT would not see a row of an
    /// open transaction, but an INSERT of the same key waits for it. The inserted row is rolled back.
    async fn row_state(
        &self,
        probe: &NewRow<'_>,
        request: &AcquireRequest,
        until: Instant,
    ) -> Result<RowState, DatabaseError> {
        let (transaction, inserted) = self.database.begin(until, table::RUN, &probe.parameters()).await?;
        let state = if inserted == 0 { self.table.read(&transaction, request).await } else { Ok(RowState::Absent) };
        transaction.roll_back().await;
        state
    }

    /// Calls [`TransactionalWork::record_failure`], unless there is a row: another owner has done the work since this
    /// transaction was rolled back.
    async fn record_failure<T>(&self, claim: &Claim, input: &T, why: WorkError) -> Result<RecordedAttempt, WorkError>
    where
        T: ?Sized + Sync,
        W: TransactionalWork<T>,
    {
        let row = self.table.row(claim);
        let begun = self.database.begin(claim.ends(), table::RECORD_FAILURE, &row.parameters_of_find()).await;
        let (transaction, found) = begun?;
        if found > 0 {
            return self.row_exists(transaction, claim).await;
        }
        let recorded = match self.work.record_failure(&transaction, claim, input, &why).await {
            // If the reply was lost, the failure may be recorded twice, which is allowed.
            Ok(()) => transaction.commit(&[]).await.map_err(|error| DatabaseError::from(error).into()),
            Err(error) => {
                transaction.roll_back().await;
                Err(error)
            }
        };
        match recorded {
            Ok(()) => Err(why),
            Err(error) if error.kind() == WorkErrorKind::Permanent => Err(WorkError::retryable(error)),
            Err(error) => Err(error),
        }
    }

    /// The row could not be inserted, or not be read. Nothing happened.
    async fn not_attempted(&self, claim: &Claim, error: DatabaseError) -> Result<RecordedAttempt, WorkError> {
        // Another transaction has inserted it and is still open. When that one ends is not known: its lease may be
        // longer or shorter than this attempt's, which is the estimate.
        if let DatabaseError::Server { is_row_wait: true, .. } = error {
            return Ok(RecordedAttempt::Busy { after: claim.request().lease });
        }
        match self.explain(error, claim.ends()).await {
            error if error.is_of_the_key() => Err(WorkError::permanent(error)),
            error if error.is_busy() => Err(WorkError::busy(error)),
            error => Ok(RecordedAttempt::Unreachable(Box::new(error))),
        }
    }

    /// Adds the cause. For a character that its encoding cannot represent, the database does not say whether it is in
    /// the namespace or in the key, so a statement with the namespace alone is executed. If that one fails, its error
    /// is returned.
    async fn explain(&self, error: DatabaseError, until: Instant) -> InboxError {
        let explained = InboxError::of(error.clone());
        if !matches!(explained, InboxError::NamespaceEncoding(_)) {
            return explained;
        }
        self.check_until(until).await.err().unwrap_or(InboxError::KeyEncoding(error))
    }
}

/// The row was committed without a result.
fn unfinished() -> WorkError {
    WorkError::uncertain(
        "an earlier attempt executed COMMIT in its work, so what took effect is unknown: settle the rows of \
         idempotency_inbox WHERE result IS NULL as described in docs/inbox.md",
    )
}
