//! Whether receivers that are unavailable are spared, and other messages are started nevertheless.

use history::Operation;
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::work::{Attempt, RECEIVERS, receiver};
use crate::world::Run;

use super::invocations::{has_calls, has_outage};

impl Run {
    /// Runs at a receiver that is unavailable: none follows in the invocation that found it so, and later invocations
    /// of the process call it once at a time, until it does the work of one.
    pub(super) fn wrong_receivers(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for invoked in &self.invocations {
            for run in self.runs_of(invoked) {
                let is_before = |other: &Attempt| other.receiver == run.receiver && other.ran_us < run.began_us;
                if self.runs_of(invoked).any(|other| other.is_unavailable() && is_before(other)) {
                    wrong.push(format!("{}: this run follows one whose receiver was unavailable: {run:?}", run.key));
                }
                let last = self.last_at(run.receiver, &run.process, run.began_us);
                let is_known = !self.has_tie(&run.process, run.began_us);
                if is_known && last.is_some_and(Attempt::is_unavailable) && run.at_receiver > 1 {
                    wrong.push(format!("{}: the receiver was unavailable, and is called by several: {run:?}", run.key));
                }
            }
        }
        wrong
    }

    /// Whether a message was not started, although there was time, its payload and its key could be read, and neither
    /// the store nor its receiver is known to be unavailable.
    pub(super) fn is_held_back(&self, invoked: &Invoked, calls: &[&Operation], message: &ReceivedMessage) -> bool {
        let Some(sent) = self.sent(&message.message_id) else { return false };
        let is_malformed = invoked.malformed.has_unnamed || invoked.malformed.messages.contains(&message.message_id);
        let has_time = invoked.until_us < self.work_ends_us(invoked);
        let is_readable =
            !is_malformed && self.has_payload(invoked, message) && self.expected_key(&message.message_id).is_some();
        if invoked.retained.is_none() || !is_readable || !has_time || self.plan.fifo {
            return false;
        }
        let receiver = receiver(sent.payment, self.plan.receivers);
        let mut runs = self.runs_of(invoked).filter(|run| run.receiver == receiver);
        let is_unavailable = runs.any(Attempt::is_unavailable)
            || self.last_at(receiver, &invoked.process, invoked.from_us).is_some_and(Attempt::is_unavailable);
        let is_started = has_calls(calls, message) || self.has_in_batch_duplicate(invoked, message);
        !is_unavailable && !has_outage(calls) && !is_started
    }

    /// Whether a message was not started, and its receiver was known to be unavailable during the whole invocation.
    /// Then it has the backoff.
    pub(super) fn waits_for_receiver(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
    ) -> bool {
        let is_malformed = invoked.malformed.messages.contains(&message.message_id);
        let Some(sent) = self.sent(&message.message_id).filter(|_| !is_malformed) else { return false };
        let receiver = receiver(sent.payment, self.plan.receivers);
        let last = self.last_at(receiver, &invoked.process, invoked.from_us);
        let mut runs = self.runs_of(invoked).filter(|run| run.receiver == receiver);
        let is_named = invoked.retained.as_ref().is_some_and(|retained| retained.contains(&message.message_id));
        is_named
            && sent.object.is_none()
            && self.expected_key(&message.message_id).is_some()
            && last.is_some_and(Attempt::is_unavailable)
            && !runs.any(Attempt::is_done)
            && !has_calls(calls, message)
    }

    /// Whether nothing but a lack of time can have kept a message from its start: its payload and its key can be read,
    /// the store answers, and its receiver is not known to be unavailable.
    pub(super) fn lacks_only_time(&self, invoked: &Invoked, calls: &[&Operation], message: &ReceivedMessage) -> bool {
        let is_malformed = invoked.malformed.messages.contains(&message.message_id);
        let Some(sent) = self.sent(&message.message_id).filter(|_| !is_malformed) else { return false };
        let receiver = receiver(sent.payment, self.plan.receivers);
        let last = self.last_at(receiver, &invoked.process, invoked.from_us);
        let mut runs = self.runs_of(invoked).filter(|run| run.receiver == receiver);
        sent.object.is_none()
            && self.expected_key(&message.message_id).is_some()
            && !has_calls(calls, message)
            && !has_outage(calls)
            && !last.is_some_and(Attempt::is_unavailable)
            && !runs.any(Attempt::is_unavailable)
    }

    /// Number of receivers that were unavailable when this run began. Each is called by one more run.
    pub(super) fn unavailable_at(&self, run: &Attempt) -> usize {
        self.unavailable_to(&run.process, run.began_us)
    }

    /// Number of receivers that were unavailable when a process called them last before this time, µs.
    pub(super) fn unavailable_to(&self, process: &str, before_us: u64) -> usize {
        let lasts = RECEIVERS.iter().filter_map(|receiver| self.last_at(receiver, process, before_us));
        lasts.filter(|last| last.is_unavailable()).count()
    }

    /// The last run of a process before this time, µs, that shows whether this receiver is available.
    pub(super) fn last_at(&self, receiver: &str, process: &str, before_us: u64) -> Option<&Attempt> {
        let runs = self.attempts.iter().filter(|run| run.receiver == receiver && run.process == process);
        let ended = runs.filter(|run| run.ran_us < before_us && (run.is_done() || run.is_unavailable()));
        ended.max_by_key(|run| run.ran_us)
    }

    /// Whether the last runs of a receiver before this time, µs, ended at the same time, and only one of them was done.
    /// Which one the process has seen last is not known.
    pub(super) fn has_tie(&self, process: &str, before_us: u64) -> bool {
        let mut lasts = RECEIVERS.iter().filter_map(|receiver| self.last_at(receiver, process, before_us));
        lasts.any(|last| {
            let mut same = self.attempts.iter().filter(|run| run.process == process && run.receiver == last.receiver);
            same.any(|run| {
                run.ran_us == last.ran_us && (run.is_done() || run.is_unavailable()) && run.is_done() != last.is_done()
            })
        })
    }
}
