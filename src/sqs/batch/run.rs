//! One run of a batch.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter::successors;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;
use tracing::Instrument;

use super::Batch;
use super::lanes::Lanes;
use super::outages::Outages;
use super::process::key_of;
use super::receivers::Receivers;
use crate::idempotency::{Deadline, FailedAcquire, Fingerprint, Key, Owners, Store, StoreError, Work, catch};
use crate::sqs::disposition::Disposition;
use crate::sqs::key::KeySource;
use crate::sqs::message::Message;
use crate::sqs::message_report::MessageReport;
use crate::sqs::payload::Payload;
use crate::sqs::timings::Timings;
use crate::traces;

/// One run of a batch.
pub(super) struct Run<'a, S, W> {
    pub(super) batch: &'a Batch<S, W>,
    pub(super) messages: &'a [Message],
    /// The payload of each message.
    pub(super) payloads: Vec<Payload<'a>>,
    /// The key of each message. If its payload is in S3, the key that is known without it.
    pub(super) keys: Vec<Result<Key, MessageReport>>,
    pub(super) lanes: Lanes,
    pub(super) deadline: Deadline,
    /// Half of the time from the start of the batch to [`Deadline::work`].
    half: Duration,
    /// `None` measures nothing.
    pub(super) timings: Option<&'a Timings>,
    pub(super) owners: Owners,
    /// When the batch was received.
    pub(super) received: SystemTime,
    pub(super) receivers: Receivers<'a>,
    /// Whether any payload is in S3, so that its key may not be known yet.
    pub(super) has_pointers: bool,
    /// Keys that several messages have.
    pub(super) repeated_keys: HashSet<Key>,
    /// Reports by key and payload. The first message of each runs, and the others wait for its report.
    pub(super) shared_reports: Mutex<HashMap<(Key, Fingerprint), SharedReport>>,
    /// Limits the number of messages that run concurrently.
    pub(super) slots: Semaphore,
    /// The same for messages to receivers that are known to be unavailable, which may hang.
    pub(super) probe_slots: Semaphore,
    /// Limits the number of payloads from S3 that are in memory, without those that are sent one at a time to receivers
    /// that are known to be unavailable.
    pub(super) payload_slots: Semaphore,
    /// The report on each message.
    reports: Mutex<Vec<MessageReport>>,
    /// No message is started that these affect.
    pub(super) outages: Outages,
    /// Acquires without a reply, whose records are released while the others go on.
    unanswered: UnboundedSender<FailedAcquire>,
    /// Whether any work was started.
    pub(super) started: AtomicBool,
    /// Whether any message is done, or is a dead letter.
    done: AtomicBool,
    /// Whether any work ran, or any dead letter was sent.
    pub(super) ran: AtomicBool,
    /// Whether the send of a dead letter failed slowly. No further one is sent.
    pub(super) letters_fail_slowly: AtomicBool,
}

/// Why a message is not sent to its receiver.
pub(super) const RECEIVER_UNAVAILABLE: &str = "another message of the batch found its receiver unavailable";

/// The same, because another message is being sent there.
pub(super) const RECEIVER_PROBED: &str = "its receiver was unavailable, and another message is being sent there";

/// The report that messages with the same key and payload share.
pub(super) type SharedReport = Arc<OnceCell<MessageReport>>;

impl<'a, S: Store, W: Work<Message>> Run<'a, S, W> {
    pub(super) fn new(
        batch: &'a Batch<S, W>,
        messages: &'a [Message],
        deadline: Deadline,
        timings: Option<&'a Timings>,
        unanswered: UnboundedSender<FailedAcquire>,
    ) -> Self {
        let payloads: Vec<_> = messages.iter().map(|message| Payload::of(message, batch.settings.envelopes)).collect();
        let known = |payload| KeySource::independent_of_s3(&batch.settings.keys, payload);
        let keys: Vec<_> =
            messages.iter().zip(&payloads).map(|(message, payload)| key_of(message, payload, known(payload))).collect();
        let concurrency = batch.settings.concurrency.get().min(Semaphore::MAX_PERMITS);
        Self {
            batch,
            messages,
            has_pointers: payloads.iter().any(|payload| payload.pointer().is_some()),
            payloads,
            repeated_keys: repeated(&keys),
            keys,
            lanes: Lanes::of(messages),
            deadline,
            half: deadline.work.saturating_duration_since(Instant::now()) / 2,
            timings,
            owners: Owners::random(),
            received: SystemTime::now(),
            receivers: Receivers::new(&batch.unavailable),
            shared_reports: Mutex::default(),
            slots: Semaphore::new(concurrency),
            probe_slots: Semaphore::new(concurrency),
            payload_slots: Semaphore::new(concurrency),
            reports: Mutex::new(vec![MessageReport::no_time(); messages.len()]),
            outages: Outages::default(),
            unanswered,
            started: AtomicBool::new(false),
            done: AtomicBool::new(false),
            ran: AtomicBool::new(false),
            letters_fail_slowly: AtomicBool::new(false),
        }
    }

    /// The report on each message, and the error of a store that was unavailable before any work ran.
    pub(super) fn into_reports(self) -> (Vec<MessageReport>, Option<StoreError>) {
        let mut reports = self.reports.into_inner().unwrap_or_else(PoisonError::into_inner);
        let outage = self.outages.into_error().filter(|_| !self.ran.into_inner());
        if outage.is_some() {
            // The invocation fails, so all messages of a lane are delivered again, in order: none before an earlier
            // one.
            for first in &self.lanes.firsts {
                let mut disposition = reports[*first].first_in_outage(&self.messages[*first]);
                let mut next = Some(*first);
                while let Some(index) = next {
                    reports[index] = reports[index].in_outage(disposition);
                    disposition = reports[index].disposition;
                    next = self.lanes.next[index];
                }
            }
        }
        (reports, outage)
    }

    /// The first message of each lane, separately for each receiver that is known to be unavailable. The receiver of a
    /// lane is that of its first message. The lanes of other receivers come first.
    pub(super) fn lanes_by_receiver(&self) -> Vec<(Option<&str>, Vec<usize>)> {
        // Finding a receiver may parse the payload, which each message also does when it runs.
        if self.receivers.none_known_unavailable() {
            return vec![(None, self.lanes.firsts.clone())];
        }
        let mut by_receiver: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        for first in &self.lanes.firsts {
            let receiver = self.receiver(&self.messages[*first]);
            let unavailable = self.receivers.is_known_unavailable(receiver).then_some(receiver);
            by_receiver.entry(unavailable).or_default().push(*first);
        }
        let mut groups: Vec<_> = by_receiver.into_iter().collect();
        let others = groups.partition_point(|(unavailable, _)| unavailable.is_none());
        let unavailable = &mut groups[others..];
        // More receivers may hang than there are slots for them, so each batch begins with a random one.
        unavailable.rotate_left(random_index(unavailable.len()));
        groups
    }

    /// Whether any payload of this lane is in S3.
    pub(super) fn has_pointers_in(&self, first: usize) -> bool {
        let mut lane = successors(Some(first), |index| self.lanes.next[*index]);
        self.has_pointers && lane.any(|index| self.payloads[index].pointer().is_some())
    }

    /// Processes the messages of a lane in order, up to the first one that must be delivered again: later messages of
    /// its group must not overtake it. SQS delivers them only after it, so a shorter visibility timeout would not bring
    /// them sooner, and a longer one would delay them: all get the same disposition.
    pub(super) async fn run_lane(&self, first: usize) {
        let (mut next, mut held) = (Some(first), None);
        while let Some(index) = next {
            let message = &self.messages[index];
            let Message { id, queue_arn, trace_header, .. } = message;
            let span = traces::of_message(id, queue_arn.as_deref(), trace_header.as_deref());
            let report = if let Some(held) = held {
                let why = "an earlier message of its group must be delivered again";
                self.with_known_key(index, MessageReport::not_processed(held, why))
            } else {
                let report = self.process(index).instrument(span.clone()).await;
                let report = if index == first { report } else { report.behind_done() };
                match report.dead_letter {
                    // Boxed, because this rare case would enlarge the future of every message.
                    Some(_) => Box::pin(self.move_dead_letter(message, report)).instrument(span.clone()).await,
                    None => report,
                }
            };
            report.record_in(&span);
            match report.disposition {
                Disposition::Redeliver { .. } => held = Some(report.disposition),
                Disposition::Done | Disposition::DeadLetter => self.done.store(true, Ordering::Relaxed),
            }
            self.reports.lock().unwrap_or_else(PoisonError::into_inner)[index] = report;
            next = self.lanes.next[index];
        }
    }

    /// Records the outage that an acquire has found, and has its record released: the message does not wait for that,
    /// because its part of the store may not reply until the deadline, and messages of other parts need its slot.
    /// Returns the error of the acquire.
    pub(super) fn release_later(&self, failed: FailedAcquire) -> StoreError {
        let error = failed.error.clone();
        if error.is_unavailable() {
            self.outages.record(Some(self.part(&failed.request.key)), &error);
            // The receiver is dropped after the run.
            drop(self.unanswered.send(failed));
        }
        error
    }

    fn part(&self, key: &Key) -> usize {
        self.batch.idempotency.store().part(key)
    }

    /// The receiver of this message. A panic concerns only its own message, which then has the default receiver.
    pub(super) fn receiver<'m>(&'m self, message: &'m Message) -> &'m str {
        catch(|| self.batch.work.receiver(message)).unwrap_or_default()
    }

    /// The report if no further message with this key can be started.
    pub(super) fn cannot_run(&self, message: &Message, receiver: &str, key: Option<&Key>) -> Option<MessageReport> {
        if self.outages.affect(key.map(|key| self.part(key))) {
            return Some(MessageReport::backed_off(message, "the idempotency store is unavailable"));
        }
        (!self.has_time_for(message)).then(|| {
            if self.receivers.is_known_unavailable(receiver) {
                MessageReport::backed_off(message, "too little time was left, and its receiver is unavailable")
            } else {
                MessageReport::no_time()
            }
        })
    }

    /// Whether the work on this message can end before its deadline, or the batch has made no progress yet. More than half
    /// of the time that the batch had at its start is not asked for, so that a function with a short timeout can run more
    /// than one message.
    pub(super) fn has_time_for(&self, message: &Message) -> bool {
        let left = self.deadline.work.saturating_duration_since(Instant::now());
        // A panic concerns only its own message, which then has no longest time.
        let longest = || catch(|| self.batch.work.longest_run(message)).unwrap_or_default();
        !left.is_zero() && (!self.has_progressed() || left >= self.half || left >= longest())
    }

    /// Whether any work was started, any dead letter was sent, or any message is done. The last does not count in an
    /// outage: unless work runs or a dead letter is sent, the invocation fails, and such messages are not acknowledged.
    fn has_progressed(&self) -> bool {
        let [started, ran, done] = [&self.started, &self.ran, &self.done].map(|flag| flag.load(Ordering::Relaxed));
        started || ran || done && !self.outages.affect(None)
    }

    /// The report if this message with this key to this receiver must not be started.
    pub(super) fn must_not_start(&self, message: &Message, receiver: &str, key: &Key) -> Option<MessageReport> {
        if self.receivers.is_unavailable(receiver) {
            return Some(MessageReport::backed_off(message, RECEIVER_UNAVAILABLE));
        }
        self.cannot_run(message, receiver, Some(key))
    }
}

/// The keys that more than one message has.
fn repeated(keys: &[Result<Key, MessageReport>]) -> HashSet<Key> {
    let mut seen = HashSet::with_capacity(keys.len());
    keys.iter().flatten().filter(|key| !seen.insert(*key)).cloned().collect()
}

/// A random index of a list with this length. 0 if the operating system returns no random bytes.
fn random_index(length: usize) -> usize {
    // A list of one needs no system call.
    if length < 2 { 0 } else { getrandom::u32().map_or(0, |number| number as usize % length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_index_is_any_of_the_list() {
        assert_eq!(random_index(0), 0);
        for length in 1..=4 {
            let seen: HashSet<usize> = (0..400).map(|_| random_index(length)).collect();
            assert_eq!(seen, (0..length).collect());
        }
    }
}
