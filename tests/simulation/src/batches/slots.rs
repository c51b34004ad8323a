//! Whether messages are sent as soon as they may be, whatever receivers do that are known to be unavailable.

use tokio::time::Instant;

use super::scene::{Shows, Step, What};
use super::turns::{Known, end, position};
use super::{Kind, Round, Sent};

impl Round {
    /// Messages that are sent although they could have been sent earlier: fewer than the concurrency were processed,
    /// without those that are sent one at a time to receivers that were unavailable.
    pub(super) fn sent_late(&self, steps: &[Step], known: &Known) -> Vec<String> {
        let mut wrong = Vec::new();
        for sent in self.messages.iter().filter(|sent| self.is_first(sent)) {
            let Some(began) = sent.began(steps).filter(|_| sent.takes_slot(steps, known)) else { continue };
            let free = if known.contains(sent.receiver) {
                // Others are sent there one at a time too.
                if sent.kind != Kind::Inline {
                    continue;
                }
                self.recovered(sent.receiver, steps)
            } else {
                steps.first().map(|step| step.at)
            };
            let Some(free) = free else { continue };
            let times = steps.iter().map(|step| step.at).filter(|at| (free..began).contains(at));
            if let Some(at) = times.clone().find(|at| !self.is_full(sent, steps, known, *at)) {
                wrong.push(format!("{} is sent at {began:?}, and could at {at:?}", sent.id));
            }
        }
        wrong
    }

    /// When the messages of a receiver that was unavailable may be sent at the same time: after the first group in which
    /// it did the work of a message, and after the groups of this receiver that began before.
    fn recovered(&self, receiver: &str, steps: &[Step]) -> Option<Instant> {
        let is_done =
            |step: &&Step| step.what == What::End(Shows::Available) && self.sent(&step.id).receiver == receiver;
        let lanes = steps.iter().filter(is_done).map(|step| self.sent(&step.id).lane);
        let first = lanes.filter_map(|lane| self.lane(lane, steps)).map(|(_, until)| until).min()?;
        let of_receiver = self.messages.iter().filter(|sent| self.is_first(sent) && sent.receiver == receiver);
        let others = of_receiver.filter_map(|sent| self.lane(sent.lane, steps)).filter(|(from, _)| *from < first);
        Some(others.map(|(_, until)| until).fold(first, Instant::max))
    }

    /// From the first until the last step of a lane.
    fn lane(&self, lane: usize, steps: &[Step]) -> Option<(Instant, Instant)> {
        let mut of_lane = steps.iter().filter(|step| self.sent(&step.id).lane == lane).map(|step| step.at);
        let from = of_lane.next()?;
        Some((from, of_lane.next_back().unwrap_or(from)))
    }

    /// Whether a message cannot be started at this time: others have the slots, the lanes of its receiver, or the memory
    /// for payloads.
    fn is_full(&self, sent: &Sent, steps: &[Step], known: &Known, at: Instant) -> bool {
        let during = |(from, until): (Instant, Instant)| (from..until).contains(&at);
        let processed = |sent: &Sent| {
            let acquired = position(steps, &sent.id, |what| what == What::Acquire)?;
            Some((steps[acquired].at, steps[end(steps, &sent.id)?].at))
        };
        let in_memory = |sent: &Sent| {
            let last = steps.iter().rfind(|step| step.id == sent.id)?;
            Some((sent.began(steps)?, last.at))
        };
        let slots = self.messages.iter().filter(|other| other.takes_slot(steps, known));
        let slots = slots.filter(|other| processed(other).is_some_and(during)).count();
        let has_objects = self.messages.iter().any(Sent::is_in_s3);
        // Payloads of receivers that were known to be unavailable have no slot.
        let payloads = self.messages.iter().filter(|other| other.is_in_s3() && other.takes_payload_slot(steps, known));
        let payloads = payloads.filter(|other| in_memory(other).is_some_and(during)).count();
        // The lanes of receivers that are not known to be unavailable are one group, and so are those of each other one.
        let group = |sent: &Sent| known.contains(sent.receiver).then_some(sent.receiver);
        let lanes = self.messages.iter().filter(|other| self.is_first(other) && group(other) == group(sent));
        let lanes = lanes.filter(|other| self.lane(other.lane, steps).is_some_and(during)).count();
        slots >= self.concurrency
            || lanes >= if has_objects { self.concurrency } else { 2 * self.concurrency }
            // A lane may wait for it too.
            || payloads >= self.concurrency
    }
}

impl Sent {
    /// When the first step of a message began.
    fn began(&self, steps: &[Step]) -> Option<Instant> {
        steps.iter().find(|step| step.id == self.id).map(|step| step.at)
    }

    /// Whether a message has one of the slots: its receiver was not known to be unavailable when it was acquired.
    fn takes_slot(&self, steps: &[Step], known: &Known) -> bool {
        let acquired = position(steps, &self.id, |what| what == What::Acquire);
        acquired.is_some_and(|acquired| !known.after(&steps[..acquired]).contains(self.receiver))
    }

    /// Whether a message has one of the slots for payloads in S3: its receiver was not known to be unavailable when the
    /// payload was read.
    fn takes_payload_slot(&self, steps: &[Step], known: &Known) -> bool {
        let read = position(steps, &self.id, |what| what == What::Fetch);
        read.is_none_or(|read| !known.after(&steps[..read]).contains(self.receiver))
    }
}
