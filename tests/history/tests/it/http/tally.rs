//! What the services did.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use harness::torture::tally::lock;
use history::Effect;
use idempotent_sqs_http::RequestReport;
use tokio::time::Instant;

use super::format::Acquired;
use super::handler::{Ending, Plan, Run};
use super::kind::Kind;
use super::objects::Objects;
use super::response::Form;

/// What the handlers of all services count.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: Mutex<Vec<Run>>,
    pub(crate) effects: Mutex<Vec<Effect>>,
    /// Responses that are kept as objects.
    pub(crate) objects: Arc<Objects>,
    /// What the store answered to the acquires of each request.
    pub(crate) acquires: Mutex<Vec<(usize, Acquired, Instant)>>,
    /// The requests whose clients got the head of a response.
    pub(crate) heads: Mutex<BTreeSet<usize>>,
    /// What the layers reported.
    pub(crate) reports: Mutex<Vec<(Kind, RequestReport)>>,
}

impl Tally {
    /// The body of this response is read. A layer that has no use for it must not wait for it.
    pub(crate) fn read(&self, plan: &Plan, kind: Kind, ending: Ending) {
        let Ending::Answer(status) = ending else { return };
        let is_early = !lock(&self.heads).contains(&plan.request);
        if is_early && (!kind.keeps(status) || plan.is_body_omitted(kind, status) && plan.form != Form::Slow) {
            let mut runs = lock(&self.runs);
            let run = runs.iter_mut().find(|run| run.plan.request == plan.request).unwrap();
            run.faults.push("its body was read before its head was sent");
        }
    }
}
