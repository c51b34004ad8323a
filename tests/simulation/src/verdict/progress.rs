//! Whether messages are started as soon as the concurrency allows, whatever receivers do that are unavailable, and
//! whether no more payloads of S3 are in memory than that.

use history::{Call, Operation};
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::plan::Fault;
use crate::work::{Attempt, receiver};
use crate::world::Run;

use super::invocations::{CLOCK_US, has_outage, is_of};
use super::letters::letter_key;

/// When a message of an invocation was processed, µs.
struct Processed<'a> {
    message: &'a ReceivedMessage,
    receiver: &'static str,
    /// Whether its receiver was known to be unavailable when the invocation began.
    is_probe: bool,
    /// Whether its payload is in S3.
    is_pointer: bool,
    /// When the payload in S3 was first asked for. `None` if it may not be.
    read_us: Option<u64>,
    /// When its first step began.
    began_us: u64,
    /// From its acquire until it was settled, during which another message may be processed.
    runs_us: Option<(u64, u64)>,
    /// When its last step ended, and its last step without its dead letter.
    ended_us: u64,
    settled_us: u64,
}

impl Run {
    /// What is wrong with the progress of invocations whose messages have different keys, and wait only for each other.
    pub(super) fn wrong_progress(&self) -> Vec<String> {
        // A process that does not run starts nothing, and messages of a group wait for each other.
        if self.plan.has(Fault::Freeze) || self.plan.fifo {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        for invoked in self.invocations.iter().filter(|invoked| !invoked.malformed.has_unnamed) {
            if invoked.messages.iter().any(|message| self.has_in_batch_duplicate(invoked, message)) {
                continue;
            }
            if self.has_tie(&invoked.process, invoked.from_us) {
                continue;
            }
            let calls = self.calls(invoked);
            let of_messages = invoked.messages.iter().filter_map(|message| self.processed(invoked, &calls, message));
            let processed: Vec<_> = of_messages.collect();
            if !has_outage(&calls) {
                wrong.extend(self.started_late(invoked, &processed));
            }
            wrong.extend(self.too_many_payloads(invoked, &processed));
        }
        wrong
    }

    /// `None` if its record is malformed.
    fn processed<'a>(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &'a ReceivedMessage,
    ) -> Option<Processed<'a>> {
        let sent =
            self.sent(&message.message_id).filter(|_| !invoked.malformed.messages.contains(&message.message_id))?;
        let receiver = receiver(sent.payment, self.plan.receivers);
        let last = self.last_at(receiver, &invoked.process, invoked.from_us);
        let end_us = |ended_us: Option<u64>| ended_us.unwrap_or(u64::MAX).min(invoked.until_us);
        // A message does not wait for the release of an acquire without a reply.
        let is_processing = |call: &Operation| !matches!(call.call, Call::Release { claim: None, .. });
        let own = || calls.iter().filter(|call| is_of(call, message) && is_processing(call));
        let letter = letter_key(&message.message_id);
        let of_letter = || calls.iter().filter(|call| call.call.key() == letter);
        let reads = self.reads(&message.message_id, &invoked.process);
        let reads: Vec<_> =
            reads.filter(|read| (invoked.from_us..=invoked.until_us).contains(&read.call.began_us)).collect();
        let acquired_us = own().map(|call| call.invoked_us).min();
        let read_us = reads.iter().map(|read| read.call.began_us).min();
        let settled_us = own().map(|call| end_us(call.returned_us.or(call.failed_us)));
        let settled_us =
            settled_us.chain(reads.iter().map(|read| end_us(read.call.ended_us))).max().unwrap_or_default();
        let settles = own().filter(|call| !matches!(call.call, Call::Acquire { .. })).map(|call| call.invoked_us).min();
        let of_letter_us = of_letter().map(|call| (call.invoked_us, end_us(call.returned_us.or(call.failed_us))));
        let letter_us = of_letter_us.reduce(|(from, to), (other, until)| (from.min(other), to.max(until)));
        let starts = [acquired_us, read_us, letter_us.map(|(from_us, _)| from_us)];
        Some(Processed {
            message,
            receiver,
            is_probe: last.is_some_and(Attempt::is_unavailable),
            is_pointer: sent.object.is_some(),
            read_us,
            began_us: starts.into_iter().flatten().min().unwrap_or(u64::MAX),
            runs_us: acquired_us.map(|from_us| (from_us, settles.unwrap_or(settled_us))),
            ended_us: settled_us.max(letter_us.map_or(0, |(_, until_us)| until_us)),
            settled_us,
        })
    }

    /// Messages that were not started although fewer than allowed were processed.
    fn started_late(&self, invoked: &Invoked, all: &[Processed<'_>]) -> Vec<String> {
        let has_pointers = invoked
            .messages
            .iter()
            .any(|message| self.sent(&message.message_id).is_some_and(|sent| sent.object.is_some()));
        let lanes = self.plan.concurrency * if has_pointers { 1 } else { 2 };
        let usual = || all.iter().filter(|other| !other.is_probe);
        let is_full = |at_us: u64| {
            let in_lanes = usual().filter(|other| (other.began_us..=other.ended_us).contains(&at_us)).count();
            // Messages to a receiver that was unavailable are processed beside the others, after the first one with
            // them.
            let takes_slot = |other: &&Processed<'_>| !other.is_probe || self.is_probed(invoked, other.receiver, at_us);
            let is_running = |other: &&Processed<'_>| {
                let during = |(from_us, until_us): (u64, u64)| (from_us..=until_us).contains(&at_us);
                let in_memory = other.is_pointer.then_some((other.began_us, other.settled_us));
                other.runs_us.into_iter().chain(in_memory).any(during)
            };
            in_lanes >= lanes || all.iter().filter(takes_slot).filter(is_running).count() >= self.plan.concurrency
        };
        let mut wrong = Vec::new();
        for message in usual().filter(|message| message.began_us < u64::MAX) {
            // A message may start when another one has ended.
            let ends =
                all.iter().flat_map(|other| [other.ended_us, other.settled_us, other.runs_us.map_or(0, |runs| runs.1)]);
            let mut free =
                ends.chain([invoked.ran_us]).filter(|ended_us| (invoked.ran_us..message.began_us).contains(ended_us));
            let is_free = |ended_us: &u64| {
                (1..=WAIT_US / STEP_US).all(|step| {
                    let at_us = ended_us + step * STEP_US;
                    at_us < message.began_us && !is_full(at_us)
                })
            };
            if let Some(free_us) = free.find(is_free) {
                let Processed { message, began_us, .. } = message;
                wrong
                    .push(format!("{}: starts at {began_us} µs, and could at {free_us} µs: {invoked:?}", message.body));
            }
        }
        wrong
    }

    /// Payloads that are read while as many as the concurrency are in memory, and one of each receiver that is
    /// unavailable.
    fn too_many_payloads(&self, invoked: &Invoked, all: &[Processed<'_>]) -> Vec<String> {
        let mut wrong = Vec::new();
        for read in all {
            let Some(read_us) = read.read_us else { continue };
            let is_held = |other: &&Processed<'_>| {
                other.read_us.is_some_and(|other_us| other_us <= read_us) && read_us + CLOCK_US < other.settled_us
            };
            let is_probe = |other: &&Processed<'_>| {
                let from_us = other.read_us.unwrap_or(u64::MAX);
                other.is_probe && !self.is_probed(invoked, other.receiver, from_us.saturating_sub(CLOCK_US))
            };
            let held = all.iter().filter(is_held).filter(|other| !is_probe(other)).count();
            let of_receiver = |other: &&Processed<'_>| is_probe(other) && other.receiver == read.receiver;
            let probes = all.iter().filter(is_held).filter(of_receiver).count();
            if held > self.plan.concurrency || is_probe(&read) && probes > 1 {
                let Processed { message, .. } = read;
                wrong.push(format!("{}: {held} payloads, and {probes} of its receiver: {invoked:?}", message.body));
            }
        }
        wrong
    }

    /// Whether a run of this invocation has shown by this time, µs, that a receiver is available or is not. The
    /// payloads of its later messages count as those of others.
    fn is_probed(&self, invoked: &Invoked, receiver: &str, at_us: u64) -> bool {
        let mut runs = self.runs_of(invoked).filter(|run| run.receiver == receiver && run.ran_us <= at_us);
        runs.any(|run| run.is_done() || run.is_unavailable())
    }
}

/// How long a message may wait for nothing, and how often this is looked at, µs.
const WAIT_US: u64 = 30_000;
const STEP_US: u64 = 5_000;
