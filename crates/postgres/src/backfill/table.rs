//! The rows, the watermark, and the statements on them. The tables are made by `sql/inbox.sql`.
//!
//! A row has the time at which its transaction began, and can be seen once that has committed. So it may
//! appear behind rows that are later by their time. The watermark therefore never passes the *horizon*: the
//! begin of the oldest transaction that is still under way. What lies beyond it is offered again.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout_at};

use super::loss_probe::LossProbe;
use super::{BackfillError, BackfillSettings};
use crate::database::types::ToSql;
use crate::database::{Database, DatabaseError, Frame, Row as Columns, Transaction};
use crate::sqlstate;
use idempotent_sqs::idempotency::{Fence, Fingerprint, Key};

/// A place among the rows, which are in the order of their times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Watermark {
    done_at: SystemTime,
    key: String,
}

impl Watermark {
    pub(super) const BEGINNING: Self = Self { done_at: SystemTime::UNIX_EPOCH, key: String::new() };

    /// So much earlier.
    pub(super) fn before(self, time: Duration) -> Self {
        self.done_at.checked_sub(time).map_or(self, |done_at| Self { done_at, key: String::new() })
    }
}

/// A work that is done.
#[derive(Debug)]
pub(super) struct CompletedRow {
    pub(super) place: Watermark,
    pub(super) key: Key,
    pub(super) fingerprint: Fingerprint,
    pub(super) fence: Fence,
    pub(super) attempts: u8,
    /// `None` where it is too large for a record.
    pub(super) result: Option<Vec<u8>>,
    /// Of the retention of its record.
    pub(super) remains: Duration,
}

/// The next rows.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) rows: Vec<CompletedRow>,
    /// No row before it will appear any more.
    pub(super) horizon: Watermark,
    pub(super) is_last: bool,
}

/// The rows of one consumer.
#[derive(Debug)]
pub(super) struct BackfillTable {
    database: Database,
    namespace: String,
    /// Seconds.
    retention: f64,
    /// Bytes.
    largest_result: i32,
}

impl BackfillTable {
    pub(super) fn new(database: Database, settings: &BackfillSettings) -> Self {
        Self {
            database,
            namespace: settings.namespace.clone(),
            retention: settings.retention.as_secs_f64(),
            largest_result: i32::try_from(settings.result_max_bytes).unwrap_or(i32::MAX),
        }
    }

    /// Where the last run was, and its loss_probe.
    pub(super) async fn watermark(&self) -> Result<Option<(LossProbe, Watermark)>, BackfillError> {
        let rows = self.look(async |transaction| transaction.query(WATERMARK, &[&self.namespace]).await).await?;
        Ok(rows.first().map(|row| {
            let at = Watermark { done_at: row.get("done_at"), key: row.get("key") };
            (LossProbe::named(row.get("loss_probe")), at)
        }))
    }

    /// Move the watermark, unless another loss_probe has come in place of `before`.
    pub(super) async fn save(
        &self,
        loss_probe: &LossProbe,
        at: Watermark,
        before: Option<&LossProbe>,
    ) -> Result<bool, BackfillError> {
        let before = before.map_or("", LossProbe::name);
        let parameters: [&(dyn ToSql + Sync); 5] = [&self.namespace, &loss_probe.name(), &at.done_at, &at.key, &before];
        let begun = self.database.begin(Instant::now() + LONGEST_STEP, SAVE, &parameters).await;
        let (transaction, touched) = begun.map_err(explained)?;
        transaction.commit(&[]).await.map_err(|error| explained(error.into()))?;
        Ok(touched == 1)
    }

    /// Rows from here on, where they can be counted in time.
    pub(super) async fn count(&self, from: &Watermark) -> Result<Option<u64>, BackfillError> {
        let counted = self
            .look(async |transaction| {
                transaction.query(COUNT, &[&self.namespace, &from.done_at, &from.key, &self.retention]).await
            })
            .await;
        match counted {
            Ok(rows) => Ok(rows.first().and_then(|row| u64::try_from(row.get::<_, i64>("rows")).ok())),
            Err(BackfillError::Database(error)) if error.code() == Some(sqlstate::QUERY_CANCELED) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn page(&self, from: &Watermark, limit: u32) -> Result<Page, BackfillError> {
        let limit = i64::from(limit);
        let (horizon, rows) = self
            .look(async |transaction| {
                // First the horizon: what began before it has ended by now, and can be seen.
                let horizon = transaction.query(HORIZON, &[]).await?;
                let parameters: [&(dyn ToSql + Sync); 6] =
                    [&self.namespace, &from.done_at, &from.key, &self.retention, &self.largest_result, &limit];
                Ok((horizon, transaction.query(ROWS, &parameters).await?))
            })
            .await?;
        let horizon = horizon.first().map_or(SystemTime::UNIX_EPOCH, |row| row.get("horizon"));
        let is_last = i64::try_from(rows.len()).is_ok_and(|count| count < limit);
        // No key is empty.
        let rows = rows.iter().filter_map(CompletedRow::of).collect();
        Ok(Page { rows, horizon: Watermark { done_at: horizon, key: String::new() }, is_last })
    }

    /// In a transaction, which changes nothing.
    async fn look<T>(
        &self,
        look: impl AsyncFnOnce(&Transaction) -> Result<T, DatabaseError>,
    ) -> Result<T, BackfillError> {
        let ends = Instant::now() + LONGEST_STEP;
        let (transaction, _) = self.database.begin(ends, LOOK, &[]).await.map_err(explained)?;
        let seen = timeout_at(ends + LONGEST_STEP, look(&transaction)).await.unwrap_or(Err(DatabaseError::Late));
        transaction.roll_back().await;
        seen.map_err(explained)
    }
}

impl CompletedRow {
    fn of(columns: &Columns) -> Option<Self> {
        let key: String = columns.get("key");
        let fingerprint = columns.get::<_, &[u8]>("fingerprint").try_into().map(Fingerprint::from_bytes);
        let minutes = (columns.get::<_, f64>("remains") / 60.0).ceil();
        Some(Self {
            key: Key::from_stored(&key).ok()?,
            // One that is not of 16 bytes was not written here; it agrees with none.
            fingerprint: fingerprint.unwrap_or(Fingerprint::of(b"")),
            fence: Fence(u64::try_from(columns.get::<_, i64>("fence")).unwrap_or(0)),
            attempts: u8::try_from(columns.get::<_, i16>("attempts")).unwrap_or(u8::MAX),
            result: columns.get("result"),
            // Rounded up, so that rows of about the same time share a run of the script.
            remains: Duration::from_secs(60).mul_f64(minutes),
            place: Watermark { done_at: columns.get("done_at"), key },
        })
    }
}

fn explained(error: DatabaseError) -> BackfillError {
    match error.code() {
        Some(sqlstate::UNDEFINED_TABLE | sqlstate::UNDEFINED_COLUMN) => BackfillError::NoTable(error),
        Some(_) | None => BackfillError::Database(error),
    }
}

const LOOK: Frame = Frame { opening: NOTHING, closing: NOTHING };

const SAVE: Frame = Frame { opening: MOVE, closing: NOTHING };

const WATERMARK: &str = "SELECT loss_probe, done_at, key FROM idempotency_backfill WHERE namespace = $1";

const MOVE: &str = "INSERT INTO idempotency_backfill (namespace, loss_probe, done_at, key) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (namespace) DO UPDATE \
     SET loss_probe = excluded.loss_probe, done_at = excluded.done_at, key = excluded.key, moved_at = now() \
     WHERE idempotency_backfill.loss_probe = $5";

/// An unfinished row does not say that its work is done.
const COUNT: &str = "SELECT count(*) AS rows FROM idempotency_inbox WHERE namespace = $1 \
     AND (done_at, key) > ($2, $3) AND done_at > now() - make_interval(secs => $4) AND result IS NOT NULL";

/// The second is for one that has begun and does not show yet. A transaction of another user may not show
/// its begin. Then half an hour counts: a function runs for 15 minutes at most, and where its process is
/// frozen, the server ends the transaction after as much again.
const HORIZON: &str = "SELECT greatest(now() - interval '30 minutes', \
       least(now(), min(coalesce(xact_start, '-infinity'))) - interval '1 second') AS horizon \
     FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
       AND usesysid IS NOT NULL AND (xact_start IS NOT NULL OR backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)";

const ROWS: &str = "SELECT key, fingerprint, fence, attempts, done_at, \
       CASE WHEN octet_length(result) <= $5 THEN result END AS result, \
       extract(epoch FROM done_at - now())::float8 + $4 AS remains \
     FROM idempotency_inbox WHERE namespace = $1 \
       AND (done_at, key) > ($2, $3) AND done_at > now() - make_interval(secs => $4) AND result IS NOT NULL \
     ORDER BY done_at, key LIMIT $6";

const NOTHING: &str = "SELECT 1";

/// Reading a thousand rows takes milliseconds; counting millions may take seconds.
const LONGEST_STEP: Duration = Duration::from_secs(10);
