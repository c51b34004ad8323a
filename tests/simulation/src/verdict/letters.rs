//! Whether each dead letter is its message, was sent once, and has its reason.

use history::{Answer, Call, Hex, Operation};
use idempotent_sqs::idempotency::MessageIdHash;
use idempotent_sqs::sqs::{AttributeValue, DeadLetterOutcome};
use idempotent_sqs_testing::MessageHistory;

use crate::plan::Fault;
use crate::queue::Letter;
use crate::receiver::is_poison;
use crate::world::Run;

impl Run {
    /// What is wrong with dead letters.
    pub(super) fn wrong_letters(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for letter in &self.letters {
            let id = &letter.reason.message_id;
            let Some(at) = self.messages.iter().position(|message| message.message_ids.contains(id)) else {
                wrong.push(format!("{id}: the dead letter of a message that was not sent: {letter:?}"));
                continue;
            };
            let message = &self.messages[at];
            if !self.is_whole(letter, at) {
                wrong.push(format!("{}: this dead letter is not its message: {letter:?}", message.body));
            }
            if !self.is_justified(letter, message) {
                wrong.push(format!("{}: this dead letter has not the reason of its message: {letter:?}", message.body));
            }
            if !self.letter_calls(letter).any(is_acquired) {
                wrong.push(format!("{}: this dead letter was sent without its record: {letter:?}", message.body));
            }
            if self.was_recorded_before(letter) && !self.plan.has(Fault::FailOver) && !self.plan.has(Fault::Flush) {
                wrong.push(format!(
                    "{}: this dead letter was sent after another was recorded: {letter:?}",
                    message.body
                ));
            }
        }
        wrong
    }

    /// Whether the dead letter of this message was sent by this time, µs.
    pub(super) fn is_letter_sent(&self, message_id: &str, until_us: u64) -> bool {
        self.letters.iter().any(|letter| letter.reason.message_id == message_id && letter.at_us <= until_us)
    }

    /// Whether it has the body, the key and the group of its message.
    fn is_whole(&self, letter: &Letter, message: usize) -> bool {
        let has_body = self.messages[message].body == letter.message.body;
        let (sent, message, id) = (&self.sent[message], &letter.message, &letter.reason.message_id);
        let key = message.attributes.get("Idempotency-Key").map(|attribute| &attribute.value);
        let has_key = match (key, &sent.key) {
            (Some(AttributeValue::Text(key)), Some(sent)) => key == sent,
            (None, None) => true,
            _ => false,
        };
        let is_deduplicated = message.deduplication_id.as_ref() == sent.group.as_ref().map(|_| id);
        let has_group = !self.plan.fifo || message.group_id == sent.group && is_deduplicated;
        has_key && has_group && letter.reason.key.as_ref() == self.expected_key(id) && has_body
    }

    /// The calls for the record of a dead letter.
    fn letter_calls(&self, letter: &Letter) -> impl Iterator<Item = &Operation> {
        let key = format!("dead-letter:{}", letter.reason.message_id);
        self.history.keys.get(&key).into_iter().flatten()
    }

    /// Whether a record showed before that the dead letter was sent.
    fn was_recorded_before(&self, letter: &Letter) -> bool {
        self.letter_calls(letter).any(|call| {
            matches!(call.call, Call::Complete { .. })
                && call.answer == Answer::Recorded
                && call.returned_us.is_some_and(|returned_us| returned_us < letter.at_us)
        })
    }

    /// Whether the reason of a dead letter is that of its message: the receiver rejects the payload, the attempts are used
    /// up, or another payload has the key.
    fn is_justified(&self, letter: &Letter, message: &MessageHistory) -> bool {
        use DeadLetterOutcome::{AttemptsUsedUp, Failed, FailedPermanently, Mismatch, NoKey, Parked, Unreadable};
        let (is_poison, max_attempts) = (is_poison(self.seed, &message.body), self.plan.max_attempts);
        // A failure of another message, which shares key and payload, is not its own.
        let own = Hex(*MessageIdHash::of(&letter.reason.message_id).as_bytes());
        let mut calls =
            self.expected_key(&letter.reason.message_id).and_then(|key| self.history.keys.get(key)).into_iter();
        let has_call = calls.any(|calls| calls.iter().any(|call| call.call.request().message == own));
        match letter.reason.outcome {
            FailedPermanently => has_call && is_poison,
            AttemptsUsedUp => has_call && letter.reason.attempts.is_some_and(|count| count >= max_attempts),
            Failed => has_call && (is_poison || max_attempts < 200),
            Mismatch => {
                let key = self.expected_key(&letter.reason.message_id);
                let others = self.messages.iter().filter(|other| other.body != message.body);
                others.flat_map(|other| &other.message_ids).any(|id| self.expected_key(id) == key)
            }
            Parked | NoKey | Unreadable => false,
            other => unreachable!("no seed expects {other:?}"),
        }
    }
}

fn is_acquired(call: &Operation) -> bool {
    matches!(call.answer, Answer::Acquired { .. })
}
