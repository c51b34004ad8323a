//! Whether the line of a message says what happened to its dead letter, and whether a letter that could not be sent is
//! a warning: docs/failures.md.

use harness::lines::Line;
use history::{Answer, Call, Operation};
use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::sqs::SdkCall;
use crate::world::Run;

use super::invocations::is_during;
use super::letters::letter_key;

/// What follows the reason of a message that is moved, now or before, or not yet.
const MOVED: &str = "; moved to the dead-letter queue";
const MOVED_BEFORE: &str = "; its dead letter was sent before";
const NOT_MOVED: &str = "; not moved to the dead-letter queue: ";

/// What follows the reason of a message that an invocation without Redis found done or moved.
const NOT_ACKNOWLEDGED: &str = "; not acknowledged, because the idempotency store is unavailable";

/// What happened to a dead letter.
enum Note {
    Moved,
    MovedBefore,
    /// It waits: this is no failure.
    Waits(&'static str),
    /// It cannot be sent as it is.
    Refused(&'static str),
    /// SQS refused it, or did not respond.
    Failed,
}

/// The reason of a line, and the note that follows it.
pub(super) fn split(whole: &str) -> (&str, Option<&str>) {
    let whole = without_outage(whole);
    let at = [MOVED, MOVED_BEFORE, NOT_MOVED].iter().filter_map(|note| whole.find(note)).min();
    at.map_or((whole, None), |at| (&whole[..at], Some(&whole[at..])))
}

/// Whether the note of a reason says that the letter was sent, now or before.
pub(super) fn is_moved(whole: &str) -> bool {
    split(whole).1.is_some_and(|note| !note.starts_with(NOT_MOVED))
}

/// Whether an invocation without Redis found the message done or moved.
pub(super) fn is_of_outage(whole: &str) -> bool {
    whole.ends_with(NOT_ACKNOWLEDGED)
}

fn without_outage(whole: &str) -> &str {
    whole.strip_suffix(NOT_ACKNOWLEDGED).unwrap_or(whole)
}

impl Run {
    /// What is wrong with the note in this line of a message, and with the warnings on its letter.
    pub(super) fn wrong_note(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
        line: &Line,
    ) -> Option<String> {
        let (_reason, note) = split(line.get("reason").unwrap_or_default());
        let number = invoked.number.to_string();
        let is_warning = |line: &&Line| {
            line.get("message") == Some("a dead letter was not sent")
                && line.get("number") == Some(&number)
                && line.get("message_id") == Some(&message.message_id)
        };
        let warnings: Vec<_> = self.lines.iter().filter(is_warning).collect();
        let key = letter_key(&message.message_id);
        let own: Vec<_> = calls.iter().copied().filter(|call| call.call.key() == key).collect();
        let Some(note) = note else {
            return (!own.is_empty() || !warnings.is_empty())
                .then(|| "it lacks what happened to its letter".to_owned());
        };
        let expected = self.expected_note(invoked, &own, message)?;
        let (text, has_advice) = match expected {
            Note::Moved => (MOVED.to_owned(), None),
            Note::MovedBefore => (MOVED_BEFORE.to_owned(), None),
            Note::Waits(why) => (format!("{NOT_MOVED}{why}"), None),
            Note::Refused(why) => (format!("{NOT_MOVED}{why}"), Some(false)),
            Note::Failed => (NOT_MOVED.to_owned(), Some(true)),
        };
        let is_text =
            note == text || matches!(expected, Note::Failed) && note.len() > text.len() && note.starts_with(&text);
        let found: Vec<_> = warnings.iter().map(|warning| warning.get("advice").is_some()).collect();
        let is_warned = found == Vec::from_iter(has_advice)
            && warnings.iter().all(|warning| note.strip_prefix(NOT_MOVED) == warning.get("reason"));
        (!is_text || !is_warned)
            .then(|| format!("what happened to its letter is {text:?}, with the warnings {warnings:?}"))
    }

    /// What happened to the letter of a message, by the calls for its record. `None` if these do not tell.
    fn expected_note(&self, invoked: &Invoked, own: &[&Operation], message: &ReceivedMessage) -> Option<Note> {
        let (id, malformed) = (&message.message_id, &invoked.malformed);
        let acquire =
            own.iter().filter(|call| matches!(call.call, Call::Acquire { .. })).max_by_key(|call| call.number);
        let Some(acquire) = acquire else {
            // It may have no body.
            return match () {
                () if malformed.messages.contains(id) => None,
                () if malformed.attributes.contains(id) => {
                    Some(Note::Refused("it has an attribute that cannot be read"))
                }
                () if self.plan.is_own_letter_queue && !malformed.other_queue.contains(id) => {
                    Some(Note::Refused("DEAD_LETTER_QUEUE_URL is the queue that it came from"))
                }
                () if self.had_slow_letter(invoked) => None,
                () => Some(Note::Waits("no time was left to send it")),
            };
        };
        match acquire.answer {
            Answer::Duplicate { .. } => Some(Note::MovedBefore),
            Answer::Conflict { .. } => Some(Note::Waits("another delivery is sending its dead letter")),
            Answer::Mismatch => Some(Note::Refused(
                "a message of another queue with the same messageId has the record of its dead letter",
            )),
            Answer::Unknown | Answer::NotExecuted => Some(Note::Waits("the idempotency store is unavailable")),
            Answer::Acquired { .. } if own.iter().any(|call| matches!(call.call, Call::Complete { .. })) => {
                Some(Note::Moved)
            }
            Answer::Acquired { .. } => {
                // A release that fails does not change what is said of the send.
                let is_unsettled = |call: &&Operation| {
                    matches!(call.call, Call::Fail { .. })
                        && (call.is_failed() || matches!(call.answer, Answer::Lost(_)))
                };
                let sends: Vec<_> = self.sends(invoked).collect();
                // A letter without its reason does not name its message.
                let is_known = |send: &&SdkCall| letter_of(send).is_some();
                let is_own = |send: &&SdkCall| letter_of(send).as_ref() == Some(id);
                match () {
                    () if own.iter().max_by_key(|call| call.number).is_some_and(is_unsettled) => {
                        Some(Note::Refused("its record could not be acquired or settled"))
                    }
                    () if sends.iter().any(is_own) => Some(Note::Failed),
                    () if sends.iter().all(is_known) => Some(Note::Waits("no time was left to send it")),
                    () => None,
                }
            }
            Answer::Failed | Answer::Recorded | Answer::Lost(_) | Answer::NotARecord => None,
        }
    }

    /// The letters that an invocation sent.
    pub(super) fn sends<'a>(&'a self, invoked: &'a Invoked) -> impl Iterator<Item = &'a SdkCall> {
        let own = self.sqs_calls.iter().filter(|call| call.action == "SendMessage" && call.process == invoked.process);
        own.filter(|call| is_during(call.at_us, invoked))
    }
}

/// The id of the message whose letter this call sends, if it has a reason.
fn letter_of(send: &SdkCall) -> Option<String> {
    let text = send.input["MessageAttributes"][DeadLetter::ATTRIBUTE]["StringValue"].as_str()?;
    Some(serde_json::from_str::<DeadLetter>(text).ok()?.message_id)
}
