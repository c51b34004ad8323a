//! The messages, and SQS as the function reaches it: calls are refused, and replies are lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use history::Rng;
use idempotent_sqs::Message;
use idempotent_sqs::sqs::DeadLetterMessage;
use idempotent_sqs_testing::{Queue, QueueSettings, SendRequest};

use crate::plan::Plan;
use crate::trace::event;

/// SQS with faults. Clones share it.
#[derive(Clone)]
pub struct Faulty(Arc<State>);

struct State {
    queue: Queue,
    rng: Mutex<Rng>,
    faults_ended: Mutex<bool>,
    letters: Mutex<Vec<DeadLetterMessage>>,
}

impl Faulty {
    pub fn new(queue: Queue, rng: Rng) -> Self {
        let (faults_ended, letters) = (Mutex::new(false), Mutex::default());
        Self(Arc::new(State { queue, rng: Mutex::new(rng), faults_ended, letters }))
    }

    /// From now on no call is refused and no reply is lost.
    pub fn end_faults(&self) {
        *lock(&self.0.faults_ended) = true;
    }

    pub fn letters(&self) -> Vec<DeadLetterMessage> {
        lock(&self.0.letters).clone()
    }

    pub fn change_visibility(&self, message: &Message, after: Duration) -> Result<(), String> {
        let fault = self.fault();
        event(|| format!("SQS: {} visible after {after:?}, fault {fault}", &message.id[..8]));
        let change = || self.0.queue.change_visibility(message.receipt_handle.as_deref().unwrap_or_default(), after);
        with(fault, || change().map_err(|refused| refused.to_string()))
    }

    pub fn dead_letter(&self, message: DeadLetterMessage) -> Result<(), String> {
        let fault = self.fault();
        event(|| format!("SQS: dead letter {message:?}, fault {fault}"));
        with(fault, || {
            lock(&self.0.letters).push(message);
            Ok(())
        })
    }

    /// 0: the call is refused. 1: its reply is lost.
    fn fault(&self) -> u64 {
        if *lock(&self.0.faults_ended) { u64::MAX } else { lock(&self.0.rng).draw(0..20) }
    }
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

/// What is known of a message that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The key that its producer gave it.
    pub key: Option<String>,
    pub group: Option<String>,
}

/// The queue of a plan.
pub fn queue(plan: &Plan, seed: u64) -> Queue {
    let name = if plan.fifo { "payments.fifo" } else { "payments" };
    let (visibility_timeout, rate) = (plan.visibility_timeout, f64::from(plan.duplicates) / 1000.0);
    let settings = QueueSettings {
        name: name.into(),
        visibility_timeout,
        concurrent_delivery_rate: rate,
        redelivery_rate: rate,
        ..QueueSettings::default()
    };
    Queue::new(settings, seed)
}

/// The messages of a plan: some have the key and the payload of an earlier one, some only its key, and some no key.
pub fn messages(plan: &Plan, rng: &mut Rng) -> Vec<(Sent, SendRequest)> {
    let mut messages = Vec::new();
    for number in 0..plan.messages {
        // A recent one, so that both are often processed at the same time.
        let before = number - rng.draw(0..4).min(number);
        let (key, payload) = match rng.draw(0..12) {
            0 => (before, before),
            // Processes that do not compare payloads take it for the earlier message.
            1 if plan.fingerprints == 1000 => (before, number),
            _ => (number, number),
        };
        let mut message = SendRequest::new(format!("{{\"payment\":{payload}}}"));
        let key = (rng.draw(0..20) > 0).then(|| format!("pay-{key}"));
        if let Some(key) = &key {
            message = message.attribute("Idempotency-Key", key.clone());
        }
        let group = plan.fifo.then(|| format!("group-{}", rng.draw(0..3)));
        if let Some(group) = &group {
            message = message.group(group.clone()).deduplication_id(format!("send-{number}"));
        }
        messages.push((Sent { key, group }, message));
    }
    messages
}
