//! Whether the runs report what they did: docs/backfill.md.

use std::time::Duration;

use history::inbox::SECRET;
use idempotent_sqs_postgres::backfill::{BackfillEnd, BackfillProgress};
use tokio::time::Instant;

use super::World;
use super::faults::What;
use super::runs::RunSeen;
use super::verdict::SLACK;
use crate::lock;

/// How long the effects of a fault last: clients wait, and connect again.
const LATE: Duration = Duration::from_secs(12);

impl World {
    /// Runs that report what cannot be. From the run of the number `since` on, nothing fails.
    pub(super) fn wrong_runs(&self, since: usize) -> Vec<String> {
        let runs = lock(&self.runs).clone();
        let mut wrong = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            let mut faults = vec![self.wrong_end(run, &runs), self.wrong_steps(run)];
            if number >= since {
                faults.push(self.wrong_pace(run));
            }
            wrong.extend(faults.into_iter().flatten().map(|why| format!("{why}: {run:?}")));
        }
        wrong
    }

    fn wrong_end(&self, run: &RunSeen, runs: &[RunSeen]) -> Option<&'static str> {
        let limit = run.limits.time.map(|time| run.begun + time + SLACK);
        if run.end.is_some() && limit.is_some_and(|limit| run.ended > limit) {
            return Some("a run takes longer than it may");
        }
        let error = match run.end.as_ref()? {
            Ok((progress, BackfillEnd::Done)) => {
                let last = run.steps.last().map(|(_, last)| last.sent());
                return [
                    (progress.remaining != Some(0), "a run is done, and rows remain"),
                    (last != Some(progress.sent()), "a run is done, and did not report its last step"),
                ]
                .into_iter()
                .find_map(|(is_wrong, why)| is_wrong.then_some(why));
            }
            Ok((_, BackfillEnd::OutOfTime)) => {
                let is_right = run.limits.time.is_some_and(|time| run.begun + time <= run.ended);
                return (!is_right).then_some("a run is out of time too early");
            }
            Ok(_) => {
                let is_other = |other: &&RunSeen| other.copier != run.copier;
                let mut others = runs.iter().filter(is_other);
                let overlaps = others.any(|other| other.begun <= run.ended && run.begun <= other.ended);
                return (!overlaps).then_some("a run is superseded by no other");
            }
            Err(error) => error,
        };
        let has = |text: &str| error.contains(text);
        let faults: Vec<_> = self.faults_during(run);
        let flushed = faults.iter().filter(|what| **what == What::Flushed).count();
        [
            (has(SECRET), "an error quotes a value"),
            (faults.is_empty(), "a run failed without a fault"),
            (has("57014") || has("25P04"), "a run failed because its rows could not be counted"),
            (has("inbox.sql") != (has("42P01") || has("42703")), "an error names another remedy"),
            (has("grant it SELECT") != has("42501"), "an error names another permission"),
            (has("loses records") && flushed < 2, "a run failed because of losses that did not happen"),
        ]
        .into_iter()
        .find_map(|(is_wrong, why)| is_wrong.then_some(why))
    }

    /// The faults that this run may have seen.
    fn faults_during(&self, run: &RunSeen) -> Vec<What> {
        let faults = lock(&self.faults);
        let may_be_seen = |what: What| !matches!(what, What::Statement(copier, _) if copier != run.copier);
        let seen = faults
            .iter()
            .filter(|fault| may_be_seen(fault.what) && fault.from <= run.ended && run.begun <= fault.until + LATE);
        seen.map(|fault| fault.what).collect()
    }

    /// What is wrong with the counts after each step.
    fn wrong_steps(&self, run: &RunSeen) -> Option<&'static str> {
        let is_uncounted = self.faults_during(run).contains(&What::Statement(run.copier, "57014"));
        let steps: Vec<_> = run.steps.iter().map(|(_, progress)| *progress).collect();
        let is_less = |two: &[BackfillProgress]| {
            two[0].sent() > two[1].sent() || two[0].elapsed > two[1].elapsed || two[0].copied > two[1].copied
        };
        if steps.windows(2).any(is_less) {
            return Some("the counts are less than before");
        }
        let has_unknown = steps.iter().any(|progress| progress.remaining.is_none());
        (has_unknown && !is_uncounted).then_some("the rows were not counted")
    }

    /// What is wrong with the number of rows of each step, and with the time between them.
    fn wrong_pace(&self, run: &RunSeen) -> Option<&'static str> {
        let per_second = self.rows_per_second.get();
        let mut before = (0, None::<Instant>, None::<u64>);
        for (at, progress) in &run.steps {
            let (sent, last, total) = before;
            let rows = progress.sent() - sent;
            if rows > u64::from(per_second) {
                return Some("a step has more rows than a second");
            }
            // Each step but the last is full.
            if last.is_some_and(|last| *at + SLACK < last + Duration::from_secs(1)) {
                return Some("a step is too early");
            }
            let now = progress.remaining.map(|remaining| remaining + progress.sent());
            // A row may be committed meanwhile.
            if total.is_some_and(|total| now.is_none_or(|now| total.abs_diff(now) > 1)) {
                return Some("another number of rows remains");
            }
            before = (progress.sent(), Some(*at), now);
        }
        let Some(Ok((progress, _))) = &run.end else { return None };
        (progress.elapsed > run.ended - run.begun + SLACK).then_some("its time is another one")
    }
}
