//! The receiver of the work: a service that counts its effects.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use history::{Rng, monotonic_us};
use tokio::time::sleep;

use crate::network;
use crate::plan::Plan;
use crate::producers::{LARGE, payment};
use crate::trace::event;
use crate::work;

pub const NAME: &str = "receiver";

/// A request: key, fence, whether it is a recovery, and the input of the work.
pub type Request = (String, u64, bool, String);

/// A reply: a status, and the delay that it asks for, s.
pub type Reply = (String, Option<u64>);

/// An effect, and the payment that it made.
#[derive(Clone, Debug)]
pub struct Counted {
    pub effect: history::Effect,
    pub payment: u64,
}

/// A service that sometimes fails. Clones share it.
#[derive(Clone)]
pub struct Receiver(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    plan: Plan,
    faults_ended: bool,
    effects: Vec<Counted>,
}

/// What it does with a request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Done,
    /// The work is done, and the stream ends without a reply.
    DoneWithoutReply,
    /// The stream ends, and the work is not done.
    NoReply,
    /// Asks for a delay, s.
    Unavailable(Option<u64>),
    Busy(Option<u64>),
    Failed(Option<u64>),
    Permanent,
}

/// Whether this payment can never succeed.
pub fn is_poison(plan: &Plan, payment: u64) -> bool {
    if plan.has_large && payment == LARGE {
        return true;
    }
    let mut hash = DefaultHasher::new();
    (plan.seed, payment).hash(&mut hash);
    hash.finish().is_multiple_of(plan.poison)
}

/// How much longer a receiver takes that is unavailable.
const SLOW: Duration = Duration::from_millis(700);

/// Whether the receiver of this payment is unavailable at this time. It is for some seconds, again and again.
fn is_unavailable(plan: &Plan, payment: u64, at_us: u64) -> bool {
    const PERIOD_US: u64 = 3_000_000;
    let mut hash = DefaultHasher::new();
    (plan.seed, work::receiver(payment, plan.receivers), at_us / PERIOD_US).hash(&mut hash);
    plan.has_outages && hash.finish().is_multiple_of(2)
}

impl Receiver {
    pub fn new(rng: Rng, plan: &Plan) -> Self {
        let (faults_ended, effects) = (false, Vec::new());
        Self(Arc::new(Mutex::new(State { rng, plan: plan.clone(), faults_ended, effects })))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the receiver does all work that can succeed.
    pub fn end_faults(&self) {
        self.lock().faults_ended = true;
    }

    pub fn effects(&self) -> Vec<Counted> {
        self.lock().effects.clone()
    }

    /// Accepts requests until the receiver is stopped.
    pub fn listen(&self) {
        let receiver = self.clone();
        network::serve(NAME, move |request| {
            let receiver = receiver.clone();
            async move { receiver.answer(&request).await }
        });
    }

    async fn answer(&self, request: &str) -> Option<String> {
        let (key, fence, is_recovery, body): Request = serde_json::from_str(request).ok()?;
        let payment = payment(&body);
        let (answer, before, after) = {
            let mut state = self.lock();
            let work_ms = if state.faults_ended { 20 } else { state.plan.work_ms };
            let mut answer = state.choose(payment);
            let (mut before, after) = (state.rng.ms(0..work_ms), state.rng.ms(0..work_ms));
            if !state.faults_ended && is_unavailable(&state.plan, payment, monotonic_us()) {
                (answer, before) = (Answer::Unavailable(None), before + SLOW);
            }
            (answer, before, after)
        };
        sleep(before).await;
        event(|| format!("{NAME}: {answer:?} for {request:?}"));
        if let Answer::Done | Answer::DoneWithoutReply = answer {
            let effect = history::Effect { key, fence, is_recovery, at_us: monotonic_us() };
            self.lock().effects.push(Counted { effect, payment });
        }
        sleep(after).await;
        let (status, after_s) = match answer {
            Answer::Done => ("done", None),
            Answer::DoneWithoutReply | Answer::NoReply => return None,
            Answer::Unavailable(after_s) => ("unavailable", after_s),
            Answer::Busy(after_s) => ("busy", after_s),
            Answer::Failed(after_s) => ("failed", after_s),
            Answer::Permanent => ("permanent", None),
        };
        serde_json::to_string(&(status, after_s)).ok()
    }
}

impl State {
    fn choose(&mut self, payment: u64) -> Answer {
        let is_done = !self.rng.happens(self.plan.failures);
        let choice = self.rng.draw(0..6);
        let longest_s = if self.plan.has_extras && payment.is_multiple_of(7) { 50_000 } else { 60 };
        let after_s = *self.rng.pick(&[None, None, Some(0), Some(3), Some(longest_s)]);
        match choice {
            _ if is_poison(&self.plan, payment) => Answer::Permanent,
            _ if self.faults_ended || is_done => Answer::Done,
            0 if !self.plan.is_quiet => Answer::DoneWithoutReply,
            1 if !self.plan.is_quiet => Answer::NoReply,
            2 => Answer::Unavailable(after_s),
            3 => Answer::Busy(after_s),
            _ => Answer::Failed(after_s),
        }
    }
}
