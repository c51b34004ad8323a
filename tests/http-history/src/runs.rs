//! The runs of the handlers, and how they ended.

use std::sync::Arc;

use harness::torture::tally::lock;
use history::{Effect, monotonic_us};
use idempotent_sqs::idempotency::Fence;
use idempotent_sqs::{Claim, Deadline, Key};
use tokio::time::Instant;

use crate::handler::{Ending, Plan, Runner};
use crate::kind::Kind;
use crate::service::{GRACE, TIMEOUT};
use crate::tally::Tally;

/// One run of the handler.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// The service that ran it.
    pub(crate) kind: Kind,
    /// Stored form of the key of the record.
    pub(crate) key: String,
    pub(crate) fence: u64,
    /// Number of the attempt.
    pub(crate) attempt: u8,
    pub(crate) is_recovery: bool,
    /// How it ended. `None` if it was cancelled.
    pub(crate) ended: Option<Ending>,
    /// Whether its deadline was near when it ended.
    pub(crate) is_late: bool,
    /// When it returned, panicked or was cancelled.
    pub(crate) over_at: Option<Instant>,
    /// What was wrong with its request and its times.
    pub(crate) faults: Vec<&'static str>,
}

impl Run {
    /// Whether no other attempt is made after it.
    pub(crate) fn is_last(&self) -> bool {
        self.attempt >= self.kind.keeping().max_attempts
    }

    /// Whether it may have been cancelled at its deadline. With little time left, half of it passes unnoticed before
    /// the whole has passed, after which a slow body is no stream.
    pub(crate) fn may_be_cut(&self) -> bool {
        match self.ended {
            None => true,
            Some(Ending::Answer(_)) => self.plan.is_chunked() && self.is_late,
            Some(_) => false,
        }
    }
}

/// A run of the handler without the store.
#[derive(Clone, Debug)]
pub(crate) struct UnprotectedRun {
    /// Number of the request.
    pub(crate) request: usize,
    pub(crate) from: Instant,
    /// How it ended. `None` if it was cancelled.
    pub(crate) ended: Option<Ending>,
}

/// What the layer tells a handler or a work.
pub(crate) struct Attempt {
    pub(crate) key: Key,
    pub(crate) fence: Fence,
    pub(crate) number: u8,
    pub(crate) is_recovery: bool,
    pub(crate) ends: Instant,
}

impl Attempt {
    pub(crate) fn of(claim: &Claim, is_recovery: bool) -> Self {
        let (key, fence, number) = (claim.key().clone(), claim.fence(), claim.attempt());
        Self { key, fence, number, is_recovery, ends: claim.ends() }
    }
}

/// A run that records how it ends.
pub(crate) struct Running {
    tally: Arc<Tally>,
    at: usize,
    /// When it must have ended.
    ends: Instant,
    spawns: bool,
}

impl Running {
    pub(crate) fn begin(
        runner: &Runner,
        plan: Plan,
        attempt: &Attempt,
        invocation: Option<Deadline>,
        is_original: bool,
    ) -> Self {
        let (Runner { tally, kind, .. }, ends) = (runner.clone(), attempt.ends);
        let is_too_late = invocation.is_some_and(|invocation| ends > invocation.end);
        let is_too_long = ends > Instant::now() + TIMEOUT * 3 / 4;
        let faults = [
            (is_too_late, "it may run after its invocation"),
            (is_too_long, "it may run longer than its timeout"),
            (!is_original, "its request was changed"),
        ];
        let run = Run {
            plan,
            kind,
            key: attempt.key.stored().into_owned(),
            fence: attempt.fence.0,
            attempt: attempt.number,
            is_recovery: attempt.is_recovery,
            ended: None,
            is_late: false,
            over_at: None,
            faults: faults.iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, fault)| *fault).collect(),
        };
        let mut runs = lock(&tally.runs);
        let at = runs.len();
        runs.push(run);
        drop(runs);
        Self { tally, at, ends, spawns: kind.spawns }
    }

    pub(crate) fn take_effect(&self) {
        let (now, at_us) = (Instant::now(), monotonic_us());
        let mut runs = lock(&self.tally.runs);
        let run = &mut runs[self.at];
        // The deadline was checked just before. A busy machine needs time in between.
        if now > self.ends + GRACE {
            run.faults.push("an effect after the deadline");
        }
        let (key, fence, is_recovery) = (run.key.clone(), run.fence, run.is_recovery);
        lock(&self.tally.effects).push(Effect { key, fence, is_recovery, at_us });
    }

    pub(crate) fn end(&self, ending: Ending) {
        let run = &mut lock(&self.tally.runs)[self.at];
        (run.ended, run.is_late) = (Some(ending), Instant::now() + 2 * GRACE > self.ends);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut runs = lock(&self.tally.runs);
        let run = &mut runs[self.at];
        run.over_at = Some(Instant::now());
        // Without a task of its own, a run is cancelled with its request.
        if self.spawns && run.ended.is_none() && Instant::now() < self.ends {
            run.faults.push("cancelled before its deadline");
        }
    }
}
