//! What all owners share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::torture::tally::lock;
use history::inbox::Class;
use history::{Rng, monotonic_us};
use tokio::task::JoinSet;

use super::losses::Losses;
use super::operator::Operator;
use super::owner::Owner;
use super::plan::{OnFailure, Plan, Rival};
use super::tally::{Message, Overdue, Tally};
use super::work::Input;

/// How late the reply to a rollback is.
pub(crate) const LATE: Duration = Duration::from_millis(200);

/// How long a transaction is watched that should be over.
const WATCHED: Duration = Duration::from_secs(4);

pub(crate) struct World {
    pub(crate) tally: Tally,
    pub(crate) operator: Operator,
    pub(crate) losses: Losses,
    /// Of the database server.
    pub(crate) port: u16,
    /// Nothing listens here.
    pub(crate) closed_port: u16,
    /// The message that another owner should deliver next.
    hint: Mutex<Option<Message>>,
    /// Messages that failed permanently.
    failed: Mutex<Vec<Message>>,
    /// Owners that deliver a message while another one is at work.
    rivals: Mutex<Vec<Arc<Owner>>>,
    watchers: Mutex<JoinSet<()>>,
}

impl World {
    pub(crate) fn new(operator: Operator, losses: Losses, port: u16, closed_port: u16) -> Self {
        let (tally, hint, watchers) = (Tally::default(), Mutex::default(), Mutex::default());
        let (failed, rivals) = (Mutex::default(), Mutex::default());
        Self { tally, operator, losses, port, closed_port, hint, failed, rivals, watchers }
    }

    /// Number of deliveries so far.
    pub(crate) fn deliveries(&self) -> usize {
        lock(&self.tally.sent).len()
    }

    /// Does something beside a work.
    pub(crate) fn watch(&self, watcher: impl Future<Output = ()> + Send + 'static) {
        lock(&self.watchers).spawn(watcher);
    }

    /// Waits for all that is done beside works.
    pub(crate) async fn join_watchers(&self) {
        let watchers = std::mem::take(&mut *lock(&self.watchers));
        watchers.join_all().await;
    }

    /// Another owner should deliver this message while it is at work.
    pub(crate) fn hint(&self, message: &Message) {
        *lock(&self.hint) = Some(message.clone());
    }

    /// The message to deliver now, if there is one in this namespace.
    pub(crate) fn hinted(&self, namespace: &str, rng: &mut Rng) -> Option<Message> {
        let mut hint = lock(&self.hint);
        let is_own = hint.as_ref().is_some_and(|message| message.namespace == namespace);
        if !is_own {
            return None;
        }
        // Two owners may follow it.
        if rng.happens(500) { hint.take() } else { hint.clone() }
    }

    /// This message has failed permanently.
    pub(crate) fn has_failed(&self, message: &Message) {
        lock(&self.failed).push(message.clone());
    }

    /// A message of this namespace that failed permanently.
    pub(crate) fn failed(&self, namespace: &str) -> Option<Message> {
        let mut failed = lock(&self.failed);
        let at = failed.iter().rposition(|message| message.namespace == namespace)?;
        Some(failed.swap_remove(at))
    }

    /// Adds an owner that delivers messages while others are at work. None are left in the end.
    pub(crate) fn set_rivals(&self, owners: Vec<Arc<Owner>>) {
        *lock(&self.rivals) = owners;
    }

    /// Another owner delivers this key now, unless all are at work.
    pub(crate) fn send_rival(self: &Arc<Self>, message: &Message, rival: Rival) {
        let owner = {
            let mut rivals = lock(&self.rivals);
            let at = rivals.iter().position(|owner| owner.kind.namespace == message.namespace);
            at.map(|at| rivals.swap_remove(at))
        };
        let Some(owner) = owner else { return };
        let payload = if rival.has_other_payload { 1 - message.payload } else { message.payload };
        let (world, message) = (Arc::clone(self), Message { payload, ..message.clone() });
        let plan = Plan { case: rival.case, ..Plan::SUCCEED };
        self.watch(async move {
            owner.deliver(&message, plan).await;
            lock(&world.rivals).push(owner);
        });
    }

    /// A work fails. If the reply to its rollback is late, another owner has time to do the work before that is
    /// recorded.
    pub(crate) fn fail(&self, class: Class, on_failure: OnFailure, input: &Input) {
        if class == Class::Permanent && on_failure == OnFailure::Late {
            input.front.delay_replies(LATE);
            self.hint(&input.message);
        }
    }

    /// A transaction has to be over at this time.
    pub(crate) async fn expect_over(&self, what: &'static str, transaction: i64, due_us: u64) {
        let left = Duration::from_micros(due_us.saturating_sub(monotonic_us()));
        let is_over = self.operator.until_over(transaction, left + WATCHED).await;
        let over_us = if is_over { monotonic_us() } else { u64::MAX };
        lock(&self.tally.overdue).push(Overdue { what, due_us, over_us });
    }
}
