//! Whether each message was deleted and acknowledged for its own reason, and in order.

use std::collections::{BTreeMap, BTreeSet};

use history::{Hex, Operation};
use idempotent_sqs_testing::MessageState;

use crate::function::Acknowledged;
use crate::world::Run;

impl Run {
    /// What is wrong with messages: each was deleted after its effect, or after its dead letter was sent.
    pub(super) fn wrong_messages(&self) -> Vec<String> {
        let done: BTreeSet<_> = self.effects.iter().map(|counted| counted.body.as_str()).collect();
        let mut wrong = Vec::new();
        for message in &self.messages {
            let is_dead = || message.message_ids.iter().any(|id| self.is_letter_sent(id, u64::MAX));
            let why = match &message.state {
                MessageState::Deleted if !done.contains(message.body.as_str()) && !is_dead() => {
                    "was deleted without its effect and without a dead letter"
                }
                MessageState::Expired => "expired",
                _ => continue,
            };
            wrong.push(format!("{} {why}: {message:?}", message.body));
        }
        wrong
    }

    /// Messages that the function acknowledged before an answer showed that their own payload is done, or their dead letter
    /// was sent.
    pub(super) fn wrong_acknowledgements(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for Acknowledged { message_id, at_us } in &self.acknowledged {
            let message = self.messages.iter().find(|message| message.message_ids.contains(message_id));
            let (Some(message), Some(key)) = (message, self.expected_key(message_id)) else {
                wrong.push(format!("{message_id}: this message was not sent"));
                continue;
            };
            let runs = || self.attempts.iter().filter(|attempt| attempt.body == message.body);
            // A process that does not compare payloads has no fingerprint, which agrees with all.
            let is_own = |call: &Operation| {
                let [none, own] = [Hex([0; 16]), call.call.request().fingerprint];
                own == none || runs().any(|run| run.fingerprint == own || run.fingerprint == none)
            };
            let is_before = |call: &Operation| call.returned_us.is_some_and(|returned_us| returned_us <= *at_us);
            let mut calls = self.history.keys.get(key).into_iter().flatten();
            let is_done = calls.any(|call| call.shows_completion() && is_own(call) && is_before(call));
            if !is_done && !self.is_letter_sent(message_id, *at_us) {
                wrong.push(format!("{key}: {message_id} was acknowledged at {at_us} µs, before it was done"));
            }
        }
        wrong
    }

    /// Messages of a group whose first effects are not in the order of their sends. Without those that share a payload,
    /// and dead letters, whose groups go on.
    pub(super) fn wrong_order(&self) -> Vec<String> {
        let sent = self.messages.iter().zip(self.sent.iter().map(|sent| &sent.group));
        let is_dead = |ids: &[String]| ids.iter().any(|id| self.is_letter_sent(id, u64::MAX));
        let is_shared = |body: &str| self.messages.iter().filter(|message| message.body == body).count() > 1;
        let mut last: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        let mut wrong = Vec::new();
        for (message, group) in sent {
            let first = self.effects.iter().position(|counted| counted.body == message.body);
            let (Some(group), Some(first)) = (group, first) else { continue };
            if is_dead(&message.message_ids) || is_shared(&message.body) {
                continue;
            }
            if let Some((before, body)) = last.insert(group, (first, &message.body))
                && before > first
            {
                wrong.push(format!("{}: its effect came before that of {body} in {group}", message.body));
            }
        }
        wrong
    }

    /// The key of a message: its producer's, or else the messageId.
    pub(super) fn expected_key<'a>(&'a self, message_id: &'a String) -> Option<&'a String> {
        let at = self.messages.iter().position(|message| message.message_ids.contains(message_id))?;
        Some(self.sent[at].key.as_ref().unwrap_or(message_id))
    }
}
