//! The work: one request to the receiver. Each run is recorded, as the work knows it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use history::{Hex, Rng, monotonic_us};
use idempotent_sqs::idempotency::{MAX_RESULT_BYTES, WorkErrorKind};
use idempotent_sqs::sqs::MessageAttribute;
use idempotent_sqs::{Claim, Message, Work, WorkError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::lock;
use crate::network::{self, address};
use crate::plan::Plan;
use crate::producers::payment;
use crate::receiver::{self, Reply, Request};

/// A run of the work.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub key: String,
    pub fence: u64,
    pub fingerprint: Hex<16>,
    pub is_recovery: bool,
    pub message_id: String,
    /// The body that it was passed, and the attributes.
    pub input: String,
    pub attributes: BTreeMap<String, MessageAttribute>,
    pub receiver: &'static str,
    /// The process, as in the history of its calls.
    pub process: String,
    /// When it began, µs by the monotonic clock.
    pub began_us: u64,
    /// When it ran last, µs by the monotonic clock.
    pub ran_us: u64,
    /// What it returned. `None` if it panicked, was cancelled, or its process ended.
    pub returned: Option<Result<(), WorkErrorKind>>,
    /// The text of the error that it returned, with its causes.
    pub error: Option<String>,
    /// Number of runs of its process when it began, with this one.
    pub running: usize,
    /// The same, of those with its receiver.
    pub at_receiver: usize,
}

impl Attempt {
    /// Whether it returned that it had its effect.
    pub fn is_done(&self) -> bool {
        self.returned == Some(Ok(()))
    }

    /// Whether it returned that it had no effect.
    pub fn is_clean(&self) -> bool {
        matches!(self.returned, Some(Err(kind)) if kind != WorkErrorKind::Uncertain)
    }

    /// Whether it returned that its receiver is unavailable.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.returned, Some(Err(WorkErrorKind::Unavailable { .. })))
    }
}

/// The runs of all processes. Clones share it.
pub type Attempts = Arc<Mutex<Vec<Attempt>>>;

/// The work of a process.
pub struct Call {
    /// The process of the function.
    pub client: String,
    /// The process in the history of its calls.
    pub process: String,
    /// How often of 1000 times it panics, after its request was sent.
    pub panics: (u64, Mutex<Rng>),
    pub attempts: Attempts,
    pub plan: Plan,
    /// Number of runs that have not ended, by receiver.
    pub running: [AtomicUsize; RECEIVERS.len()],
}

/// The names of the receivers. They share a host.
pub const RECEIVERS: [&str; 2] = ["first", "second"];

/// What the work with this claim returns. Plans with choices for objects have results of sizes at which another place
/// keeps them.
pub fn receipt(plan: &Plan, fence: u64) -> Vec<u8> {
    let mut receipt = format!("receipt of {fence}").into_bytes();
    if let Some(objects) = &plan.objects {
        let most = objects.result_max_bytes;
        // It is a time in µs, and often in whole ms.
        let length = match (fence / 1000 + fence % 1000) % 16 {
            0..3 => most,
            3..6 => most + 1,
            6..10 => 3 * most,
            10 => MAX_RESULT_BYTES,
            11 => MAX_RESULT_BYTES + 1,
            _ => receipt.len(),
        };
        receipt.resize(length, b'.');
    }
    receipt
}

/// An address in the errors of the work.
pub const ADDRESS: &str = "https://user:secret@host/";

/// The text of an error that has causes, and its whole reason. The last cause is already in the line.
const NOTHING_DONE: [&str; 2] = ["the receiver did nothing", "the receiver did nothing: its queue is full"];

/// An error with this text, and its cause.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Caused(&'static str, #[source] Option<Box<Self>>);

/// Why the receiver did nothing.
fn nothing_done() -> Caused {
    let cause = |text, cause| Caused(text, Some(Box::new(cause)));
    cause(NOTHING_DONE[0], cause("its queue is full", Caused("full", None)))
}

/// The reason that the log should have for this error of the work.
fn reason(error: &WorkError) -> String {
    let text = error.to_string();
    if text == NOTHING_DONE[0] { NOTHING_DONE[1].to_owned() } else { text }
}

/// Why the receiver rejects a payload: an error with characters that SQS does not accept, an address, and many bytes.
fn rejected() -> String {
    format!("the receiver rejects this payload: \u{fffe}\u{ffff}\0 at ({ADDRESS} {}", "ö".repeat(600))
}

/// The receiver of a payment, of so many.
pub fn receiver(payment: u64, receivers: u64) -> &'static str {
    RECEIVERS[usize::try_from(payment % receivers).unwrap_or_default()]
}

impl Call {
    fn receiver_of(&self, message: &Message) -> &'static str {
        receiver(payment(message.body()), self.plan.receivers)
    }

    fn running(&self, receiver: &str) -> &AtomicUsize {
        &self.running[usize::from(receiver != RECEIVERS[0])]
    }

    async fn call(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        const TIMEOUT: Duration = Duration::from_millis(800);
        let connected = timeout(TIMEOUT, network::connect(&address(receiver::NAME, &self.client))).await;
        let mut stream = connected.map_err(WorkError::unavailable)?.map_err(WorkError::unavailable)?;
        let (key, input) = (claim.key().stored().into_owned(), message.body().to_owned());
        let request: Request = (key, claim.fence().0, claim.is_recovery(), input);
        let request = serde_json::to_string(&request).map_err(WorkError::permanent)? + "\n";
        let mut reply = String::new();
        let exchange = async {
            stream.write_all(request.as_bytes()).await?;
            let (rate, rng) = &self.panics;
            let panics = rng.lock().unwrap_or_else(PoisonError::into_inner).happens(*rate);
            assert!(!panics, "the work panics");
            stream.read_to_string(&mut reply).await
        };
        timeout(2 * TIMEOUT, exchange).await.map_err(WorkError::uncertain)?.map_err(WorkError::uncertain)?;
        let (status, after_s): Reply = serde_json::from_str(&reply).map_err(WorkError::uncertain)?;
        match (&*status, after_s.map(Duration::from_secs)) {
            ("done", _) => Ok(receipt(&self.plan, claim.fence().0)),
            ("unavailable", Some(after)) => Err(WorkError::unavailable_after("the receiver is overloaded", after)),
            ("unavailable", None) => Err(WorkError::unavailable("the receiver is overloaded")),
            ("busy", Some(after)) => Err(WorkError::busy_after("the receiver processes another request", after)),
            ("busy", None) => Err(WorkError::busy("the receiver processes another request")),
            ("failed", Some(after)) => Err(WorkError::retryable_after(nothing_done(), after)),
            ("failed", None) => Err(WorkError::retryable(nothing_done())),
            _ => Err(WorkError::permanent(rejected())),
        }
    }

    fn begin(&self, claim: &Claim, message: &Message) -> usize {
        let receiver = self.receiver_of(message);
        let at_receiver = self.running(receiver).fetch_add(1, Ordering::Relaxed) + 1;
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.push(Attempt {
            key: claim.key().stored().into_owned(),
            fence: claim.fence().0,
            fingerprint: Hex(*claim.request().fingerprint.as_bytes()),
            is_recovery: claim.is_recovery(),
            message_id: message.id.clone(),
            input: message.body().to_owned(),
            attributes: message.attributes.clone().into_iter().collect(),
            receiver,
            process: self.process.clone(),
            began_us: monotonic_us(),
            ran_us: monotonic_us(),
            returned: None,
            error: None,
            running: self.running.iter().map(|running| running.load(Ordering::Relaxed)).sum(),
            at_receiver,
        });
        attempts.len() - 1
    }
}

/// A run that has not ended: it may also be dropped, or panic.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Work<Message> for Call {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let number = self.begin(claim, message);
        let _running = Running(self.running(self.receiver_of(message)));
        let mut call = pin!(self.call(claim, message));
        let result = poll_fn(|cx| {
            lock(&self.attempts)[number].ran_us = monotonic_us();
            call.as_mut().poll(cx)
        });
        let result = result.await;
        let attempt = &mut lock(&self.attempts)[number];
        attempt.returned = Some(result.as_ref().map(|_| ()).map_err(WorkError::kind));
        attempt.error = result.as_ref().err().map(reason);
        result
    }

    /// Panics for a message without a body, which then has the default receiver.
    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        self.receiver_of(message)
    }
}
