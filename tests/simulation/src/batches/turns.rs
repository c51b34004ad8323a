//! Which messages may be sent, by what is known of their receivers.

use std::collections::BTreeSet;

use super::scene::{Answers, Shows, Step, What};
use super::{Kind, Round, Sent};

/// The receivers that were unavailable when they were last called.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(BTreeSet<String>);

impl Known {
    pub(super) fn contains(&self, receiver: &str) -> bool {
        self.0.contains(receiver)
    }

    /// Learns from the steps of messages, whose ids begin with their receiver.
    pub(super) fn learn(&mut self, steps: &[Step]) {
        for step in steps {
            let receiver = step.id.split('-').next().unwrap_or_default();
            match step.what {
                What::End(Shows::Available) => drop(self.0.remove(receiver)),
                What::End(Shows::Unavailable | Shows::Unreachable) => drop(self.0.insert(receiver.to_owned())),
                _ => {}
            }
        }
    }

    /// What is known after these steps.
    pub(super) fn after(&self, steps: &[Step]) -> Self {
        let mut known = self.clone();
        known.learn(steps);
        known
    }
}

/// Where this step of a message is.
pub(super) fn position(steps: &[Step], id: &str, is_step: impl Fn(What) -> bool) -> Option<usize> {
    steps.iter().position(|step| step.id == id && is_step(step.what))
}

/// Where the call of a message ends, or the acquire of one without a call.
pub(super) fn end(steps: &[Step], id: &str) -> Option<usize> {
    let has_call = position(steps, id, |what| matches!(what, What::Call { .. })).is_some();
    position(steps, id, |what| if has_call { matches!(what, What::End(_)) } else { what == What::Reply })
}

impl Round {
    /// Messages that are started after one has found their receiver unavailable, and those that are sent beside
    /// another one to a receiver that was unavailable when it was last called.
    pub(super) fn wrong_turns(&self, steps: &[Step], known: &Known) -> Vec<String> {
        let mut wrong = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let (sent, before) = (self.sent(&step.id), &steps[..at]);
            let of_batch = |other: &&Step| self.sent(&other.id).batch == sent.batch;
            let is_found = before.iter().filter(of_batch).any(|other| {
                let is_same = self.sent(&other.id).receiver == sent.receiver;
                is_same && matches!(other.what, What::End(Shows::Unavailable | Shows::Unreachable))
            });
            // It is known once its message is settled.
            let is_unreachable = before.iter().filter(of_batch).any(|other| {
                let ended = position(before, &other.id, |what| what == What::End(Shows::Unreachable));
                other.what == What::Settled && ended.is_some()
            });
            match step.what {
                What::Acquire | What::Call { is_attempt: true } if is_found => {
                    wrong.push(format!("{step:?} follows one whose receiver was unavailable"));
                }
                What::Acquire | What::Fetch if is_unreachable => {
                    wrong.push(format!("{step:?} follows one without what all need"));
                }
                What::Acquire if known.after(before).contains(sent.receiver) => {
                    if let Some(other) = self.beside(sent, steps, at, known) {
                        wrong
                            .push(format!("{step:?}: its receiver was unavailable, and {other:?} is being sent there"));
                    }
                }
                _ => {}
            }
        }
        wrong
    }

    /// A message of its batch that is being sent to the receiver of this one, which is acquired at this step. Without
    /// those that were acquired before the receiver was unavailable.
    fn beside(&self, sent: &Sent, steps: &[Step], at: usize, known: &Known) -> Option<&Sent> {
        self.messages.iter().filter(|other| (other.batch, other.receiver) == (sent.batch, sent.receiver)).find(
            |other| {
                let acquired = position(&steps[..at], &other.id, |what| what == What::Acquire);
                acquired.is_some_and(|acquired| {
                    let was_known = known.after(&steps[..acquired]).contains(sent.receiver);
                    was_known && end(&steps[..at], &other.id).is_none()
                })
            },
        )
    }

    /// Messages that are not sent, although nothing keeps them from it: their receiver responds, and they are the first
    /// of their group.
    pub(super) fn not_sent(&self, steps: &[Step], known: &Known) -> Vec<String> {
        if self.answers.contains(&Answers::Unreachable) {
            return Vec::new();
        }
        let must_be_sent = |sent: &&Sent| {
            let is_known = known.contains(sent.receiver);
            let may_wait = sent.kind == Kind::InS3 && is_known;
            let has_payload = matches!(sent.kind, Kind::Inline | Kind::InS3);
            self.is_first(sent) && has_payload && !may_wait && self.answers(sent.receiver) == Answers::Works
        };
        let is_sent = |sent: &&Sent| position(steps, &sent.id, |what| matches!(what, What::Call { .. })).is_some();
        let held = self.messages.iter().filter(must_be_sent).filter(|sent| !is_sent(sent));
        held.map(|sent| format!("{} is not sent, although its receiver responds", sent.id)).collect()
    }
}
