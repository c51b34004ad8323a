//! SQS as the function reaches it: calls are refused, and replies are lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use history::{Rng, monotonic_us};
use idempotent_sqs::Message;
use idempotent_sqs::sqs::{AttributeValue, DeadLetter, DeadLetterMessage};
use idempotent_sqs_testing::{Queue, QueueSettings};

use crate::plan::Plan;
use crate::producers::NUMBER;
use crate::trace::event;

/// SQS with faults. Clones share it.
#[derive(Clone)]
pub struct Faulty(Arc<State>);

struct State {
    queue: Queue,
    rng: Mutex<Rng>,
    faults_ended: Mutex<bool>,
    letters: Mutex<Vec<Letter>>,
    changes: Mutex<Vec<VisibilityChange>>,
}

/// A message that the dead-letter queue accepted.
#[derive(Clone, Debug)]
pub struct Letter {
    pub message: DeadLetterMessage,
    /// The message that it was.
    pub message_id: String,
    /// `None` if the message had no room for it.
    pub reason: Option<DeadLetter>,
    /// Whether the function got the reply.
    pub is_replied: bool,
    /// When, µs by the monotonic clock.
    pub at_us: u64,
}

/// A call that changes the visibility timeout of a message, also one that is refused.
#[derive(Clone, Debug)]
pub struct VisibilityChange {
    pub receipt_handle: String,
    pub after: Duration,
    /// When, µs by the monotonic clock.
    pub at_us: u64,
}

impl Faulty {
    pub fn new(queue: Queue, rng: Rng) -> Self {
        let (letters, changes) = (Mutex::default(), Mutex::default());
        Self(Arc::new(State { queue, rng: Mutex::new(rng), faults_ended: Mutex::new(false), letters, changes }))
    }

    /// From now on no call is refused and no reply is lost.
    pub fn end_faults(&self) {
        *lock(&self.0.faults_ended) = true;
    }

    pub fn faults_ended(&self) -> bool {
        *lock(&self.0.faults_ended)
    }

    pub fn letters(&self) -> Vec<Letter> {
        lock(&self.0.letters).clone()
    }

    pub fn changes(&self) -> Vec<VisibilityChange> {
        lock(&self.0.changes).clone()
    }

    pub fn change_visibility(&self, message: &Message, after: Duration) -> Result<(), String> {
        let fault = self.fault(20);
        event(|| format!("SQS: {} visible after {after:?}, fault {fault}", &message.id[..8]));
        let receipt_handle = message.receipt_handle.clone().unwrap_or_default();
        let reply = with(fault, || {
            self.0.queue.change_visibility(&receipt_handle, after).map_err(|refused| refused.to_string())
        });
        lock(&self.0.changes).push(VisibilityChange { receipt_handle, after, at_us: monotonic_us() });
        reply
    }

    pub fn dead_letter(&self, message: DeadLetterMessage) -> Result<(), String> {
        let fault = self.fault(6);
        event(|| format!("SQS: dead letter {message:?}, fault {fault}"));
        with(fault, || {
            let reason = reason(&message);
            let message_id =
                reason.as_ref().map_or_else(|| self.by_number(&message), |reason| reason.message_id.clone());
            lock(&self.0.letters).push(Letter {
                message,
                message_id,
                reason,
                is_replied: fault != 1,
                at_us: monotonic_us(),
            });
            Ok(())
        })
    }

    /// The message of a dead letter without a reason.
    fn by_number(&self, letter: &DeadLetterMessage) -> String {
        let number = letter.attributes.get(NUMBER).map(|attribute| &attribute.value);
        let Some(AttributeValue::Text(number)) = number else { panic!("a dead letter has no reason: {letter:?}") };
        let number: usize = number.parse().expect("this is the number of a message");
        self.0.queue.history()[number].message_ids[0].clone()
    }

    /// 0: the call is refused. 1: its reply is lost. Each is one of so many.
    fn fault(&self, many: u64) -> u64 {
        if self.faults_ended() { u64::MAX } else { lock(&self.0.rng).draw(0..many) }
    }
}

fn reason(message: &DeadLetterMessage) -> Option<DeadLetter> {
    let AttributeValue::Text(text) = &message.attributes.get(DeadLetter::ATTRIBUTE)?.value else { return None };
    Some(serde_json::from_str(text).expect("the function sends valid JSON"))
}

fn with(fault: u64, call: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    if fault == 0 {
        return Err("throttled".to_owned());
    }
    let reply = call();
    if fault == 1 { Err("no reply".to_owned()) } else { reply }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queue of a plan.
pub fn queue(plan: &Plan) -> Queue {
    let name = if plan.fifo { "payments.fifo" } else { "payments" };
    let (visibility_timeout, rate) = (plan.visibility_timeout, f64::from(plan.duplicates) / 1000.0);
    let settings = QueueSettings {
        name: name.into(),
        visibility_timeout,
        concurrent_delivery_rate: rate,
        redelivery_rate: rate,
        ..QueueSettings::default()
    };
    Queue::new(settings, plan.seed)
}
