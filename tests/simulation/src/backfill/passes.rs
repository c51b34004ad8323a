//! Passes over the rows while something happens, and what they send: docs/backfill.md.

use std::sync::Arc;
use std::time::Duration;

use history::Rng;
use idempotent_sqs_postgres::backfill::{BackfillEnd, BackfillStart};
use tokio::time::sleep;

use super::World;
use super::rows::Special;
use super::runs::{Copier, Limits};
use super::verdict::{SLACK, Specials};
use crate::lock;
use crate::redis::Server;

/// Rows whose transactions began later may become visible behind later ones: the horizon is so much earlier.
const HORIZON: Duration = Duration::from_secs(1);

/// A moment within a pass, which has two steps at least.
const MEANWHILE: Duration = Duration::from_millis(600);

const FROM_WATERMARK: Limits = Limits { start: BackfillStart::Watermark, time: None };

const FROM_OLDEST: Limits = Limits { start: BackfillStart::Oldest, time: None };

impl World {
    /// What is wrong with a pass during which a transaction commits that began before the rows which it has sent. The next
    /// pass sends its row.
    pub(super) async fn wrong_late_commit(&self, rng: &mut Rng, copiers: &[Arc<Copier>; 2]) -> Option<String> {
        let held = self.hold_row("held again").await;
        self.insert(rng, usize::try_from(self.rows_per_second.get()).unwrap_or_default() + 5).await;
        let commit = async {
            sleep(MEANWHILE).await;
            held.commit().await;
        };
        let ((_, end), ()) = tokio::join!(copiers[0].run(FROM_WATERMARK), commit);
        if end != Some(BackfillEnd::Done) {
            return Some(format!("while a transaction commits: a run ended with {end:?}"));
        }
        self.pass(&copiers[1], "after a commit during a pass").await
    }

    /// What is wrong with a run beside one that starts over.
    pub(super) async fn wrong_supersession(&self, copiers: &[Arc<Copier>; 2]) -> Option<String> {
        let later = async {
            sleep(MEANWHILE).await;
            copiers[1].run(FROM_OLDEST).await.1
        };
        let ((_, first), second) = tokio::join!(copiers[0].run(FROM_OLDEST), later);
        let is_right = (first, second) == (Some(BackfillEnd::Superseded), Some(BackfillEnd::Done));
        (!is_right).then(|| format!("of two runs, the first ended as {first:?}, and the second as {second:?}"))
    }

    /// What is wrong with a run while Redis loses its records again and again.
    pub(super) async fn wrong_end_of_losses(&self, copier: &Copier) -> Option<String> {
        let losses = async {
            loop {
                self.redis.servers.iter().for_each(Server::flush);
                sleep(MEANWHILE).await;
            }
        };
        tokio::select! {
            _ = copier.run(FROM_WATERMARK) => {}
            () = losses => {}
        }
        let run = lock(&self.runs).last().cloned()?;
        let is_right = matches!(&run.end, Some(Err(error)) if error.contains("loses records"));
        (!is_right).then(|| format!("Redis loses its records: {run:?}"))
    }

    /// What is wrong with a run whose rows cannot be counted in time.
    pub(super) async fn wrong_uncounted(&self, copier: &Copier) -> Option<String> {
        self.hang_count(copier.number);
        let (_, end) = copier.run(FROM_WATERMARK).await;
        let run = lock(&self.runs).last().cloned();
        (end != Some(BackfillEnd::Done)).then(|| format!("rows that cannot be counted are not copied: {run:?}"))
    }

    /// What is wrong with a pass after one that has ended: it starts the overlap before the watermark.
    pub(super) async fn wrong_next_pass(&self, copier: &Copier) -> Option<String> {
        let (since, until) = {
            let runs = lock(&self.runs);
            let (last, earlier) = runs.split_last()?;
            let of_pass = earlier.iter().rev().take_while(|run| !matches!(run.end, Some(Ok((_, BackfillEnd::Done)))));
            (of_pass.last().unwrap_or(last).begun, last.ended)
        };
        let rows = self.copied();
        let done: Vec<f64> = rows.iter().map(|row| row.done_s(since)).collect();
        let last = done.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (overlap, slack) = (self.overlap.as_secs_f64(), SLACK.as_secs_f64());
        // The watermark is at the last row, or at the horizon.
        let earliest = last.min(-HORIZON.as_secs_f64()) - overlap - slack;
        let latest = last.min((until - since).as_secs_f64() - HORIZON.as_secs_f64()) - overlap + slack;
        let count = |after: f64| done.iter().filter(|done| **done > after).count() as u64;
        let (progress, end) = copier.run(FROM_WATERMARK).await;
        let is_right = end == Some(BackfillEnd::Done) && (count(latest)..=count(earliest)).contains(&progress.sent());
        (!is_right).then(|| {
            format!("after a pass, {end:?} with {progress:?}, not {}..={} rows", count(latest), count(earliest))
        })
    }

    /// What is wrong with a run after Redis has lost all records, which it does once more meanwhile.
    pub(super) async fn wrong_restoration(&self, copier: &Copier) -> Option<String> {
        let flush = || self.redis.servers.iter().for_each(Server::flush);
        flush();
        let (restored, ()) = tokio::join!(copier.run(FROM_WATERMARK), async {
            sleep(MEANWHILE).await;
            flush();
        });
        let run = lock(&self.runs).last().cloned()?;
        // The rows were counted again.
        let is_counted = run.steps.windows(2).next_back().is_none_or(|two| {
            let [before, last] = [two[0].1, two[1].1];
            before.remaining.is_some_and(|remaining| remaining + before.sent() == last.sent())
        });
        let (progress, end) = restored;
        // A step that is sent after the second loss is sent again, before that is known.
        let again = progress.sent() - progress.copied;
        let is_copied = again == progress.already_completed && again <= self.rows_per_second.get().into();
        let is_right = end == Some(BackfillEnd::Done) && is_counted && is_copied;
        (!is_right).then(|| format!("after a loss: {run:?}"))
    }

    /// What is wrong with a pass over all rows, each of which was copied before.
    pub(super) async fn wrong_whole_pass(&self, copier: &Copier, specials: &Specials) -> Option<String> {
        let rows = self.copied().len() as u64;
        let is_left = |special: &Special| !self.was_flushed() && specials.iter().any(|(_, other, _)| other == special);
        let skipped =
            [Special::Processing, Special::FailedForAnother].iter().filter(|special| is_left(special)).count();
        let (skipped, not_records) = (skipped as u64, u64::from(is_left(&Special::NoRecord)));
        let (progress, end) = copier.run(FROM_OLDEST).await;
        let counts = [progress.copied, progress.already_completed, progress.skipped, progress.not_records];
        let expected = [0, rows - skipped - not_records, skipped, not_records];
        let is_right = end == Some(BackfillEnd::Done) && counts == expected && progress.remaining == Some(0);
        (!is_right).then(|| format!("a pass over all rows ended as {end:?} with {progress:?}, not {expected:?}"))
    }
}
