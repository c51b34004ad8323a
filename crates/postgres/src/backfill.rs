//! The backfill: copies the rows of an [inbox](crate::Inbox) that the store does not know to the
//! store, so that one which was restored empty is warm again before the first redelivery.
//!
//! - `loss_probe`: the records by which a store shows that it has lost nothing
//! - `table`: the rows, the watermark, and the statements on them
//!
//! A row is copied as its own work would be recorded: as a completion, which writes where there is no
//! record or a failed one of the same payload. So the backfill may run twice at once, and beside the function, and may be
//! killed at any point: what it repeats changes nothing.

mod loss_probe;
mod table;

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::database::{Database, DatabaseError};
use idempotent_sqs::Policy;
use idempotent_sqs::idempotency::{Attempt, Claim, Settled, State, Store, StoreError, StoredResult};

use loss_probe::LossProbe;
use table::{BackfillTable, CompletedRow, Page, Watermark};

/// Settings of a [`Backfill`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackfillSettings {
    /// The logical consumer: the same as the store's and the inbox's.
    pub namespace: String,
    /// Life of a record from its claim. A row that is older is not copied.
    pub retention: Duration,
    /// Largest result kept in a record, bytes. Of a larger one only the fact is copied that it is done.
    pub result_max_bytes: usize,
    /// Rows that are offered to the store in a second, at most.
    pub rows_per_second: NonZeroU32,
    /// How far before the watermark a run begins: what a failover loses are the last moments before it.
    pub overlap: Duration,
}

impl BackfillSettings {
    /// One twentieth of what a Redis server can process, at 4 µs a record.
    pub const DEFAULT_ROWS_PER_SECOND: NonZeroU32 = NonZeroU32::new(10_000).unwrap();

    /// Default settings for this consumer: a retention of 14 days, results up to 4,096 bytes, 10,000 rows a second and
    /// an overlap of one minute.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        let Policy { retention, result_max_bytes, .. } = Policy::default();
        Self {
            namespace: namespace.into(),
            retention,
            result_max_bytes,
            rows_per_second: Self::DEFAULT_ROWS_PER_SECOND,
            // Replicas lag by less, or are in trouble.
            overlap: Duration::from_mins(1),
        }
    }
}

/// Copies rows to a store.
#[derive(Debug)]
pub struct Backfill<S> {
    store: S,
    table: BackfillTable,
    settings: BackfillSettings,
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the watermark of the last run; at the oldest row where there is none, and where the store
    /// has lost records since.
    Watermark,
    /// At the oldest row.
    Oldest,
}

/// What has become of the rows so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The store did not know them.
    pub copied: u64,
    /// The store knew that they are done.
    pub known: u64,
    /// The store knows of an attempt that is under way, or that failed with another payload. That one, or the
    /// next, finds the row by itself.
    pub left_alone: u64,
    /// Under their keys the store has values that are no records.
    pub foreign: u64,
    /// Rows that are still to be offered; `None` where they could not be counted in time.
    pub left: Option<u64>,
    /// Since the begin of the run.
    pub elapsed: Duration,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every row was offered.
    Done,
    /// The time was up. The next run goes on.
    OutOfTime,
    /// Another backfill has started over meanwhile, and this one has left the rest to it.
    Overtaken,
}

/// Why a run ended before its time. The next run goes on where this one was.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    /// A table is not there, or an older one.
    #[error("the tables of the inbox are missing, or older than the backfill: run sql/inbox.sql by psql ({0})")]
    NoTable(DatabaseError),
    /// The database gives no answer, or another than it should.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The store gives no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store loses records again and again.
    #[error("the store loses records while they are copied: is its maxmemory-policy noeviction?")]
    Leaking,
}

/// A run under way.
struct Pass {
    loss_probe: LossProbe,
    at: Watermark,
    progress: Progress,
    begun: Instant,
    /// How often it has started over.
    losses: u32,
}

impl<S: Store> Backfill<S> {
    /// The backfill from this database to this store. Nothing is connected yet.
    pub fn new(store: S, database: Database, settings: BackfillSettings) -> Self {
        let table = BackfillTable::new(database, &settings);
        Self { store, table, settings }
    }

    /// Offer rows to the store, oldest first, until all were offered or the time is up. `tell` hears of
    /// each step.
    ///
    /// # Errors
    /// [`BackfillError`].
    ///
    /// ## Cancel safety
    /// Dropped, it has offered some rows more than the watermark says, which the next run offers again.
    pub async fn run(
        &self,
        start: Start,
        until: Option<Instant>,
        mut tell: impl FnMut(&Progress),
    ) -> Result<(Progress, End), BackfillError> {
        let mut run = Pass::new();
        // On the heap: nested in a caller's own, so deep a future is beyond the compiler's limit.
        let pass = Box::pin(self.pass(&mut run, start, &mut tell));
        let end = match until {
            None => pass.await?,
            Some(until) => timeout_at(until, pass).await.unwrap_or(Ok(End::OutOfTime))?,
        };
        Ok((run.progress(), end))
    }

    async fn pass(&self, run: &mut Pass, start: Start, tell: &mut impl FnMut(&Progress)) -> Result<End, BackfillError> {
        let saved = self.table.watermark().await?;
        let goes_on = match &saved {
            Some((loss_probe, _)) if start == Start::Watermark => {
                loss_probe.lives(&self.store, self.settings.retention).await?
            }
            Some(_) | None => false,
        };
        match saved {
            Some((loss_probe, at)) if goes_on => {
                (run.loss_probe, run.at) = (loss_probe, at.before(self.settings.overlap))
            }
            saved => {
                let before = saved.map(|(loss_probe, _)| loss_probe);
                if !self.start_over(run, before.as_ref()).await? {
                    return Ok(End::Overtaken);
                }
            }
        }
        run.progress.left = self.table.count(&run.at).await?;
        loop {
            let Page { rows, horizon, is_last } = self.table.page(&run.at, self.step()).await?;
            self.offer(&rows, &mut run.progress).await?;
            if !run.loss_probe.lives(&self.store, self.settings.retention).await? {
                let lost = run.loss_probe.clone();
                if !self.start_over(run, Some(&lost)).await? {
                    return Ok(End::Overtaken);
                }
                run.progress.left = self.table.count(&run.at).await?;
                continue;
            }
            if let Some(row) = rows.last() {
                run.at = row.place.clone();
            }
            if !self.table.save(&run.loss_probe, run.at.clone().min(horizon), Some(&run.loss_probe)).await? {
                return Ok(End::Overtaken);
            }
            tell(&run.progress());
            if is_last {
                run.progress.left = Some(0);
                return Ok(End::Done);
            }
            sleep_until(run.begun + self.time_for(run.progress.offered())).await;
        }
    }

    /// Begin at the oldest row, under a new loss_probe. Not where another backfill has done so since.
    async fn start_over(&self, run: &mut Pass, before: Option<&LossProbe>) -> Result<bool, BackfillError> {
        run.losses += 1;
        if run.losses > MOST_LOSSES {
            return Err(BackfillError::Leaking);
        }
        (run.loss_probe, run.at) = (LossProbe::new(), Watermark::BEGINNING);
        // Saved first: a loss_probe that the store has and nobody knows of would be of no use.
        let is_ours = self.table.save(&run.loss_probe, run.at.clone(), before).await?;
        if is_ours {
            run.loss_probe.release(&self.store, self.settings.retention).await?;
        }
        Ok(is_ours)
    }

    /// What is offered at once travels together, in as many runs of a script as the store sees fit.
    async fn offer(&self, rows: &[CompletedRow], progress: &mut Progress) -> Result<(), BackfillError> {
        for answer in join_all(rows.iter().map(|row| self.complete(row))).await {
            match answer {
                Ok(Settled::Recorded) => progress.copied += 1,
                Ok(Settled::Lost(State::Completed)) => progress.known += 1,
                Ok(Settled::Lost(State::Processing | State::Failed)) => progress.left_alone += 1,
                Err(StoreError::NotARecord(_)) => progress.foreign += 1,
                Err(error) => return Err(error.into()),
            }
            progress.left = progress.left.map(|left| left.saturating_sub(1));
        }
        Ok(())
    }

    async fn complete(&self, row: &CompletedRow) -> Result<Settled, StoreError> {
        // A new owner each time distinguishes what this offer copies from what an earlier one copied.
        let mut attempt = Attempt::new(row.key.clone());
        attempt.fingerprint = row.fingerprint;
        attempt.lease = Duration::ZERO;
        attempt.longest_lease = Duration::ZERO;
        attempt.retention = row.remains;
        let claim = Claim::of_completed_work(attempt, row.fence, row.attempts);
        let result = row.result.as_deref().map_or(StoredResult::NotKept, StoredResult::Inline);
        self.store.complete(&claim, result).await
    }

    /// Rows in a step: where few are allowed, no more than in a second.
    fn step(&self) -> u32 {
        LARGEST_STEP.min(self.settings.rows_per_second.get())
    }

    fn time_for(&self, rows: u64) -> Duration {
        Duration::from_secs(rows) / self.settings.rows_per_second.get()
    }
}

impl Pass {
    fn new() -> Self {
        let (loss_probe, at) = (LossProbe::new(), Watermark::BEGINNING);
        Self { loss_probe, at, progress: Progress::default(), begun: Instant::now(), losses: 0 }
    }

    fn progress(&self) -> Progress {
        Progress { elapsed: self.begun.elapsed(), ..self.progress }
    }
}

impl Progress {
    /// Rows that were offered.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.copied + self.known + self.left_alone + self.foreign
    }

    /// Rows that were offered in a second, on average.
    #[must_use]
    pub fn rate(&self) -> u64 {
        let a_second = u128::from(self.offered()) * 1_000 / self.elapsed.as_millis().max(1);
        u64::try_from(a_second).unwrap_or(u64::MAX)
    }
}

/// Rows in a step. Sixteen runs of a script, between which Redis serves others; and four megabytes of
/// results at their default limit.
const LARGEST_STEP: u32 = 1_000;

/// Losses in one run: the one that is its reason, another by chance, and one that is none any more.
const MOST_LOSSES: u32 = 3;
