//! What is wrong with a run that called the webhook.

use std::ops::RangeInclusive;
use std::time::Duration;

use idempotent_sqs::idempotency::StoredResult;
use serde::de::IgnoredAny;

use super::{Delivery, Invoked, Meaning, Received, StoredPayload, WebhookCall, backoff_s, is_answered, wrong_settling};
use crate::event::{Answer, Call, Claim, StoredBytes};
use crate::history::Operation;

/// When the function may have given up a request, µs after its claim was returned. The rest is tolerance.
const TIMEOUT_US: u64 = 650_000;

/// What a lease has beyond the time for work, ms: the grace of 200 ms, a quarter of the two seconds of an invocation,
/// and the 100 ms by which a call ends before its claim. The rest is tolerance.
const RESERVED_MS: u64 = 850;

/// How long the head of an answer takes at most, µs: 90 ms. The rest is tolerance.
const ANSWER_US: u64 = 350_000;

/// How long the webhook takes to close its listener, µs.
const CLOSING_US: u64 = 20_000;

/// Longest visibility timeout that the function asks for: docs/webhook.md.
const LONGEST_DELAY_S: u64 = 12 * 3600 - 1200;

/// The run of a claim.
pub(super) struct Run<'a> {
    pub(super) claim: &'a Claim,
    /// Its request, if the webhook received one.
    pub(super) call: Option<&'a WebhookCall>,
    /// The operations of its key.
    pub(super) operations: &'a [Operation],
    pub(super) not_executed: &'a [Operation],
    pub(super) received: &'a Received,
}

impl Run<'_> {
    pub(super) fn faults(&self) -> impl Iterator<Item = String> {
        let delivery = self.call.and_then(|call| self.delivery(call));
        let is_own = |call: &Operation| call.claim() == Some(self.claim);
        // A call that found no server was not executed.
        let is_over =
            delivery.is_some_and(|delivery| is_answered(&delivery.invocation)) && !self.not_executed.iter().any(is_own);
        let settled = wrong_settling(self.operations, self.claim.fence, is_over, |call| {
            self.meanings().into_iter().any(|meaning| self.is_right(call, meaning))
        });
        let request = self.call.and_then(|call| self.wrong_request(call, delivery));
        let delivered = self.call.zip(delivery).and_then(|(call, delivery)| self.wrong_redelivery(call, delivery));
        settled.map(str::to_owned).into_iter().chain(request.map(str::to_owned)).chain(delivered)
    }

    /// The delivery of this request's message.
    fn delivery(&self, call: &WebhookCall) -> Option<&Delivery> {
        let mut deliveries = self.received.deliveries_of(self.claim.request.message);
        deliveries.find(|delivery| Some(delivery.receive_count) == call.receive_count)
    }

    /// What is wrong with the request.
    fn wrong_request(&self, call: &WebhookCall, delivery: Option<&Delivery>) -> Option<&'static str> {
        let Some(delivery) = delivery else { return Some("no delivery of the message has this receive count") };
        let is_json = serde_json::from_str::<IgnoredAny>(&delivery.body).is_ok();
        let content_type = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        if call.key != delivery.key || call.body != delivery.body {
            Some("the request has not the key and the body of its message")
        } else if call.idle_us.is_some_and(|idle_us| self.received.was_idle_for_too_long(call.at_us, idle_us)) {
            Some("the request is on a connection that was idle for too long")
        } else if !self.received.has_payload(delivery, call.at_us) {
            Some("the request was sent without the payload in S3")
        } else if call.content_type != content_type {
            Some("the request has another content type than its body")
        } else if (call.attempt, call.is_recovery) != (self.claim.attempt, self.claim.recovery) {
            Some("the request has another attempt or mark of a recovery than its claim")
        } else {
            None
        }
    }

    /// What the run may have done. A run without a request has done nothing, and fails permanently if its payload is
    /// missing.
    fn meanings(&self) -> Vec<Meaning> {
        match (self.call, self.received.payload_of(self.claim.request.message)) {
            (Some(call), _) => vec![call.answer.meaning()],
            (None, Some(StoredPayload::Missing | StoredPayload::OtherName)) => vec![Meaning::Permanent],
            (None, Some(StoredPayload::DeletedOnceDone)) => vec![Meaning::NothingDone, Meaning::Permanent],
            (None, _) => vec![Meaning::NothingDone],
        }
    }

    /// Whether this call settles a run that ended so. It may be uncertain instead if the request was given up before it had
    /// an answer, or was lost.
    fn is_right(&self, operation: &Operation, meaning: Meaning) -> bool {
        let claim = self.claim;
        let is_last = claim.attempt >= claim.request.max_attempts;
        let (acquired_us, begun_us) = self.acquired_us();
        // The function may have given up the request.
        let work_ms = claim.request.lease_ms.saturating_sub(RESERVED_MS);
        let given_up_us = (begun_us + TIMEOUT_US).min(acquired_us + work_ms * 1000);
        let is_late = operation.invoked_us >= given_up_us;
        let is_meanwhile = |at_us: &u64| (acquired_us.saturating_sub(CLOSING_US)..operation.invoked_us).contains(at_us);
        let may_be_lost = self.call.is_none() && self.received.closed_us.iter().any(is_meanwhile);
        let is_stopped = self.received.stopped_us.iter().any(is_meanwhile);
        let is_unanswered = self.call.is_some_and(|call| call.at_us + ANSWER_US > given_up_us);
        let is_given_up = is_late && (is_unanswered || is_stopped || self.counts_as_sent());
        match (&operation.call, meaning) {
            (Call::Complete { result, .. }, Meaning::Done) => {
                let kept = self.call.and_then(|call| call.answer.body.as_ref());
                let expected: StoredBytes =
                    kept.map_or(StoredResult::NotKept, |body| StoredResult::Inline(body.as_bytes())).into();
                *result == expected || is_late && *result == StoredBytes::NotKept
            }
            (Call::Release { claim: Some(_), .. }, Meaning::NothingDone) => true,
            (Call::Fail { uncertain: true, permanent, .. }, Meaning::Uncertain) => *permanent == is_last,
            (Call::Fail { uncertain, permanent: true, .. }, Meaning::Permanent) => *uncertain == claim.recovery,
            (Call::Fail { uncertain: true, permanent, .. }, _) => (is_given_up || may_be_lost) && *permanent == is_last,
            _ => false,
        }
    }

    /// Whether its request has no body, whose start cannot be noticed.
    fn counts_as_sent(&self) -> bool {
        let mut deliveries = self.received.deliveries_of(self.claim.request.message);
        self.call.is_none() && deliveries.any(|delivery| delivery.body.is_empty())
    }

    /// When its claim was asked for and returned, by the monotonic clock, µs.
    fn acquired_us(&self) -> (u64, u64) {
        let acquire = self.operations.iter().find(|operation| operation.acquired().as_ref() == Some(self.claim));
        acquire.map_or((0, 0), |acquire| (acquire.invoked_us, acquire.ends_us()))
    }

    /// What is wrong with the response for this delivery and with its visibility timeout, if the run was settled.
    fn wrong_redelivery(&self, call: &WebhookCall, delivery: &Delivery) -> Option<String> {
        let settled = |operation: &&Operation| {
            operation.claim().is_some_and(|claim| claim.fence == self.claim.fence)
                && operation.answer == Answer::Recorded
        };
        let settled = self.operations.iter().find(settled)?;
        let is_named = delivery.invocation == Invoked::Named;
        let asked = match &settled.call {
            Call::Complete { .. } if is_named => return Some("the response names a message that is done".to_owned()),
            Call::Complete { .. } | Call::Acquire { .. } => return None,
            Call::Release { .. } => call.answer.retry_after,
            // Its dead letter was sent, or it is delivered again.
            Call::Fail { permanent: true, .. } if !is_named => {
                let is_sent = self.received.has_letter(&delivery.message_id);
                return (is_answered(&delivery.invocation) && !is_sent).then(|| "no dead letter was sent".to_owned());
            }
            Call::Fail { .. } => None,
        };
        let expected = delay_s(asked, delivery.receive_count);
        let is_expected = delivery.visibility_s.is_some_and(|after_s| expected.contains(&after_s));
        match delivery.invocation {
            Invoked::NotNamed => Some("the response does not name a message that is not done".to_owned()),
            Invoked::Named if !is_expected => {
                Some(format!("the visibility timeout is {:?}, not {expected:?} s", delivery.visibility_s))
            }
            _ => None,
        }
    }
}

/// The visibility timeouts that the function may ask for, seconds: the backoff of the receive count, or the delay that
/// the webhook asked for. A date has whole seconds.
pub(super) fn delay_s(asked: Option<Duration>, receive_count: u32) -> RangeInclusive<u64> {
    let backoff_s = backoff_s(receive_count);
    let asked_s = asked.map_or(0, |asked| asked.as_secs());
    let [from_s, to_s] = [(*backoff_s.start()).max(asked_s.saturating_sub(1)), (*backoff_s.end()).max(asked_s)];
    from_s.min(LONGEST_DELAY_S)..=to_s.min(LONGEST_DELAY_S)
}
