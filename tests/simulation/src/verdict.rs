//! The verdict on a run.

use std::collections::{BTreeMap, BTreeSet};

use history::{Answer, Call, LostTo, Operation, Outside, Report};
use idempotent_sqs::sqs::{DeadLetter, DeadLetterOutcome};
use idempotent_sqs_testing::MessageState;

use crate::plan::Fault;
use crate::receiver::is_poison;
use crate::work::Attempt;
use crate::world::Run;

/// The verdict on a run. Each fault is one text.
pub struct Verdict {
    pub report: Report,
    pub faults: Vec<String>,
}

impl Run {
    pub fn verdict(&self) -> Verdict {
        let effects: Vec<_> = self.effects.iter().map(|counted| counted.effect.clone()).collect();
        let report = Report::of_functions(&self.history, &Outside { effects, deleted: Vec::new() });
        let mut faults = Vec::new();
        faults.extend(report.not_linearizable.iter().chain(&report.undecided).chain(&report.not_in_model).cloned());
        let losses = &report.lost_writes;
        let may_lose = self.plan.has(Fault::FailOver) || self.plan.has(Fault::Flush);
        if !may_lose {
            faults.extend(losses.iter().cloned());
        }
        let is_lost = |fault: &str| {
            let key = fault.split(": ").next();
            may_lose && losses.iter().any(|loss| loss.split(": ").next() == key)
        };
        let wrong_attempts = self.wrong_attempts();
        faults.extend(report.wrong_effects.iter().chain(&wrong_attempts).filter(|fault| !is_lost(fault)).cloned());
        faults.extend(self.wrong_messages());
        faults.extend(self.wrong_order());
        if !self.drained {
            faults.push("the queue did not drain".to_owned());
        }
        Verdict { report, faults }
    }

    /// Whether the reason of a dead letter is that of its message: the receiver rejects the payload, the attempts are used
    /// up, or another payload has the key.
    fn is_justified(&self, letter: &DeadLetter, body: &str) -> bool {
        let is_used_up = letter.attempts.map_or(self.plan.max_attempts < 200, |count| count >= self.plan.max_attempts);
        letter.outcome == DeadLetterOutcome::Mismatch || is_poison(self.seed, body) || is_used_up
    }

    /// What is wrong with runs of the work: one that follows a run which may have had its effect is told so, and only such
    /// a run. Only without faults it is known that no process was lost before its run.
    fn wrong_attempts(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for attempt in &self.attempts {
            let Attempt { key, fence, is_recovery, .. } = attempt;
            let earlier = || self.attempts.iter().filter(|other| other.key == *key && other.fence < *fence);
            let may_repeat = earlier().any(|other| !other.is_clean);
            if self.plan.is_quiet && earlier().any(|other| other.is_done) {
                wrong.push(format!("{key}: this run follows one that was done: {attempt:?}"));
            }
            if may_repeat && !is_recovery {
                wrong.push(format!("{key}: this run was not told of an earlier one: {attempt:?}"));
            }
            if !may_repeat && *is_recovery && self.plan.is_quiet {
                wrong.push(format!("{key}: this run was told of an earlier one that had no effect: {attempt:?}"));
            }
            if attempt.is_late {
                wrong.push(format!("{key}: this run was polled after its claim ended: {attempt:?}"));
            }
        }
        wrong
    }

    /// Messages of a group whose first effects are not in the order of their sends. Without those that share a payload,
    /// and dead letters, whose groups go on.
    fn wrong_order(&self) -> Vec<String> {
        let sent = self.messages.iter().zip(self.sent.iter().map(|sent| &sent.group));
        let is_dead = |ids: &[String]| self.letters.iter().any(|letter| ids.contains(&letter.message_id));
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

    /// What is wrong with messages: each was deleted after its effect, or after its dead letter was sent.
    fn wrong_messages(&self) -> Vec<String> {
        let done: BTreeSet<_> = self.effects.iter().map(|counted| counted.body.as_str()).collect();
        let mut wrong = Vec::new();
        for (message, sent) in self.messages.iter().zip(&self.sent) {
            let mut keys = message.message_ids.iter().chain(&sent.key).filter_map(|key| self.history.keys.get(key));
            let is_recorded = keys.any(|calls| calls.iter().any(shows_completion));
            let letter = self.letters.iter().find(|letter| message.message_ids.contains(&letter.message_id));
            let why = match (&message.state, letter) {
                (MessageState::Deleted, None) if !done.contains(message.body.as_str()) => {
                    "was deleted without its effect"
                }
                (MessageState::Deleted, None) if !is_recorded => "was deleted although its effect was not recorded",
                (MessageState::Expired, _) => "expired",
                (_, Some(letter)) if !self.is_justified(letter, &message.body) => {
                    "has a dead letter, although its work can succeed"
                }
                _ => continue,
            };
            wrong.push(format!("{} {why}, dead letter {letter:?}: {message:?}", message.body));
        }
        wrong
    }
}

/// Whether the answer shows that the record is completed.
fn shows_completion(call: &Operation) -> bool {
    let is_complete = matches!(call.call, Call::Complete { .. });
    matches!(call.answer, Answer::Duplicate { .. } | Answer::Lost(LostTo::Completed))
        || is_complete && call.answer == Answer::Recorded
}
