//! Whether the span of each delivery says what happened to its message: docs/configuration.md.

use serde::{Deserialize, Serialize};

use super::{Delivery, Invoked, Received, hash};
use crate::event::Answer;
use crate::history::{History, Operation};

/// An invocation that takes longer may have no time left to send its spans, µs.
const SENT_WITHIN_US: u64 = 1_000_000;

/// The name of the spans of messages, which names the queue.
const SPAN_NAME: &str = "process payments";

/// What clocks and rounding may differ, µs.
const TOLERANCE_US: u64 = 5000;

/// The span of a message. Times are by the monotonic clock, µs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The messageId.
    pub message_id: String,
    /// The number of the process.
    pub process: usize,
    /// The idempotency key.
    pub key: Option<String>,
    /// Its name.
    pub name: String,
    /// The name of the service.
    pub service: String,
    /// The trace that it is linked to, in hexadecimal digits.
    pub sender: Option<String>,
    /// What happened to the message.
    pub outcome: String,
    /// The fence of its claim, or of the record that it found.
    pub fence: Option<u64>,
    /// Number of the attempt.
    pub attempt: Option<u8>,
    /// Whether its status is an error.
    pub is_error: bool,
    /// The description of its status.
    pub why: String,
    /// Whether its parent is the span of an invocation in the same request, which is linked to the trace of Lambda.
    pub has_invocation: bool,
    /// When it began.
    pub begun_us: u64,
    /// When it ended.
    pub ended_us: u64,
    /// When the collector received it.
    pub received_us: u64,
}

/// What the variables of OpenTelemetry say that a process does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    /// Whether it sends spans.
    pub are_sent: bool,
    /// The name of its service.
    pub service: String,
}

impl Received {
    /// What is wrong with the spans of deliveries whose invocations returned.
    pub(super) fn wrong_spans(&self, spans: &[Span], history: &History) -> impl Iterator<Item = String> {
        self.deliveries.iter().filter(|delivery| delivery.invocation != Invoked::Unknown).filter_map(|delivery| {
            let spans: Vec<_> = spans.iter().filter(|span| self.is_of(span, delivery)).collect();
            let traces = &self.traces[delivery.process];
            let why = match &spans[..] {
                [] if !traces.are_sent => return None,
                _ if !traces.are_sent => "this process was to send no span",
                [] if delivery.ended_us - delivery.begun_us > SENT_WITHIN_US => return None,
                [] => "this delivery has no span",
                [span] => self.wrong_span(span, delivery, history)?,
                _ => "this delivery has more than one span",
            };
            Some(format!("{}: {why}: {spans:?}, {delivery:?}", delivery.key))
        })
    }

    /// Whether this span is of this delivery. One that began a little earlier may be of the delivery before, of the same
    /// message to the same process.
    fn is_of(&self, span: &Span, delivery: &Delivery) -> bool {
        let began_in = |delivery: &Delivery, tolerance_us: u64| {
            let meanwhile = delivery.begun_us.saturating_sub(tolerance_us)..=delivery.ended_us;
            (&span.message_id, span.process) == (&delivery.message_id, delivery.process)
                && meanwhile.contains(&span.begun_us)
        };
        let is_of_another = || self.deliveries.iter().any(|other| began_in(other, 0));
        began_in(delivery, 0) || began_in(delivery, TOLERANCE_US) && !is_of_another()
    }

    fn wrong_span(&self, span: &Span, delivery: &Delivery, history: &History) -> Option<&'static str> {
        let operations = history.keys.get(&delivery.key).map_or(&[][..], |operations| operations);
        let is_own = |operation: &&Operation| {
            operation.call.request().message == hash(&delivery.message_id)
                && (delivery.begun_us..=delivery.ended_us).contains(&operation.invoked_us)
        };
        let is_seen =
            |answer: &dyn Fn(&Answer) -> bool| operations.iter().filter(is_own).any(|own| answer(&own.answer));
        let (fence, attempt) = (span.fence, span.attempt);
        let is_claim = |answer: &Answer, is_recovery: bool| {
            matches!(answer, Answer::Acquired { fence: of_claim, attempt: number, recovery }
            if (Some(*of_claim), Some(*number), *recovery) == (fence, attempt, is_recovery))
        };
        let is_right = match &*span.outcome {
            "ACQUIRED" => is_seen(&|answer| is_claim(answer, false)),
            "ACQUIRED_STALE" => is_seen(&|answer| is_claim(answer, true)),
            "DUPLICATE" => is_seen(
                &|answer| matches!(answer, Answer::Duplicate { fence: of_record, .. } if Some(*of_record) == fence),
            ),
            "CONFLICT" => is_seen(&|answer| matches!(answer, Answer::Conflict { .. })),
            "MISMATCH" => is_seen(&|answer| *answer == Answer::Mismatch),
            "LOST" => is_seen(&|answer| matches!(answer, Answer::Lost(_))),
            _ => true,
        };
        // A message that is not started may have a key that is not known, in a payload that could not be read.
        let is_of_record = ["ACQUIRED", "ACQUIRED_STALE", "DUPLICATE", "CONFLICT", "MISMATCH", "LOST", "FAILED"]
            .contains(&&*span.outcome);
        let has_status = match delivery.invocation {
            Invoked::Named => span.is_error,
            // A message that has a dead letter was deleted, and failed.
            Invoked::NotNamed => !span.is_error || self.has_letter(&delivery.message_id),
            Invoked::Error(_) | Invoked::Unknown => true,
        };
        let service = &self.traces[delivery.process].service;
        // Of a malformed record only the messageId is read.
        let has_sender = delivery.is_malformed || span.sender == delivery.sender;
        [
            (span.has_invocation, "its span is not one of an invocation"),
            (span.begun_us <= span.ended_us && span.ended_us <= span.received_us, "its span has other times"),
            (span.received_us <= delivery.ended_us, "its span was sent after the response"),
            (span.key.as_ref().map_or(!is_of_record, |key| *key == delivery.key), "its span has another key"),
            (!delivery.is_malformed || span.outcome == "UNREADABLE", "its span does not say that it is malformed"),
            (has_status, "its span has another status"),
            (span.is_error != span.why.is_empty(), "its span does not say why it failed"),
            (span.service == *service, "its span is of another service"),
            (has_sender, "its span is not linked to the trace of its sender"),
            (delivery.is_malformed || span.name == SPAN_NAME, "its span has another name"),
            (is_right, "its span says otherwise than the store"),
        ]
        .into_iter()
        .find_map(|(holds, why)| (!holds).then_some(why))
    }
}
