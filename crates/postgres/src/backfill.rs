//! Copies rows of an [inbox](crate::Inbox) to a store that has lost its records, so that the store recognizes
//! duplicates again.
//!
//! - `run`: one run
//! - `table`: the rows, the watermark, and the statements on them
//! - `loss_probe`: records by which a run detects that the store has lost records
//! - `progress`: counts of a run, how it ended, and its errors
//!
//! A row is copied with the call that completes the work, which writes only if there is no record, or a failed one of
//! the same payload. So runs may be concurrent with each other and with the function, and may be killed at any point:
//! copying a row again changes nothing.

mod loss_probe;
mod progress;
mod run;
mod table;

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use idempotent_sqs::idempotency::MAX_RESULT_BYTES;
use idempotent_sqs::{Policy, Store};

use crate::database::Database;

pub use progress::{BackfillEnd, BackfillError, BackfillProgress};
use run::Run;
use table::BackfillTable;

/// Settings of a [`Backfill`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackfillSettings {
    /// The logical consumer. Use the namespace of the store and of the inbox.
    pub namespace: String,
    /// Lifetime of a record, from the start of its transaction. Older rows are not copied.
    pub retention: Duration,
    /// Largest result that is kept in a record, bytes. Larger results are not copied; the record is. More than
    /// [`MAX_RESULT_BYTES`] counts as this.
    pub result_max_bytes: usize,
    /// Maximum number of rows sent to the store per second.
    pub rows_per_second: NonZeroU32,
    /// How far before the watermark a pass over the rows starts, because a failover of the store may lose the last
    /// records without losing the loss probe. A run that continues an interrupted pass starts at the row that was
    /// reached.
    pub overlap: Duration,
}

impl BackfillSettings {
    /// One twentieth of what a Redis server can process, at 4 µs a record.
    pub const DEFAULT_ROWS_PER_SECOND: NonZeroU32 = NonZeroU32::new(10_000).unwrap();

    /// Default settings for this consumer: a retention of 14 days, results up to 4,096 bytes, 10,000 rows a second, and
    /// an overlap of one minute.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        let Policy { retention, result_max_bytes, .. } = Policy::default();
        Self {
            namespace: namespace.into(),
            retention,
            result_max_bytes,
            rows_per_second: Self::DEFAULT_ROWS_PER_SECOND,
            // More than the lag of a healthy replica.
            overlap: Duration::from_mins(1),
        }
    }
}

/// Where a run starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackfillStart {
    /// At the row that the last run has reached, if it was interrupted, and else at its watermark. At the oldest row if
    /// there is no watermark, or the store has lost records since.
    Watermark,
    /// At the oldest row.
    Oldest,
}

/// Copies the rows of an inbox to a store.
///
/// ```no_run
/// use idempotent_sqs::{RedisSettings, RedisStore};
/// use idempotent_sqs_postgres::backfill::{Backfill, BackfillSettings, BackfillStart};
/// use idempotent_sqs_postgres::{Database, DatabaseSettings};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::new(&RedisSettings::new("redis://127.0.0.1:6379".parse()?, "payments"))?;
/// let database = Database::new(&DatabaseSettings::new("postgres://payer@127.0.0.1/payments".parse()?));
/// let backfill = Backfill::new(store, database, BackfillSettings::new("payments"));
/// let (progress, end) = backfill.run(BackfillStart::Watermark, None, |_| ()).await?;
/// println!("{end:?}: {} rows copied", progress.copied);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Backfill<S> {
    store: S,
    table: BackfillTable,
    settings: BackfillSettings,
}

impl<S: Store> Backfill<S> {
    /// Creates a backfill from this database to this store. No connection is opened yet.
    pub fn new(store: S, database: Database, mut settings: BackfillSettings) -> Self {
        settings.result_max_bytes = settings.result_max_bytes.min(MAX_RESULT_BYTES);
        let table = BackfillTable::new(database, &settings);
        Self { store, table, settings }
    }

    /// Sends rows to the store, oldest first, until all were sent or `until` is reached. Calls `on_progress` after each
    /// step of at most 1,000 rows and 32 MiB of results.
    ///
    /// # Errors
    /// [`BackfillError`]. The next run continues where this one stopped.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the next run sends the rows of the last step again.
    pub async fn run(
        &self,
        start: BackfillStart,
        until: Option<Instant>,
        mut on_progress: impl FnMut(&BackfillProgress),
    ) -> Result<(BackfillProgress, BackfillEnd), BackfillError> {
        let mut run = Run::new(self);
        // Boxed, because the nested future would exceed the type-length limit of the compiler.
        let copy = Box::pin(run.copy(start, &mut on_progress));
        let end = match until {
            None => copy.await?,
            Some(until) => timeout_at(until, copy).await.unwrap_or(Ok(BackfillEnd::OutOfTime))?,
        };
        Ok((run.progress(), end))
    }
}
