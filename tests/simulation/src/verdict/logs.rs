//! Whether the log has one line for each message of an invocation, and whether it says what happened.

use std::collections::{BTreeMap, BTreeSet};

use harness::lines::Line;
use history::{Answer, Call, Operation};
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::sent::SentKey;
use crate::world::Run;

use super::invocations::is_of;

/// What an acquire and the call that settles it say of a message.
#[derive(Default)]
struct Known {
    outcome: Option<&'static str>,
    fence: Option<u64>,
    attempt: Option<u8>,
}

impl Run {
    /// What is wrong with the lines on messages. An invocation that fails because a record has no messageId has none.
    pub(super) fn wrong_lines(&self) -> Vec<String> {
        let mut lines: BTreeMap<usize, Vec<&Line>> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| is_of_message(line)) {
            let number = line.get("number").and_then(|number| number.parse().ok());
            lines.entry(number.unwrap_or(usize::MAX)).or_default().push(line);
        }
        let mut wrong = Vec::new();
        for invoked in &self.invocations {
            let (calls, lines) = (self.calls(invoked), lines.remove(&invoked.number).unwrap_or_default());
            let has_lines = invoked.retained.is_some() || !invoked.malformed.has_unnamed;
            if lines.len() != if has_lines { invoked.messages.len() } else { 0 } {
                wrong.push(format!("{} lines on the messages of {invoked:?}", lines.len()));
            }
            for message in invoked.messages.iter().filter(|_| has_lines) {
                let own: Vec<_> =
                    lines.iter().filter(|line| line.get("message_id") == Some(&message.message_id)).collect();
                let [line] = own[..] else {
                    wrong.push(format!("{}: {} lines in {invoked:?}", message.body, own.len()));
                    continue;
                };
                let faults = self.wrong_fields(invoked, &calls, message, line).into_iter();
                let faults = faults.chain(self.wrong_reason(invoked, &calls, message, line));
                let faults = faults.chain(self.wrong_note(invoked, &calls, message, line));
                wrong.extend(faults.map(|fault| format!("{}: {fault}: {line:?}", message.body)));
            }
        }
        wrong
    }

    fn wrong_fields(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
        line: &Line,
    ) -> Option<String> {
        let is_in = |ids: &[String]| ids.contains(&message.message_id);
        let count = (!is_in(&invoked.malformed.receive_counts)).then(|| message.receive_count().to_string());
        if line.get("receive_count").map(str::to_owned) != count {
            return Some(format!("its receive count is {count:?}"));
        }
        // A change may have been refused, or not have been made in time.
        let after_s = self.change(invoked, message).map(|change| format!("{:?}", change.after.as_secs_f64()));
        if after_s.is_some() && line.get("retry_after_s").map(str::to_owned) != after_s {
            return Some(format!("it is visible after {after_s:?} s"));
        }
        let is_retained = invoked.retained.as_ref().is_none_or(|retained| is_in(retained));
        let is_moved = self.is_letter_sent(&message.message_id, invoked.until_us);
        // A message may be delivered again because its delete was lost. An invocation that fails deletes none.
        let is_disposed = match line.get("disposition") {
            Some("redeliver") => is_retained,
            Some("dead_letter") => is_moved,
            Some("done") => invoked.retained.is_some() && (!is_retained || !self.plan.is_quiet),
            _ => false,
        };
        if !is_disposed {
            return Some(format!("delivered again: {is_retained}, moved: {is_moved}"));
        }
        if let (Some(key), Some(expected)) = (line.get("idempotency_key"), self.expected_text(message))
            && key != expected
        {
            return Some(format!("its key is {expected:?}"));
        }
        let Known { outcome, fence, attempt } = self.known(invoked, calls, message);
        let fields = [line.get("fence"), line.get("attempt")].map(|field| field.and_then(|text| text.parse().ok()));
        let expected = [fence, attempt.map(u64::from)];
        let is_shared = line.get("outcome") == Some("IN_BATCH_DUPLICATE");
        // An in-batch duplicate has those of the message that ran.
        if outcome.is_some_and(|outcome| line.get("outcome") != Some(outcome)) || fields != expected && !is_shared {
            return Some(format!("its outcome is {outcome:?} with {expected:?}"));
        }
        None
    }

    /// What is wrong with the warnings that a message was delivered again during a lease. A process logs it once.
    pub(super) fn wrong_overlaps(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut warned = BTreeSet::new();
        for invoked in &self.invocations {
            let number = invoked.number.to_string();
            let own = || self.lines.iter().filter(|line| line.get("number") == Some(&*number));
            let warnings =
                own().filter(|line| line.get("message").is_some_and(|text| text.contains("during a lease of its key")));
            let overlaps = own().any(|line| {
                let count = line.get("receive_count").and_then(|count| count.parse::<u32>().ok());
                line.get("outcome") == Some("CONFLICT") && count.is_some_and(|count| count > 1)
            });
            let expected = overlaps && warned.insert(&invoked.process);
            if warnings.count() != usize::from(expected) {
                wrong.push(format!("a message came during a lease: {expected}, first in its process: {invoked:?}"));
            }
        }
        wrong
    }

    /// The key of a message as its producer wrote it, if it has one.
    fn expected_text(&self, message: &ReceivedMessage) -> Option<String> {
        match &self.sent(&message.message_id)?.key {
            SentKey::Text(key) => Some(key.clone()),
            SentKey::MessageId | SentKey::DeduplicationId => self.expected_key(&message.message_id),
            SentKey::Unusable => None,
        }
    }

    /// What the calls for a message show. Nothing is known of the outcome of a message without calls that may have had
    /// no time, and of one whose payload could not be read.
    fn known(&self, invoked: &Invoked, calls: &[&Operation], message: &ReceivedMessage) -> Known {
        let own = || calls.iter().copied().filter(|call| is_of(call, message));
        let last = own().max_by_key(|call| (call.invoked_us, call.number));
        let acquire = own().filter(|call| matches!(call.call, Call::Acquire { .. })).max_by_key(|call| call.invoked_us);
        let is_lost =
            last.is_some_and(|call| matches!(call.call, Call::Complete { .. } | Call::Fail { .. }) && is_taken(call));
        let outcome = |outcome| Known { outcome: Some(outcome), ..Known::default() };
        match acquire.map(|acquire| &acquire.answer) {
            Some(Answer::Acquired { fence, attempt, recovery }) => {
                let outcome = match recovery {
                    _ if is_lost => Some("LOST"),
                    // Parked, which is lost too, or not started.
                    true if self.plan.parks && last.is_some_and(|call| is_release(call) && is_taken(call)) => None,
                    true => Some("ACQUIRED_STALE"),
                    false => Some("ACQUIRED"),
                };
                // Without a payload, a claim is released.
                if !self.has_payload(invoked, message) && last.is_some_and(is_release) {
                    return Known { outcome: Some("UNREADABLE"), ..Known::default() };
                }
                Known { outcome, fence: Some(*fence), attempt: Some(*attempt) }
            }
            Some(Answer::Duplicate { fence, attempts, .. }) => {
                Known { outcome: Some("DUPLICATE"), fence: Some(*fence), attempt: Some(*attempts) }
            }
            Some(Answer::Conflict { .. }) => outcome("CONFLICT"),
            Some(Answer::Mismatch) => outcome("MISMATCH"),
            Some(Answer::Failed) => outcome("FAILED"),
            Some(Answer::NotARecord) => outcome("NOT_A_RECORD"),
            Some(_) => outcome("UNAVAILABLE"),
            None if self.ran_for(invoked, calls, message).is_some() => outcome("IN_BATCH_DUPLICATE"),
            None => Known::default(),
        }
    }
}

/// Whether another owner had the record when the claim was settled.
fn is_taken(call: &Operation) -> bool {
    matches!(call.answer, Answer::Lost(_))
}

fn is_release(call: &Operation) -> bool {
    matches!(call.call, Call::Release { .. })
}

/// Whether a line says what happened to a message. Others are warnings.
pub(super) fn is_of_message(line: &Line) -> bool {
    line.get("message") == Some("message")
}
