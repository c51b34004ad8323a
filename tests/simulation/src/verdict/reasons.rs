//! Whether the reason in a line of the log, and in a dead letter, is that of its message.

use harness::lines::Line;
use history::{Answer, Call, Operation};
use idempotent_sqs::idempotency::WorkErrorKind;
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::sqs::Letter;
use crate::work::{ADDRESS, Attempt};
use crate::world::Run;

use super::invocations::{is_during, is_of};
use super::logs::is_of_message;
use super::notes::{is_moved, is_of_outage, split};

/// Longest reason of a letter, bytes: docs/failures.md.
const LONGEST_REASON: usize = 1024;

/// What precedes the reason of an in-batch duplicate.
const OF_DUPLICATE: &str = "same key and payload as another message of the batch: ";

/// The reason of a message that failed in an earlier delivery.
const FAILED_BEFORE: &str = "an earlier attempt failed permanently, or all attempts are used up; nothing ran; the log of \
                             the key has the reason";

impl Run {
    /// What is wrong with the reason of this line, as far as the calls for the message and its run tell.
    pub(super) fn wrong_reason(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
        line: &Line,
    ) -> Option<String> {
        let (whole, outcome) = (line.get("reason").unwrap_or_default(), line.get("outcome").unwrap_or_default());
        let (reason, note) = split(whole);
        let was_moved = line.get("disposition") == Some("dead_letter") || is_of_outage(whole) && note.is_some();
        if was_moved != is_moved(whole) {
            return Some("whether it was moved".to_owned());
        }
        if reason.starts_with(OF_DUPLICATE) != (outcome == "IN_BATCH_DUPLICATE") {
            return Some("whether another message ran for it".to_owned());
        }
        let expected = match outcome {
            "DUPLICATE" => "done before".to_owned(),
            "MISMATCH" => "the key was used with another payload".to_owned(),
            "FAILED" => FAILED_BEFORE.to_owned(),
            "CONFLICT" => {
                let remains = calls.iter().filter(|call| is_of(call, message)).find_map(|call| match call.answer {
                    Answer::Conflict { remains_ms } => Some(remains_ms),
                    _ => None,
                })?;
                format!("another owner holds the lease, for up to {remains} ms more")
            }
            "ACQUIRED" | "ACQUIRED_STALE" | "LOST" => self.expected_reason(invoked, calls, message, outcome)?,
            _ => return None,
        };
        (reason != expected && !(expected.ends_with(": ") && reason.starts_with(&expected)))
            .then(|| format!("its reason is {expected:?}"))
    }

    /// What is wrong with the reason of a letter. It is that of its line in the log, without addresses, and cut off if
    /// it is too long or there is no room.
    pub(super) fn wrong_letter_reason(&self, letter: &Letter) -> Option<String> {
        let of_letter = |invoked: &&Invoked| invoked.process == letter.process && is_during(letter.sent_us, invoked);
        let number = self.invocations.iter().find(of_letter)?.number.to_string();
        let is_own = |line: &&Line| {
            is_of_message(line)
                && line.get("number") == Some(&number)
                && line.get("message_id") == Some(&letter.message_id)
        };
        let whole = self.lines.iter().find(is_own)?.get("reason")?;
        let expected = split(whole).0.replace(ADDRESS, "<address>");
        let reason = &letter.reason.as_ref()?.reason;
        let is_right = match reason.strip_suffix('…') {
            // A large letter has room for less.
            Some(start) => {
                let is_longest = reason.len() + "ö".len() > LONGEST_REASON || self.plan.has_large;
                expected.starts_with(start) && expected.len() > LONGEST_REASON.min(reason.len()) && is_longest
            }
            None => *reason == expected || self.plan.has_large && expected.starts_with(reason),
        };
        (!is_right || reason.len() > LONGEST_REASON).then(|| format!("its reason is {expected:?}"))
    }

    /// The reason of a message that was acquired, or its start.
    fn expected_reason(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
        outcome: &str,
    ) -> Option<String> {
        let of_message = |call: &&&Operation| is_of(call, message);
        let last = calls.iter().filter(of_message).max_by_key(|call| (call.invoked_us, call.number))?;
        let run = self.runs_of(invoked).find(|run| run.message_id == message.message_id);
        let is_done = run.is_some_and(Attempt::is_done);
        if outcome == "LOST" {
            let why = "another owner acquired the record during the work";
            return Some(if is_done { format!("done; {why}") } else { why.to_owned() });
        }
        let error = || run.and_then(|run| run.error.clone());
        match &last.call {
            Call::Release { .. } => {
                // It was not started, or its receiver was found unavailable meanwhile.
                let error = run?.error.clone()?;
                Some(format!("unavailable: {error}"))
            }
            Call::Complete { .. } | Call::Fail { .. } if last.is_failed() => {
                let what =
                    if run.is_some() { "the work ran, but its outcome" } else { "the work did not run, and this" };
                Some(format!("{what} could not be recorded: "))
            }
            Call::Complete { .. } => Some("done".to_owned()),
            Call::Fail { claim, uncertain, permanent } => {
                let is_permanent = run?.returned == Some(Err(WorkErrorKind::Permanent));
                let is_last = claim.attempt >= self.plan.max_attempts;
                let effect = if *uncertain { ", and may have taken effect" } else { "" };
                let kind = match (permanent, is_permanent) {
                    (true, true) => format!("failed permanently{effect}"),
                    (true, false) if is_last => format!("attempts used up{effect}"),
                    (true, false) => return None,
                    (false, _) if *uncertain => "uncertain".to_owned(),
                    (false, _) => "failed".to_owned(),
                };
                let error = error().unwrap_or_default();
                Some(format!("{kind}: {error}"))
            }
            Call::Acquire { .. } => None,
        }
    }
}
