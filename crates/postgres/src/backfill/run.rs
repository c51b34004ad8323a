//! One run of the backfill.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};

use idempotent_sqs::Store;
use idempotent_sqs::idempotency::{AcquireRequest, Claim, Settled, State, StoreError, StoredResult};

use super::loss_probe::LossProbe;
use super::progress::{BackfillEnd, BackfillError, BackfillProgress};
use super::table::{CompletedRow, Position, RowsRead, Saved};
use super::{Backfill, BackfillSettings, BackfillStart};

/// Maximum number of rows per step: four megabytes of results at their default limit, and 16 executions of a script,
/// between which Redis serves other clients.
const MAX_STEP: u32 = 1_000;

/// Maximum size of the results of a step, bytes. They are copied several times, in the 256 MB of the template. A result
/// above the limit of the settings is not read.
const MAX_STEP_BYTES: usize = 32 << 20;

/// Maximum number of starts at the oldest row per run, the first included.
const MAX_STARTS_OVER: u32 = 3;

/// A run in progress.
pub(super) struct Run<'a, S> {
    backfill: &'a Backfill<S>,
    loss_probe: LossProbe,
    /// Start of the next pass.
    watermark: Position,
    /// The last row that was sent.
    reached: Position,
    progress: BackfillProgress,
    begun: Instant,
    /// When the next rows may be sent.
    next_send: Instant,
    starts_over: u32,
}

impl<'a, S: Store> Run<'a, S> {
    pub(super) fn new(backfill: &'a Backfill<S>) -> Self {
        let (watermark, reached) = (Position::BEGINNING, Position::BEGINNING);
        let (loss_probe, progress, now) = (LossProbe::new(), BackfillProgress::default(), Instant::now());
        Self { backfill, loss_probe, watermark, reached, progress, begun: now, next_send: now, starts_over: 0 }
    }

    pub(super) fn progress(&self) -> BackfillProgress {
        BackfillProgress { elapsed: self.begun.elapsed(), ..self.progress }
    }

    pub(super) async fn copy(
        &mut self,
        start: BackfillStart,
        on_progress: &mut impl FnMut(&BackfillProgress),
    ) -> Result<BackfillEnd, BackfillError> {
        let table = &self.backfill.table;
        if !self.start(start).await? {
            return Ok(BackfillEnd::Superseded);
        }
        self.progress.remaining = table.count(&self.reached).await?;
        loop {
            let RowsRead { rows, horizon, is_last } = table.read(&self.reached, self.step()).await?;
            self.send(&rows).await?;
            if !self.probe_is_intact(&self.loss_probe).await? {
                let lost = self.loss_probe.clone();
                if !self.start_over(Some(&lost)).await? {
                    return Ok(BackfillEnd::Superseded);
                }
                self.progress.remaining = table.count(&self.reached).await?;
                continue;
            }
            self.advance(rows.last(), horizon);
            if !self.save(is_last, Some(&self.loss_probe)).await? {
                return Ok(BackfillEnd::Superseded);
            }
            on_progress(&self.progress());
            if is_last {
                self.progress.remaining = Some(0);
                return Ok(BackfillEnd::Done);
            }
        }
    }

    /// Continues an interrupted pass, starts one at the watermark, or starts over. Returns false if a concurrent run
    /// has started over.
    async fn start(&mut self, start: BackfillStart) -> Result<bool, BackfillError> {
        let saved = self.backfill.table.saved().await?;
        if let (Some(Saved { loss_probe, watermark, reached }), BackfillStart::Watermark) = (&saved, start)
            && self.probe_is_intact(loss_probe).await?
        {
            self.loss_probe = loss_probe.clone();
            if let Some(reached) = reached {
                (self.watermark, self.reached) = (watermark.clone(), reached.clone());
            } else {
                self.watermark = watermark.clone().before(self.backfill.settings.overlap);
                self.reached = self.watermark.clone();
            }
            return Ok(true);
        }
        self.start_over(saved.map(|saved| saved.loss_probe).as_ref()).await
    }

    /// Advances to the last row that was sent. Once the pass is beyond the horizon, rows may become visible behind it.
    /// They are left to the next pass, so the watermark stays at this horizon until then.
    fn advance(&mut self, sent: Option<&CompletedRow>, horizon: Position) {
        let reached = sent.map_or_else(|| self.reached.clone(), |row| row.position.clone());
        if self.watermark == self.reached {
            self.watermark = reached.clone().min(horizon);
        }
        self.reached = reached;
    }

    /// Saves how far the rows were sent. Returns false if another run has replaced the probe `before`.
    async fn save(&self, is_end: bool, before: Option<&LossProbe>) -> Result<bool, BackfillError> {
        let saved = Saved {
            loss_probe: self.loss_probe.clone(),
            watermark: self.watermark.clone(),
            reached: (!is_end).then(|| self.reached.clone()),
        };
        self.backfill.table.save(&saved, before).await
    }

    /// Starts at the oldest row, with a new loss probe. Returns false if another run has replaced the probe `before`.
    async fn start_over(&mut self, before: Option<&LossProbe>) -> Result<bool, BackfillError> {
        self.starts_over += 1;
        if self.starts_over > MAX_STARTS_OVER {
            return Err(BackfillError::RecordsLost);
        }
        (self.watermark, self.reached) = (Position::BEGINNING, Position::BEGINNING);
        self.loss_probe = LossProbe::new();
        // Saved before its records are written: records of an unsaved probe would be useless.
        let is_saved = self.save(false, before).await?;
        if is_saved {
            self.loss_probe.write(&self.backfill.store, self.backfill.settings.retention).await?;
        }
        Ok(is_saved)
    }

    async fn probe_is_intact(&self, loss_probe: &LossProbe) -> Result<bool, StoreError> {
        loss_probe.is_intact(&self.backfill.store, self.backfill.settings.retention).await
    }

    /// Sends the rows to the store concurrently. The store combines them into few executions of its script.
    async fn send(&mut self, rows: &[CompletedRow]) -> Result<(), BackfillError> {
        // Counted from each send, so that a slow one is not followed by a burst.
        sleep_until(self.next_send).await;
        let lasts = Duration::from_secs(rows.len() as u64) / self.backfill.settings.rows_per_second.get();
        self.next_send = Instant::now() + lasts;
        let progress = &mut self.progress;
        for answer in join_all(rows.iter().map(|row| complete(&self.backfill.store, row))).await {
            match answer {
                Ok(Settled::Recorded) => progress.copied += 1,
                Ok(Settled::Lost(State::Completed)) => progress.already_completed += 1,
                Ok(Settled::Lost(State::Processing | State::Failed)) => progress.skipped += 1,
                Err(StoreError::NotARecord(_)) => progress.not_records += 1,
                Err(error) => return Err(error.into()),
            }
            progress.remaining = progress.remaining.map(|remaining| remaining.saturating_sub(1));
        }
        Ok(())
    }

    /// Rows in a step: at most those of one second, and as many as have results of the permitted size.
    fn step(&self) -> u32 {
        let BackfillSettings { rows_per_second, result_max_bytes, .. } = self.backfill.settings;
        let of_bytes = MAX_STEP_BYTES / result_max_bytes.clamp(1, MAX_STEP_BYTES);
        MAX_STEP.min(rows_per_second.get()).min(u32::try_from(of_bytes).unwrap_or(MAX_STEP))
    }
}

async fn complete<S: Store>(store: &S, row: &CompletedRow) -> Result<Settled, StoreError> {
    // The owner is a new one for each call. So the answer distinguishes a record that this call wrote from one that an
    // earlier call wrote.
    let mut attempt = AcquireRequest::new(row.key.clone());
    attempt.fingerprint = row.fingerprint;
    attempt.lease = Duration::ZERO;
    attempt.longest_lease = Duration::ZERO;
    attempt.retention = row.remaining_retention;
    let claim = Claim::of_completed_work(attempt, row.fence, row.attempts);
    let result = row.result.as_deref().map_or(StoredResult::NotKept, StoredResult::Inline);
    store.complete(&claim, result).await
}
