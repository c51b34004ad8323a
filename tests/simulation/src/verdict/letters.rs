//! Whether each dead letter is its message, was sent once, and has its reason.

use history::{Answer, Call, Hex, Operation};
use idempotent_sqs::idempotency::MessageIdHash;
use idempotent_sqs::sqs::{DeadLetter, DeadLetterOutcome};
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::objects::Read;
use crate::plan::Fault;
use crate::producers::{MAX_MESSAGE_BYTES, size};
use crate::receiver::is_poison;
use crate::sent::SentKey;
use crate::sqs::Letter;
use crate::world::Run;

use super::invocations::{CLOCK_US, is_during, is_of};

/// A letter without its reason is shorter, bytes.
const LONGEST_LETTER: usize = 1000;

impl Run {
    /// What is wrong with dead letters.
    pub(super) fn wrong_letters(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for letter in &self.letters {
            let id = &letter.message_id;
            let Some(at) = self.messages.iter().position(|message| message.message_ids.contains(id)) else {
                wrong.push(format!("{id}: the dead letter of a message that was not sent: {letter:?}"));
                continue;
            };
            let message = &self.messages[at];
            if !self.is_whole(letter, at) {
                wrong.push(format!("{}: this dead letter is not its message: {letter:?}", message.body));
            }
            if let Some(what) = self.wrong_letter_reason(letter) {
                wrong.push(format!("{}: {what}: {letter:?}", message.body));
            }
            if !self.is_justified(letter) {
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
        wrong.extend(self.invocations.iter().flat_map(|invoked| self.not_moved(invoked)));
        wrong
    }

    /// Messages with another payload than the one under their key, and in-batch duplicates of these, that are not moved
    /// at once. Those with an attribute that cannot be read are not moved, and none is moved to its own queue.
    fn not_moved(&self, invoked: &Invoked) -> Vec<String> {
        if self.plan.is_own_letter_queue {
            return Vec::new();
        }
        let calls = self.calls(invoked);
        let ends_us = self.letters_end_us(invoked) - CLOCK_US;
        let is_mismatch = |message: &ReceivedMessage| {
            let mut own = calls.iter().filter(|call| is_of(call, message));
            own.any(|call| call.answer == Answer::Mismatch && call.ends_us() < ends_us)
        };
        let is_tried = |message: &ReceivedMessage| {
            let key = letter_key(&message.message_id);
            calls.iter().any(|call| call.call.key() == key)
        };
        let is_kept = |message: &&ReceivedMessage| {
            let ran = self.ran_for(invoked, &calls, message);
            let is_readable = !invoked.malformed.attributes.contains(&message.message_id);
            is_readable && is_mismatch(ran.unwrap_or(message)) && !is_tried(message)
        };
        let kept = invoked.messages.iter().filter(is_kept);
        kept.map(|message| format!("{}: has another payload, and was not moved: {message:?}", message.body)).collect()
    }

    /// Letters of messages with an attribute that could not be read. They are not whole.
    pub(super) fn wrong_attributes(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for invoked in &self.invocations {
            let is_own = |letter: &&Letter| letter.process == invoked.process && is_during(letter.sent_us, invoked);
            let letters = self.letters.iter().filter(is_own);
            let lacking = letters.filter(|letter| invoked.malformed.attributes.contains(&letter.message_id));
            wrong.extend(lacking.map(|letter| format!("this dead letter lacks an attribute: {letter:?}")));
        }
        wrong
    }

    /// Whether the dead letter of this message was sent by this time, µs.
    pub(super) fn is_letter_sent(&self, message_id: &str, until_us: u64) -> bool {
        self.letters.iter().any(|letter| letter.message_id == message_id && letter.at_us <= until_us)
    }

    /// Whether this invocation has sent the dead letter of a message, and knows it: it then completes its record.
    pub(super) fn is_moved_by(&self, invoked: &Invoked, calls: &[&Operation], message: &ReceivedMessage) -> bool {
        let mut letters = self.letters.iter().filter(|letter| letter.message_id == message.message_id);
        letters.any(|letter| {
            let completes = |call: &&Operation| {
                matches!(call.call, Call::Complete { .. })
                    && call.is_of_dead_letter()
                    && call.call.key().ends_with(&letter.message_id)
                    && call.invoked_us >= letter.at_us
            };
            letter.is_replied && is_during(letter.at_us, invoked) && calls.iter().any(completes)
        })
    }

    /// Whether it has the body, the attributes, the key, the group and the trace header of its message.
    fn is_whole(&self, letter: &Letter, message: usize) -> bool {
        let has_body = self.messages[message].body == letter.body;
        let (sent, id) = (&self.sent[message], &letter.message_id);
        let mut attributes = letter.attributes.clone();
        attributes.remove(DeadLetter::ATTRIBUTE);
        let key = match &sent.key {
            SentKey::Text(key) => Some(key.clone()),
            SentKey::MessageId | SentKey::DeduplicationId => self.expected_key(id),
            SentKey::Unusable => None,
        };
        // SQS accepts ten attributes, and a megabyte.
        let bytes = letter.body.len() + size(&attributes);
        let has_room = attributes.len() < 10 && bytes + LONGEST_LETTER <= MAX_MESSAGE_BYTES;
        let has_reason = letter.reason.as_ref().map_or(!has_room, |reason| attributes.len() < 10 && reason.key == key);
        // A FIFO queue needs a group and a deduplicationId, which a standard queue does not accept.
        let of_fifo = self.plan.has_fifo_letters().then_some(id);
        let has_group = letter.group.as_ref() == sent.group.as_ref().or(of_fifo);
        let has_group = has_group && letter.deduplication_id.as_ref() == of_fifo;
        let has_trace = letter.trace_header == sent.trace_header;
        attributes == sent.attributes && has_group && has_reason && has_body && has_trace
    }

    /// The calls for the record of a dead letter.
    fn letter_calls(&self, letter: &Letter) -> impl Iterator<Item = &Operation> {
        let key = letter_key(&letter.message_id);
        self.history.keys.get(&key).into_iter().flatten()
    }

    /// Whether a record showed before that the dead letter was sent.
    fn was_recorded_before(&self, letter: &Letter) -> bool {
        self.letter_calls(letter).any(|call| {
            matches!(call.call, Call::Complete { .. })
                && call.answer == Answer::Recorded
                && call.returned_us.is_some_and(|returned_us| returned_us < letter.sent_us)
        })
    }

    /// Whether the reason of a dead letter is that of its message: the receiver rejects the payload, the attempts are
    /// used up, a recovery is parked, another payload has the key, or it has no key or no payload.
    fn is_justified(&self, letter: &Letter) -> bool {
        use DeadLetterOutcome::{AttemptsUsedUp, Failed, FailedPermanently, Mismatch, NoKey, Parked, Unreadable};
        let Some(sent) = self.sent(&letter.message_id) else { return false };
        let Some(reason) = &letter.reason else { return true };
        let (is_poison, max_attempts) = (is_poison(&self.plan, sent.payment), self.plan.max_attempts);
        let key = self.expected_key(&letter.message_id);
        // A failure of another message, which shares key and payload, is not its own.
        let own = Hex(*MessageIdHash::of(&letter.message_id).as_bytes());
        let calls = key.as_ref().and_then(|key| self.history.keys.get(key)).into_iter().flatten();
        let mut calls = calls.filter(|call| call.call.request().message == own).peekable();
        let has_call = calls.peek().is_some();
        let mut has_recovery = || calls.any(|call| matches!(call.answer, Answer::Acquired { recovery: true, .. }));
        match reason.outcome {
            FailedPermanently => has_call && is_poison,
            AttemptsUsedUp => has_call && reason.attempts.is_some_and(|count| count >= max_attempts),
            Failed => has_call && (is_poison || max_attempts < 200 || self.plan.parks),
            Parked => self.plan.parks && has_recovery(),
            Mismatch => {
                let is_other = |id: &&String| self.sent(id).is_some_and(|other| other.payment != sent.payment);
                let ids = self.messages.iter().flat_map(|message| &message.message_ids);
                ids.filter(is_other).any(|id| key.is_some() && self.expected_key(id) == key)
            }
            NoKey => key.is_none() && !sent.is_unreadable(),
            Unreadable => self.is_unreadable(letter),
            other => unreachable!("no seed expects {other:?}"),
        }
    }

    /// Whether the message of a letter has no payload that its sender could read, and no record that decides its
    /// outcome.
    fn is_unreadable(&self, letter: &Letter) -> bool {
        let Letter { message_id, process, sent_us, .. } = letter;
        if !self.has_no_payload(message_id, process, *sent_us) {
            return false;
        }
        let Some(key) = self.expected_key(message_id) else { return true };
        let has_ended = |read: &&Read| read.call.ended_us.is_some_and(|ended_us| ended_us <= *sent_us);
        let read_us = self.reads(message_id, process).rfind(has_ended).map_or(0, |read| read.call.began_us);
        let own = Hex(*MessageIdHash::of(message_id).as_bytes());
        let is_acquire = |call: &&Operation| {
            matches!(call.call, Call::Acquire { .. })
                && call.process == *process
                && call.call.request().message == own
                && (read_us..=*sent_us).contains(&call.invoked_us)
        };
        let acquires = self.history.keys.get(&key).into_iter().flatten().filter(is_acquire);
        let last = acquires.max_by_key(|call| (call.invoked_us, call.number));
        last.is_some_and(|acquire| matches!(acquire.answer, Answer::Acquired { .. } | Answer::Failed))
    }
}

/// The key of the record of a message's dead letter.
pub(super) fn letter_key(message_id: &str) -> String {
    format!("dead-letter:{message_id}")
}

fn is_acquired(call: &Operation) -> bool {
    matches!(call.answer, Answer::Acquired { .. })
}
