//! Whether the requests that a webhook received are those of the messages, and whether the function settled each run,
//! and delivered its message again, as docs/webhook.md says for the answer.
//!
//! - `invocations`: invocations that fail, and malformed records
//! - `payloads`: payloads in S3
//! - `run`: the run of a claim
//! - `spans`: the traces of the deliveries

mod connections;
mod invocations;
mod payloads;
mod run;
mod spans;

use std::ops::RangeInclusive;
use std::time::Duration;

use idempotent_sqs::idempotency::MessageIdHash;
use idempotent_sqs::sqs::DeadLetterOutcome;
use serde::{Deserialize, Serialize};

use crate::event::{Answer, Call, Claim, Hex};
use crate::history::{History, Operation, is_of_dead_letter};
use crate::stuck::stuck_processes;

pub use connections::ReusedConnection;
pub use payloads::{ObjectAnswer, ObjectBody, ObjectCall, Pointer, StoredPayload};
use run::Run;
pub use spans::{Span, Traces};

/// The setting `TARGET_TIMEOUT_MS` of the functions that have one.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_millis(700);

/// One request, as the webhook received it, and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookCall {
    /// The idempotency key, decoded.
    pub key: String,
    /// The fence of its claim.
    pub fence: u64,
    /// Number of the attempt.
    pub attempt: u8,
    /// How often the message was delivered.
    pub receive_count: Option<u32>,
    /// Whether it was told that an earlier attempt may have taken effect.
    pub is_recovery: bool,
    /// The `Content-Type`.
    pub content_type: String,
    /// The body.
    pub body: String,
    /// When it arrived, by the monotonic clock, µs.
    pub at_us: u64,
    /// How long its connection was idle since the last response, µs.
    pub idle_us: Option<u64>,
    /// The answer.
    pub answer: WebhookAnswer,
}

/// The answer of a webhook to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookAnswer {
    /// `None` if there is no whole head of a response in time.
    pub status: Option<u16>,
    /// The delay that it asks for, if a client can read it.
    pub retry_after: Option<Duration>,
    /// The body, if it is complete and may be kept.
    pub body: Option<String>,
}

/// One delivery of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The messageId.
    pub message_id: String,
    /// The idempotency key.
    pub key: String,
    /// The body, or the payload in S3 in its place.
    pub body: String,
    /// The pointer to the payload, if it is in S3.
    pub pointer: Option<Pointer>,
    /// How often the message was delivered.
    pub receive_count: u32,
    /// The number of the process.
    pub process: usize,
    /// The trace that it was sent in, in hexadecimal digits.
    pub sender: Option<String>,
    /// When its invocation began, by the monotonic clock, µs.
    pub begun_us: u64,
    /// When its invocation returned, by the monotonic clock, µs.
    pub ended_us: u64,
    /// Whether its record in the event was malformed.
    pub is_malformed: bool,
    /// How its invocation ended.
    pub invocation: Invoked,
    /// The visibility timeout that the function asked for, seconds.
    pub visibility_s: Option<u64>,
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// The messageId of its message.
    pub message_id: String,
    /// The reason.
    pub outcome: DeadLetterOutcome,
}

/// How an invocation ended for one of its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Invoked {
    /// By a response that names the message as failed.
    Named,
    /// By a response that does not name it.
    NotNamed,
    /// By an error.
    Error(String),
    /// It timed out, or its process was killed.
    Unknown,
}

/// What a webhook and the queue have seen of functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The requests and their answers.
    pub calls: Vec<WebhookCall>,
    /// The deliveries of the messages.
    pub deliveries: Vec<Delivery>,
    /// The dead letters.
    pub letters: Vec<Letter>,
    /// When the webhook stopped to listen, by the monotonic clock, µs. Connections that it had not accepted yet were
    /// reset, so a request on them was not received.
    pub closed_us: Vec<u64>,
    /// When a process was stopped, by the monotonic clock, µs.
    pub stopped_us: Vec<u64>,
    /// Number of invocations that timed out, and whose process was not stopped meanwhile.
    pub timeouts: usize,
    /// The requests to S3 and their answers.
    pub object_calls: Vec<ObjectCall>,
    /// The requests to S3 and SQS that reused a connection.
    pub reused_connections: Vec<ReusedConnection>,
    /// The spans of the messages, as an OpenTelemetry collector received them, if there was one.
    pub spans: Option<Vec<Span>>,
    /// What each process does with its spans.
    pub traces: Vec<Traces>,
}

/// What an answer means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Done,
    NothingDone,
    Uncertain,
    Permanent,
}

impl WebhookAnswer {
    /// The table of docs/webhook.md.
    fn meaning(&self) -> Meaning {
        match self.status {
            Some(200..=299) => Meaning::Done,
            Some(409 | 425 | 429 | 503) => Meaning::NothingDone,
            Some(300..=407 | 410..=499) => Meaning::Permanent,
            _ => Meaning::Uncertain,
        }
    }
}

impl Received {
    /// What is wrong with the runs of functions that call the webhook, with the deliveries of their messages, and with
    /// their processes.
    #[must_use]
    pub fn faults(&self, history: &History) -> Vec<String> {
        let mut wrong = Vec::new();
        let messages = || history.keys.iter().filter(|(key, _)| !is_of_dead_letter(key));
        for (key, operations) in messages() {
            for claim in claims(operations) {
                let is_own = |call: &&WebhookCall| call.key == *key && call.fence == claim.fence;
                let calls: Vec<&WebhookCall> = self.calls.iter().filter(is_own).collect();
                if calls.len() > 1 {
                    wrong.push(format!("{key}: this run called the webhook more than once: {calls:?}"));
                }
                let (call, not_executed) = (calls.first().copied(), &*history.not_executed);
                let run = Run { claim: &claim, call, operations, not_executed, received: self };
                wrong.extend(run.faults().map(|why| format!("{key}: {why}: {:?}, {claim:?}", run.call)));
            }
        }
        let has_claim = |call: &WebhookCall| {
            let operations = history.keys.get(&call.key);
            operations.is_some_and(|operations| claims(operations).iter().any(|claim| claim.fence == call.fence))
        };
        let strays = self.calls.iter().filter(|call| !has_claim(call));
        wrong.extend(strays.map(|call| format!("{}: this request is of no claim: {call:?}", call.key)));
        wrong.extend(self.wrong_invocations(history));
        wrong.extend(self.wrong_timeouts());
        wrong.extend(self.wrong_payloads(history));
        wrong.extend(self.wrong_connections());
        wrong.extend(self.spans.iter().flat_map(|spans| self.wrong_spans(spans, history)));
        wrong.extend(stuck_processes(history));
        let unjustified = self.letters.iter().filter(|letter| !self.is_justified(letter, history));
        wrong.extend(
            unjustified.map(|letter| format!("this message can succeed, or fails for another reason: {letter:?}")),
        );
        wrong
    }

    /// What the message with this messageId points to, if its payload is in S3.
    fn payload_of(&self, message: Hex<8>) -> Option<StoredPayload> {
        self.deliveries_of(message).find_map(|delivery| delivery.pointer.as_ref()).map(|pointer| pointer.payload)
    }

    /// The deliveries of the message with this messageId.
    fn deliveries_of(&self, message: Hex<8>) -> impl Iterator<Item = &Delivery> {
        self.deliveries.iter().filter(move |delivery| hash(&delivery.message_id) == message)
    }

    /// Whether a dead letter was sent.
    #[must_use]
    pub fn has_letter(&self, message_id: &str) -> bool {
        self.letters.iter().any(|letter| letter.message_id == message_id)
    }

    /// Whether this message has no payload, or a run of it was answered with a permanent failure, as its dead letter
    /// says.
    fn is_justified(&self, Letter { message_id, outcome }: &Letter, history: &History) -> bool {
        use DeadLetterOutcome::{Failed, FailedPermanently, Unreadable};
        match self.payload_of(hash(message_id)) {
            None | Some(StoredPayload::Text) => {}
            Some(StoredPayload::DeletedOnceDone) => {
                return has_failed(message_id, history) && [Failed, FailedPermanently, Unreadable].contains(outcome);
            }
            Some(StoredPayload::Missing | StoredPayload::OtherName) => return [Failed, Unreadable].contains(outcome),
            Some(StoredPayload::Unreadable | StoredPayload::NotAllowed) => return *outcome == Unreadable,
        }
        if ![Failed, FailedPermanently].contains(outcome) {
            return false;
        }
        let mut permanent = self.calls.iter().filter(|call| call.answer.meaning() == Meaning::Permanent);
        permanent.any(|call| {
            let claims = history.keys.get(&call.key).map(|operations| claims(operations)).unwrap_or_default();
            claims.iter().any(|claim| claim.fence == call.fence && claim.request.message == hash(message_id))
        })
    }
}

/// Whether this message was recorded as failed permanently, or found to be.
fn has_failed(message_id: &str, history: &History) -> bool {
    history.keys.values().flatten().any(|operation| {
        let is_failed =
            operation.answer == Answer::Failed || matches!(operation.call, Call::Fail { permanent: true, .. });
        is_failed && operation.call.request().message == hash(message_id)
    })
}

/// The claims that these operations of one key returned.
fn claims(operations: &[Operation]) -> Vec<Claim> {
    let mut claims: Vec<Claim> = operations.iter().filter_map(Operation::acquired).collect();
    // An owner that acquires again has the same claim.
    claims.dedup();
    claims
}

/// What is wrong with the calls that settled the run with this fence, among the operations of its key. `is_over`: the
/// run must have been settled.
pub fn wrong_settling(
    operations: &[Operation],
    fence: u64,
    is_over: bool,
    is_right: impl Fn(&Operation) -> bool,
) -> Option<&'static str> {
    let of_run = |operation: &&Operation| operation.claim().is_some_and(|claim| claim.fence == fence);
    let mut calls = operations.iter().filter(of_run).peekable();
    if calls.peek().is_none() && is_over {
        return Some("this run was not settled");
    }
    calls.any(|call| !is_right(call)).then_some("this run was settled otherwise than it ended")
}

fn is_answered(invocation: &Invoked) -> bool {
    matches!(invocation, Invoked::Named | Invoked::NotNamed)
}

fn hash(message_id: &str) -> Hex<8> {
    Hex(*MessageIdHash::of(message_id).as_bytes())
}

/// The backoff of a receive count, seconds: docs/faults.md.
#[must_use]
pub fn backoff_s(receive_count: u32) -> RangeInclusive<u64> {
    let step_s = 2_u64.saturating_pow(receive_count.max(1)).min(900);
    step_s / 2..=step_s
}
