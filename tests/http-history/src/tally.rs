//! What the services did.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::torture::tally::lock;
use history::Effect;
use idempotent_sqs_http::EmfMetrics;
use tokio::time::{Instant, sleep_until};

use crate::handler::{Ending, Plan};
use crate::kind::Kind;
use crate::objects::Objects;
use crate::reported::Reported;
use crate::runs::{Run, UnprotectedRun};
use crate::store::Asked;

/// Pause between two looks at the clock.
const PULSE: Duration = Duration::from_millis(5);

/// What the handlers of all services count.
#[derive(Debug, Default)]
pub struct Tally {
    pub(crate) runs: Mutex<Vec<Run>>,
    pub(crate) unprotected: Mutex<Vec<UnprotectedRun>>,
    pub(crate) effects: Mutex<Vec<Effect>>,
    /// Responses that are kept as objects.
    pub(crate) objects: Arc<Objects>,
    /// The acquires of all requests, one after another.
    pub(crate) asked: Mutex<Vec<Asked>>,
    pub(crate) acquires: AtomicUsize,
    /// The requests whose clients got the head of a response.
    pub(crate) heads: Mutex<BTreeSet<usize>>,
    /// How late the machine was at most.
    pub(crate) late: Mutex<Duration>,
    /// Prints what is reported, if it is set.
    pub(crate) metrics: Option<EmfMetrics>,
    /// What the layers reported.
    pub(crate) reports: Mutex<Vec<Reported>>,
}

impl Tally {
    /// Of services that print what they report as metrics.
    #[must_use]
    pub fn printing(metrics: EmfMetrics) -> Self {
        Self { metrics: Some(metrics), ..Self::default() }
    }

    /// Notes how late the machine is, without end.
    pub(crate) async fn watch_machine(self: Arc<Self>) {
        loop {
            let due = Instant::now() + PULSE;
            sleep_until(due).await;
            let mut late = lock(&self.late);
            *late = due.elapsed().max(*late);
        }
    }

    /// The number of the next acquire, from 1.
    pub(crate) fn next_acquire(&self) -> usize {
        self.acquires.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The body of this response is read. A layer that has no use for it must not wait for it.
    pub(crate) fn read(&self, plan: &Plan, kind: Kind, ending: Ending) {
        let Ending::Answer(status) = ending else { return };
        let is_early = !lock(&self.heads).contains(&plan.request);
        if is_early && (!kind.keeps(status) || plan.is_body_omitted(kind, status) && !plan.is_chunked()) {
            let mut runs = lock(&self.runs);
            let run = runs.iter_mut().find(|run| run.plan.request == plan.request).unwrap();
            run.faults.push("its body was read before its head was sent");
        }
    }
}
