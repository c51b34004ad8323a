//! SQS as the function reaches it: the AWS SDK calls a host of the network, which refuses calls, is slow, hangs, and
//! loses replies.
//!
//! - `client`: the SDK of a process, and the calls that it sends
//! - `letter`: messages that the dead-letter queue accepted
//! - `too_long`: visibility timeouts that SQS refuses

mod client;
mod letter;
mod too_long;

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::sqs::{Call, reply, run};
use history::Rng;
use idempotent_sqs_testing::{Queue, SqsError};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lock;
use crate::network;
use crate::trace::event;

pub(crate) use client::endpoint;
pub use client::{SdkCall, VisibilityChange};
pub use letter::Letter;
pub use too_long::is_too_long;

/// The host.
pub const NAME: &str = "sqs";

/// A call as the network carries it: action, input, and its number among the calls that were sent.
type Request = (String, Value, usize);

/// A reply: status, body, and the number of the letter that was accepted.
type Reply = (u16, Value, Option<usize>);

/// SQS with faults. Clones share it.
#[derive(Clone)]
pub struct Sqs(Arc<State>);

struct State {
    /// The queue of the function, and its dead-letter queue.
    queues: [Queue; 2],
    rng: Mutex<Rng>,
    faults_ended: AtomicBool,
    letters: Mutex<Vec<Letter>>,
    calls: Mutex<Vec<SdkCall>>,
    refusals: Mutex<Vec<String>>,
    /// Whether messages were received long before their invocations.
    has_rare: bool,
    refused: Mutex<Vec<VisibilityChange>>,
}

/// A fault of a call.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Throttled,
    InternalFailure,
    /// It has no effect and no reply, and the stream stays open.
    HoldRequest,
    /// It takes effect after this time.
    Slow(Duration),
    /// It takes effect, and the stream ends without a reply.
    LoseReply,
    /// It takes effect and has no reply, and the stream stays open.
    HoldReply,
}

/// Codes of errors that say that the caller's parameters are wrong whatever the state of the queue is.
const INVALID: [&str; 6] = [
    "BatchEntryIdsNotDistinct",
    "EmptyBatchRequest",
    "InvalidBatchEntryId",
    "InvalidMessageContents",
    "MissingParameter",
    "TooManyEntriesInBatchRequest",
];

impl Sqs {
    pub fn new(queue: Queue, dead_letter_queue: Queue, rng: Rng, has_rare: bool) -> Self {
        Self(Arc::new(State {
            queues: [queue, dead_letter_queue],
            rng: Mutex::new(rng),
            faults_ended: AtomicBool::new(false),
            letters: Mutex::default(),
            calls: Mutex::default(),
            refusals: Mutex::default(),
            has_rare,
            refused: Mutex::default(),
        }))
    }

    /// From now on every call has a reply.
    pub fn end_faults(&self) {
        self.0.faults_ended.store(true, Ordering::Relaxed);
    }

    pub fn faults_ended(&self) -> bool {
        self.0.faults_ended.load(Ordering::Relaxed)
    }

    pub fn letters(&self) -> Vec<Letter> {
        lock(&self.0.letters).clone()
    }

    pub fn calls(&self) -> Vec<SdkCall> {
        lock(&self.0.calls).clone()
    }

    /// Calls, or entries of them, whose parameters SQS does not accept.
    pub fn refusals(&self) -> Vec<String> {
        lock(&self.0.refusals).clone()
    }

    /// Changes whose replies say that SQS does not accept them, because their messages were received too long ago.
    pub fn refused(&self) -> Vec<VisibilityChange> {
        lock(&self.0.refused).clone()
    }

    /// The URL of the dead-letter queue, or of the function's own queue.
    pub fn dead_letter_queue_url(&self, is_own: bool) -> String {
        self.0.queues[usize::from(!is_own)].url()
    }

    /// Accepts calls.
    pub fn listen(&self) {
        let sqs = self.clone();
        network::serve(NAME, move |request| {
            let sqs = sqs.clone();
            async move { sqs.answer(&request).await }
        });
    }

    async fn answer(&self, request: &str) -> Option<String> {
        let (action, input, number): Request = serde_json::from_str(request).ok()?;
        let fault = self.fault(&action);
        event(|| format!("{NAME}: {action} {input}, fault {fault:?}"));
        let call = Call { action, input };
        let (output, letter) = match fault {
            Some(Fault::Throttled) => (Err(SqsError { code: "RequestThrottled", reason: "Too many requests." }), None),
            Some(Fault::InternalFailure) => {
                return encoded(&(500, json!({ "__type": "com.amazonaws.sqs#InternalFailure" }), None));
            }
            Some(Fault::HoldRequest) => return pending().await,
            Some(Fault::Slow(delay)) => {
                sleep(delay).await;
                self.run(call, number).await
            }
            Some(Fault::LoseReply | Fault::HoldReply) | None => self.run(call, number).await,
        };
        match fault {
            Some(Fault::LoseReply) => return None,
            Some(Fault::HoldReply) => return pending().await,
            _ => {}
        }
        if self.0.has_rare
            && let Ok(output) = &output
        {
            lock(&self.0.refused).extend(too_long::refused(&lock(&self.0.calls)[number], output));
        }
        let (status, body) = reply(output);
        encoded(&(status, body, letter))
    }

    /// The output of the call, and the number of the letter that it sent.
    async fn run(&self, mut call: Call, number: usize) -> (Result<Value, SqsError>, Option<usize>) {
        let too_long = if self.0.has_rare { too_long::take(&mut call) } else { Vec::new() };
        if !too_long.is_empty() && call.input["Entries"] == json!([]) {
            return (Ok(json!({ "Successful": [], "Failed": too_long })), None);
        }
        if call.action == "SendMessage" && call.input["QueueUrl"] == self.0.queues[0].url() {
            lock(&self.0.refusals).push(format!("a dead letter to the queue that it came from: {call:?}"));
            return (Err(SqsError { code: "AccessDenied", reason: "It would be delivered again." }), None);
        }
        let mut output = run(&self.0.queues, &call, Duration::from_secs(1)).await;
        self.record_refusals(&call, &output);
        if let Ok(output) = &mut output
            && let Some(failed) = output["Failed"].as_array_mut()
        {
            failed.extend(too_long);
        }
        if call.action != "SendMessage" || output.is_err() {
            return (output, None);
        }
        let sent = lock(&self.0.calls)[number].clone();
        let mut letters = lock(&self.0.letters);
        letters.push(Letter::of(&sent, &self.0.queues[0]));
        (output, Some(letters.len() - 1))
    }

    fn record_refusals(&self, call: &Call, output: &Result<Value, SqsError>) {
        // A receipt handle may be outdated, so its errors are right.
        let is_wrong = |code: &str, reason: &str| {
            INVALID.contains(&code)
                || code == "InvalidParameterValue" && (call.action == "SendMessage" || reason.contains("43200"))
        };
        let mut refusals = lock(&self.0.refusals);
        let mut refuse = |code: &str, reason: &str| {
            if is_wrong(code, reason) {
                refusals.push(format!("{code}: {reason}: {call:?}"));
            }
        };
        match output {
            Err(SqsError { code, reason }) => refuse(code, reason),
            Ok(output) => {
                for entry in output["Failed"].as_array().into_iter().flatten() {
                    refuse(entry["Code"].as_str().unwrap_or_default(), entry["Message"].as_str().unwrap_or_default());
                }
            }
        }
    }

    /// One of 12 letters has each fault, and one of 40 changes of visibility timeouts.
    fn fault(&self, action: &str) -> Option<Fault> {
        if self.faults_ended() {
            return None;
        }
        let mut rng = lock(&self.0.rng);
        match rng.draw(0..if action == "SendMessage" { 12 } else { 40 }) {
            0 => Some(Fault::Throttled),
            1 => Some(Fault::InternalFailure),
            2 => Some(Fault::HoldRequest),
            3 => Some(Fault::Slow(rng.ms(100..5000))),
            4 => Some(Fault::LoseReply),
            5 => Some(Fault::HoldReply),
            _ => None,
        }
    }
}

fn encoded(reply: &Reply) -> Option<String> {
    serde_json::to_string(reply).ok()
}
