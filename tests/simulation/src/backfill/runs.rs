//! Runs of backfills, and what they report.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::Rng;
use idempotent_sqs::RedisStore;
use idempotent_sqs::idempotency::error_chain;
use idempotent_sqs_postgres::backfill::{Backfill, BackfillEnd, BackfillProgress, BackfillStart};
use tokio::time::{Instant, sleep, timeout};

use super::{COPIERS, RUNS_OF_A_PASS, SHORT, World, database, settings, store};
use crate::lock;

/// A process that runs backfills.
pub(super) struct Copier {
    pub(super) number: usize,
    world: Arc<World>,
    backfill: Backfill<RedisStore>,
}

/// Where a run starts, and how long it takes at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) start: BackfillStart,
    pub(super) time: Option<Duration>,
}

/// A run.
#[derive(Clone, Debug)]
pub(super) struct RunSeen {
    /// The number of its copier.
    pub(super) copier: usize,
    pub(super) limits: Limits,
    pub(super) begun: Instant,
    /// When it had returned, or was dropped.
    pub(super) ended: Instant,
    /// What it reported after each step.
    pub(super) steps: Vec<(Instant, BackfillProgress)>,
    /// How it ended. `None` if it was dropped.
    pub(super) end: Option<Result<(BackfillProgress, BackfillEnd), String>>,
}

impl Copier {
    pub(super) fn new(number: usize, world: &Arc<World>) -> Self {
        let store = store(&world.redis, COPIERS[number]);
        let backfill = Backfill::new(store, database(number), settings(world));
        Self { number, world: Arc::clone(world), backfill }
    }

    /// Runs backfills while others do.
    pub(super) async fn contend(self: Arc<Self>, mut rng: Rng, runs: u64) {
        for _ in 0..runs {
            let start = if rng.happens(200) { BackfillStart::Oldest } else { BackfillStart::Watermark };
            let time = rng.happens(500).then(|| rng.ms(100..4000));
            // Its process ends.
            let dropped = if rng.happens(150) { rng.ms(50..3000) } else { Duration::from_secs(3600) };
            let _dropped = timeout(dropped, self.run(Limits { start, time })).await;
            sleep(rng.ms(1..800)).await;
        }
    }

    /// Runs a backfill, and returns its counts and how it ended.
    pub(super) async fn run(&self, limits: Limits) -> (BackfillProgress, Option<BackfillEnd>) {
        let begun = Instant::now();
        let (copier, steps) = (self.number, Arc::new(Mutex::new(Vec::new())));
        let mut running = Running {
            runs: &self.world.runs,
            steps: Arc::clone(&steps),
            seen: RunSeen { copier, limits, begun, ended: begun, steps: Vec::new(), end: None },
        };
        let until = limits.time.map(|time| begun + time);
        let on_progress = |progress: &BackfillProgress| lock(&steps).push((Instant::now(), *progress));
        let outcome = self.backfill.run(limits.start, until, on_progress).await;
        running.seen.end = Some(outcome.map_err(|error| error_chain(&error)));
        match &running.seen.end {
            Some(Ok((progress, end))) => (*progress, Some(*end)),
            _ => (BackfillProgress::default(), None),
        }
    }
}

/// A run that is recorded when it ends, or is dropped.
struct Running<'a> {
    runs: &'a Mutex<Vec<RunSeen>>,
    steps: Arc<Mutex<Vec<(Instant, BackfillProgress)>>>,
    seen: RunSeen,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let steps = std::mem::take(&mut *lock(&self.steps));
        lock(self.runs).push(RunSeen { steps, ended: Instant::now(), ..self.seen.clone() });
    }
}

impl World {
    pub(super) fn run_count(&self) -> usize {
        lock(&self.runs).len()
    }

    /// Short runs until a pass has ended. Nothing fails.
    pub(super) async fn pass(&self, copier: &Copier, when: &str) -> Option<String> {
        for _ in 0..RUNS_OF_A_PASS {
            let limits = Limits { start: BackfillStart::Watermark, time: Some(SHORT) };
            match copier.run(limits).await.1 {
                Some(BackfillEnd::Done) => return None,
                Some(BackfillEnd::OutOfTime) => {}
                end => return Some(format!("{when}: a run ended with {end:?}: {:?}", lock(&self.runs).last())),
            }
        }
        Some(format!("{when}: a pass has not ended after {RUNS_OF_A_PASS} runs"))
    }
}
