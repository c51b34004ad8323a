//! Whether each message was deleted and acknowledged for its own reason, and in order.

use std::collections::BTreeMap;

use history::{Hex, Operation};
use idempotent_sqs_testing::{MessageState, ReceivedMessage};

use crate::function::{Acknowledged, Invoked};
use crate::receiver::Counted;
use crate::sent::{Sent, SentKey, stored};
use crate::work::Attempt;
use crate::world::Run;

use super::invocations::has_calls;

impl Run {
    /// What is wrong with messages: each was deleted after its effect, or after its dead letter was sent.
    pub(super) fn wrong_messages(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (message, sent) in self.messages.iter().zip(&self.sent) {
            let is_dead = || message.message_ids.iter().any(|id| self.is_letter_sent(id, u64::MAX));
            let is_key =
                |key: &String| message.message_ids.iter().any(|id| self.expected_key(id).as_ref() == Some(key));
            // A payload that cannot be read cannot be compared.
            let is_payment = |payment| payment == sent.payment || sent.may_be_unreadable();
            let is_own = |counted: &Counted| is_payment(counted.payment) && is_key(&counted.effect.key);
            if message.state == MessageState::Deleted && !self.effects.iter().any(is_own) && !is_dead() {
                wrong.push(format!(
                    "{} was deleted without its effect and without a dead letter: {message:?}",
                    message.body
                ));
            }
        }
        wrong
    }

    /// Messages that the function acknowledged before an answer showed that their own payload is done, or their dead
    /// letter was sent.
    pub(super) fn wrong_acknowledgements(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for Acknowledged { message_id, at_us } in &self.acknowledged {
            let Some(sent) = self.sent(message_id) else {
                wrong.push(format!("{message_id}: this message was not sent"));
                continue;
            };
            let is_of = |run: &&Attempt| self.sent(&run.message_id).is_some_and(|other| other.payment == sent.payment);
            let runs = || self.attempts.iter().filter(is_of);
            // A process that does not compare payloads has no fingerprint, which agrees with all.
            let is_own = |call: &Operation| {
                let [none, own] = [Hex([0; 16]), call.call.request().fingerprint];
                own == none || runs().any(|run| run.fingerprint == own || run.fingerprint == none)
            };
            let is_before = |call: &Operation| call.returned_us.is_some_and(|returned_us| returned_us <= *at_us);
            let key = self.expected_key(message_id).unwrap_or_default();
            let mut calls = self.history.keys.get(&key).into_iter().flatten();
            let is_done = calls.any(|call| call.shows_completion() && is_own(call) && is_before(call));
            if !is_done && !self.is_letter_sent(message_id, *at_us) {
                wrong.push(format!("{key:?}: {message_id} was acknowledged at {at_us} µs, before it was done"));
            }
        }
        wrong
    }

    /// Messages of a group whose first effects are not in the order of their sends. Without those that share a payload,
    /// and dead letters, whose groups go on.
    pub(super) fn wrong_order(&self) -> Vec<String> {
        let sent = self.messages.iter().zip(&self.sent);
        let is_dead = |ids: &[String]| ids.iter().any(|id| self.is_letter_sent(id, u64::MAX));
        let is_shared = |payment| self.sent.iter().filter(|sent| sent.payment == payment).count() > 1;
        let mut last: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        let mut wrong = Vec::new();
        for (message, Sent { payment, group, .. }) in sent {
            let first = self.effects.iter().position(|counted| counted.payment == *payment);
            let (Some(group), Some(first)) = (group, first) else { continue };
            if !self.plan.fifo || is_dead(&message.message_ids) || is_shared(*payment) {
                continue;
            }
            if let Some((before, other)) = last.insert(group, (first, *payment))
                && before > first
            {
                wrong.push(format!("payment {payment} was made before payment {other} of {group}"));
            }
        }
        wrong
    }

    /// What is known of the message with this id.
    pub(super) fn sent(&self, message_id: &str) -> Option<&Sent> {
        let has_id = |ids: &[String]| ids.iter().any(|id| id == message_id);
        let at = self.messages.iter().position(|message| has_id(&message.message_ids))?;
        self.sent.get(at)
    }

    /// The key of the record of a message. `None` if it has no usable key.
    pub(super) fn expected_key(&self, message_id: &str) -> Option<String> {
        let sent = self.sent(message_id)?;
        match &sent.key {
            SentKey::Text(key) => Some(stored(key)),
            SentKey::DeduplicationId => Some(format!("{} {}", sent.group.as_ref()?, sent.deduplication_id.as_ref()?)),
            SentKey::MessageId => Some(message_id.to_owned()),
            SentKey::Unusable => None,
        }
    }

    /// Whether another message of the batch has its key.
    pub(super) fn has_in_batch_duplicate(&self, invoked: &Invoked, message: &ReceivedMessage) -> bool {
        self.with_its_key(invoked, message).next().is_some()
    }

    /// Whether it was acquired although an earlier one of the batch with its key and its payload was: that one runs for
    /// both.
    pub(super) fn is_acquired_twice(&self, invoked: &Invoked, calls: &[&Operation], message: &ReceivedMessage) -> bool {
        let is_own = |other: &&ReceivedMessage| other.message_id != message.message_id;
        let mut before = invoked.messages.iter().take_while(is_own);
        let is_acquired = |other| self.is_copy(invoked, other, message) && has_calls(calls, other);
        has_calls(calls, message) && before.any(is_acquired)
    }

    /// The message of the batch that ran for this one too, if it is known: the only other one with its key, and with
    /// its payload.
    pub(super) fn ran_for<'a>(
        &self,
        invoked: &'a Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
    ) -> Option<&'a ReceivedMessage> {
        // It may wait for an earlier message of its group.
        if self.plan.fifo || invoked.malformed.messages.contains(&message.message_id) {
            return None;
        }
        let mut others = self.with_its_key(invoked, message);
        let other = others.next().filter(|other| self.is_copy(invoked, other, message) && has_calls(calls, other))?;
        (others.next().is_none() && !has_calls(calls, message)).then_some(other)
    }

    /// The other messages of the batch with its key.
    pub(super) fn with_its_key<'a>(
        &self,
        invoked: &'a Invoked,
        message: &ReceivedMessage,
    ) -> impl Iterator<Item = &'a ReceivedMessage> {
        let key = self.expected_key(&message.message_id);
        let others = invoked.messages.iter().filter(|other| other.message_id != message.message_id);
        others.filter(move |other| self.expected_key(&other.message_id) == key)
    }

    /// Whether two messages have the same key and payload. A payload in S3 may be unavailable, and then it is not
    /// known.
    fn is_copy(&self, invoked: &Invoked, message: &ReceivedMessage, other: &ReceivedMessage) -> bool {
        let key = |message: &ReceivedMessage| self.expected_key(&message.message_id);
        let payment = |message: &ReceivedMessage| {
            self.sent(&message.message_id).filter(|_| self.has_payload(invoked, message)).map(|sent| sent.payment)
        };
        key(message).is_some()
            && key(message) == key(other)
            && payment(message).is_some()
            && payment(message) == payment(other)
    }
}
