//! The rows, the watermark, and the statements on them. `sql/inbox.sql` creates the tables.
//!
//! `done_at` of a row is the time at which its transaction began, but the row is visible only after the commit. So a
//! row may become visible after later rows have been read. The watermark therefore stays behind the *horizon*: the
//! start of the oldest open transaction. Rows beyond the horizon are read again, by the next pass over the rows.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout_at};

use idempotent_sqs::idempotency::{Fence, Fingerprint, Key};

use super::loss_probe::LossProbe;
use super::{BackfillError, BackfillSettings};
use crate::database::types::ToSql;
use crate::database::{Database, DatabaseError, Row, Transaction, TransactionStatements, interval_seconds};
use crate::sqlstate;

/// A position among the rows, which are ordered by `done_at` and key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    done_at: SystemTime,
    key: String,
}

impl Position {
    pub(super) const BEGINNING: Self = Self { done_at: SystemTime::UNIX_EPOCH, key: String::new() };

    /// The position this much earlier, or the beginning.
    pub(super) fn before(self, time: Duration) -> Self {
        let earlier = self.done_at.checked_sub(time).map(|done_at| Self { done_at, key: String::new() });
        earlier.map_or(Self::BEGINNING, |earlier| earlier.max(Self::BEGINNING))
    }
}

/// What the last run has saved.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) loss_probe: LossProbe,
    /// All rows up to here were sent, whenever they became visible.
    pub(super) watermark: Position,
    /// The last row that an interrupted pass has sent. `None` after the end of a pass.
    pub(super) reached: Option<Position>,
}

/// The row of a completed work.
#[derive(Debug)]
pub(super) struct CompletedRow {
    pub(super) position: Position,
    pub(super) key: Key,
    pub(super) fingerprint: Fingerprint,
    pub(super) fence: Fence,
    pub(super) attempts: u8,
    /// `None` if the result is too large for a record.
    pub(super) result: Option<Vec<u8>>,
    /// Remaining retention of its record.
    pub(super) remaining_retention: Duration,
}

/// The next rows.
#[derive(Debug)]
pub(super) struct RowsRead {
    pub(super) rows: Vec<CompletedRow>,
    /// All rows before this position are visible.
    pub(super) horizon: Position,
    pub(super) is_last: bool,
}

/// The rows of one consumer.
#[derive(Debug)]
pub(super) struct BackfillTable {
    database: Database,
    namespace: String,
    retention_seconds: f64,
    result_max_bytes: i32,
}

impl BackfillTable {
    pub(super) fn new(database: Database, settings: &BackfillSettings) -> Self {
        Self {
            database,
            namespace: settings.namespace.clone(),
            retention_seconds: interval_seconds(settings.retention),
            result_max_bytes: i32::try_from(settings.result_max_bytes).unwrap_or(i32::MAX),
        }
    }

    /// What the last run has saved.
    pub(super) async fn saved(&self) -> Result<Option<Saved>, BackfillError> {
        let rows = self.query(async |transaction| transaction.query(SAVED, &[&self.namespace]).await).await?;
        Ok(rows.first().map(|row| {
            let reached: (Option<_>, Option<_>) = (row.get("reached_done_at"), row.get("reached_key"));
            Saved {
                loss_probe: LossProbe::named(row.get("loss_probe")),
                watermark: Position { done_at: row.get("done_at"), key: row.get("key") },
                reached: reached.0.zip(reached.1).map(|(done_at, key)| Position { done_at, key }),
            }
        }))
    }

    /// Saves this. Returns false if another run has replaced the loss probe `before`.
    pub(super) async fn save(&self, saved: &Saved, before: Option<&LossProbe>) -> Result<bool, BackfillError> {
        let Saved { loss_probe, watermark, reached } = saved;
        let before = before.map_or("", LossProbe::name);
        let (reached_done_at, reached_key) = reached.as_ref().map(|row| (row.done_at, &row.key)).unzip();
        let parameters: [&(dyn ToSql + Sync); 7] = [
            &self.namespace,
            &loss_probe.name(),
            &watermark.done_at,
            &watermark.key,
            &reached_done_at,
            &reached_key,
            &before,
        ];
        let begun = self.database.begin(Instant::now() + STEP_TIMEOUT, SAVE, &parameters).await;
        let (transaction, affected) = begun.map_err(explain)?;
        transaction.commit(&[]).await.map_err(|error| explain(error.into()))?;
        Ok(affected == 1)
    }

    /// Number of rows after this position. `None` if they cannot be counted within the timeout.
    pub(super) async fn count(&self, from: &Position) -> Result<Option<u64>, BackfillError> {
        let counted = self
            .query(async |transaction| {
                transaction.execute(COUNT_TIMEOUT, &[]).await?;
                transaction.query(COUNT, &[&self.namespace, &from.done_at, &from.key, &self.retention_seconds]).await
            })
            .await;
        match counted {
            Ok(rows) => Ok(rows.first().and_then(|row| u64::try_from(row.get::<_, i64>("rows")).ok())),
            Err(BackfillError::Database(error)) if error.code() == Some(sqlstate::QUERY_CANCELED) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads at most `limit` rows after this position, oldest first.
    pub(super) async fn read(&self, from: &Position, limit: u32) -> Result<RowsRead, BackfillError> {
        let limit = i64::from(limit);
        let (horizon, rows) = self
            .query(async |transaction| {
                // The horizon is read first: transactions that began before it have ended, so their rows are visible.
                let horizon = transaction.query(HORIZON, &[]).await?;
                let parameters: [&(dyn ToSql + Sync); 6] = [
                    &self.namespace,
                    &from.done_at,
                    &from.key,
                    &self.retention_seconds,
                    &self.result_max_bytes,
                    &limit,
                ];
                Ok((horizon, transaction.query(ROWS, &parameters).await?))
            })
            .await?;
        let horizon = horizon.first().map_or(SystemTime::UNIX_EPOCH, |row| row.get("horizon"));
        let is_last = i64::try_from(rows.len()).is_ok_and(|count| count < limit);
        // An empty key does not occur.
        let rows = rows.iter().filter_map(CompletedRow::of).collect();
        Ok(RowsRead { rows, horizon: Position { done_at: horizon, key: String::new() }, is_last })
    }

    /// Runs queries in a transaction that changes nothing.
    async fn query<T>(
        &self,
        queries: impl AsyncFnOnce(&Transaction) -> Result<T, DatabaseError>,
    ) -> Result<T, BackfillError> {
        let ends = Instant::now() + STEP_TIMEOUT;
        let (transaction, _) = self.database.begin(ends, READ, &[]).await.map_err(explain)?;
        let outcome =
            timeout_at(ends + STEP_TIMEOUT, queries(&transaction)).await.unwrap_or(Err(DatabaseError::Timeout));
        transaction.roll_back().await;
        outcome.map_err(explain)
    }
}

impl CompletedRow {
    fn of(row: &Row) -> Option<Self> {
        let key: String = row.get("key");
        let fingerprint = row.get::<_, &[u8]>("fingerprint").try_into().map(Fingerprint::from_bytes);
        let minutes = (row.get::<_, f64>("remaining_seconds") / 60.0).ceil();
        Some(Self {
            key: Key::from_stored(&key).ok()?,
            // This crate writes 16 bytes. Any other value agrees with no payload.
            fingerprint: fingerprint.unwrap_or(Fingerprint::of(b"")),
            fence: Fence(u64::try_from(row.get::<_, i64>("fence")).unwrap_or(0)),
            attempts: u8::try_from(row.get::<_, i16>("attempts")).unwrap_or(u8::MAX),
            result: row.get("result"),
            // Rounded up to a minute, so that rows of about the same time share an execution of the script.
            remaining_retention: Duration::from_secs(60).mul_f64(minutes),
            position: Position { done_at: row.get("done_at"), key },
        })
    }
}

/// Converts to an error with advice.
fn explain(error: DatabaseError) -> BackfillError {
    match error.code() {
        Some(sqlstate::UNDEFINED_TABLE | sqlstate::UNDEFINED_COLUMN) => BackfillError::TablesOutdated(error),
        Some(sqlstate::INSUFFICIENT_PRIVILEGE) => BackfillError::PermissionDenied(error),
        Some(_) | None => BackfillError::Database(error),
    }
}

const READ: TransactionStatements = TransactionStatements { first: NO_OP, last: NO_OP };

const SAVE: TransactionStatements = TransactionStatements { first: MOVE, last: NO_OP };

const SAVED: &str =
    "SELECT loss_probe, done_at, key, reached_done_at, reached_key FROM idempotency_backfill WHERE namespace = $1";

const MOVE: &str = "INSERT INTO idempotency_backfill \
       (namespace, loss_probe, done_at, key, reached_done_at, reached_key) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (namespace) DO UPDATE \
     SET loss_probe = excluded.loss_probe, done_at = excluded.done_at, key = excluded.key, \
       reached_done_at = excluded.reached_done_at, reached_key = excluded.reached_key, moved_at = now() \
     WHERE idempotency_backfill.loss_probe = $7";

/// In milliseconds. Shorter than [`STEP_TIMEOUT`]: a server with `transaction_timeout`, PostgreSQL 17 or newer, ignores a
/// `statement_timeout` that is not shorter, and ends the session instead of the statement:
/// <https://www.postgresql.org/docs/17/runtime-config-client.html#GUC-TRANSACTION-TIMEOUT>
const COUNT_TIMEOUT: &str = "SET LOCAL statement_timeout = 8000";

/// Unfinished rows, without a result, are not copied.
const COUNT: &str = "SELECT count(*) AS rows FROM idempotency_inbox WHERE namespace = $1 \
     AND (done_at, key) > ($2, $3) AND done_at > now() - make_interval(secs => $4) AND result IS NOT NULL";

/// One second less, for a transaction that has begun and is not yet in `pg_stat_activity`. The start of a transaction
/// of another user may be hidden. It then counts as half an hour old: a function runs for at most 15 minutes, and if
/// its process is frozen, the server ends its transaction at most 15 minutes later. So does an older one that has
/// changed nothing, such as a dump: an inbox inserts its row at the begin.
const HORIZON: &str = "SELECT least(now(), min(coalesce( \
         CASE WHEN backend_xid IS NOT NULL THEN xact_start END, greatest(xact_start, now() - interval '30 minutes') \
       ))) - interval '1 second' AS horizon \
     FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
       AND usesysid IS NOT NULL AND (xact_start IS NOT NULL OR backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)";

/// `done_at` may be `infinity`, which an operator sets so that a row is kept. The difference of two times may not.
const ROWS: &str = "SELECT key, fingerprint, fence, attempts, done_at, \
       CASE WHEN octet_length(result) <= $5 THEN result END AS result, \
       extract(epoch FROM least(done_at, now() + interval '1000 years') - now())::float8 + $4 AS remaining_seconds \
     FROM idempotency_inbox WHERE namespace = $1 \
       AND (done_at, key) > ($2, $3) AND done_at > now() - make_interval(secs => $4) AND result IS NOT NULL \
     ORDER BY done_at, key LIMIT $6";

const NO_OP: &str = "SELECT 1";

/// Reading a thousand rows takes milliseconds. Counting millions may take seconds.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
