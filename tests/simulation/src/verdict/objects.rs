//! Whether payloads in S3 are read only where and when they should, and their messages end as the answers say.

use std::time::Duration;

use history::{Answer, Operation};
use idempotent_sqs_testing::ReceivedMessage;

use crate::callers::CALLER;
use crate::function::Invoked;
use crate::objects::{Call, Read, ReadAnswer};
use crate::plan::{Fault, Plan};
use crate::producers::{BUCKET, KEY_ATTRIBUTE};
use crate::sent::{ObjectState, Sent};
use crate::world::Run;

use super::invocations::{CLOCK_US, has_calls, is_during};

/// Longest time of one read: docs/envelopes.md.
const LONGEST_READ: Duration = Duration::from_secs(10);

impl Run {
    /// What is wrong with reads of payloads, and with what follows them.
    pub(super) fn wrong_objects(&self) -> Vec<String> {
        let mut wrong: Vec<_> = self.payload_reads().filter_map(|read| self.wrong_read(read)).collect();
        for invoked in &self.invocations {
            let calls = self.calls(invoked);
            let is_own = |read: &&Read| read.call.process == invoked.process && is_during(read.call.began_us, invoked);
            for read in self.objects.reads.iter().filter(is_own) {
                wrong.extend(self.wrong_time(read, invoked, &calls));
            }
            wrong.extend(invoked.messages.iter().filter_map(|message| self.wrong_answer(invoked, &calls, message)));
        }
        wrong
    }

    /// The reads of the function, which reads no results.
    fn payload_reads(&self) -> impl Iterator<Item = &Read> {
        self.objects.reads.iter().filter(|read| read.call.process != CALLER)
    }

    /// Whether a read is not that of the payload of a message, has another limit, or takes too long.
    fn wrong_read(&self, read: &Read) -> Option<String> {
        let is_payload = self.sent.iter().filter_map(|sent| sent.object.as_ref()).any(|object| {
            object.name == read.call.name && object.state != ObjectState::OtherBucket && read.call.bucket == BUCKET
        });
        let max_bytes = self.plan.objects.as_ref().map_or(4 << 20, |objects| objects.payload_max_bytes);
        let is_right = is_payload && read.max_bytes == max_bytes && !is_too_long(&self.plan, &read.call, LONGEST_READ);
        (!is_right).then(|| format!("no payload of a message, or not within its limits: {read:?}"))
    }

    /// Whether a read of this invocation begins when no message may be started, ends after the time for work, or more
    /// run at once than the concurrency.
    fn wrong_time(&self, read: &Read, invoked: &Invoked, calls: &[&Operation]) -> Option<String> {
        let ends_us = self.work_ends_us(invoked) + CLOCK_US;
        if read.call.began_us > ends_us || is_late(&self.plan, &read.call, ends_us) {
            return Some(format!("this read is after the deadline: {read:?}"));
        }
        // The key of a message with this attribute is known without its payload: of a cluster, another node may respond.
        let has_key = |sent: &Sent| {
            let is_its_payload = sent.object.as_ref().is_some_and(|object| object.name == read.call.name);
            is_its_payload && sent.attributes.contains_key(KEY_ATTRIBUTE)
        };
        let may_respond = self.plan.servers > 1 && self.sent.iter().any(has_key);
        let is_outage = |call: &&&Operation| {
            let is_before = call.returned_us.is_some_and(|returned_us| returned_us < read.call.began_us);
            matches!(call.call, history::Call::Acquire { .. })
                && call.answer == Answer::NotExecuted
                && is_before
                && !call.is_of_dead_letter()
        };
        if !may_respond && let Some(failed) = calls.iter().find(is_outage) {
            return Some(format!("{read:?} follows {failed}, which found no server"));
        }
        // Lanes of a receiver that is unavailable are separate.
        let lanes = 1 + self.unavailable_to(&invoked.process, invoked.from_us);
        let is_too_many = read.running > self.plan.concurrency * lanes;
        is_too_many.then(|| format!("more reads than the concurrency: {read:?}"))
    }

    /// Whether a message in S3 has calls or runs that the answer to the read of its payload does not allow.
    fn wrong_answer(&self, invoked: &Invoked, calls: &[&Operation], message: &ReceivedMessage) -> Option<String> {
        let object = self.sent(&message.message_id)?.object.as_ref()?;
        let answer = self.read_in(invoked, message).map(|read| read.answer);
        let is_unread = match answer {
            Some(Some(ReadAnswer::Payload)) => return None,
            Some(Some(ReadAnswer::NotNow) | None) => true,
            Some(Some(ReadAnswer::NotFound | ReadAnswer::TooLarge)) => false,
            None => object.state != ObjectState::OtherBucket,
        };
        let ran = self.runs_of(invoked).find(|run| run.message_id == message.message_id);
        let is_wrong = ran.is_some() || is_unread && has_calls(calls, message);
        is_wrong
            .then(|| format!("{}: its payload was not read ({answer:?}), but it was started: {ran:?}", message.body))
    }

    /// The last read of a message's payload in this invocation.
    pub(super) fn read_in(&self, invoked: &Invoked, message: &ReceivedMessage) -> Option<&Read> {
        let read = self.read_before(&message.message_id, &invoked.process, invoked.until_us)?;
        is_during(read.call.began_us, invoked).then_some(read)
    }

    /// The last read of a message's payload by this process that began before this time, µs.
    pub(super) fn read_before(&self, message_id: &str, process: &str, before_us: u64) -> Option<&Read> {
        self.reads(message_id, process).rfind(|read| read.call.began_us <= before_us)
    }

    /// The reads of a message's payload by this process. Other messages may have the same object.
    pub(super) fn reads(&self, message_id: &str, process: &str) -> impl DoubleEndedIterator<Item = &Read> {
        let object = self.sent(message_id).and_then(|sent| sent.object.as_ref());
        let is_own = move |read: &&Read| {
            read.call.process == process && object.is_some_and(|object| read.call.name == object.name)
        };
        self.objects.reads.iter().filter(is_own)
    }

    /// Whether the payload of a message is known in this invocation.
    pub(super) fn has_payload(&self, invoked: &Invoked, message: &ReceivedMessage) -> bool {
        let Some(sent) = self.sent(&message.message_id) else { return false };
        let is_text = sent.object.as_ref().is_none_or(|object| object.state != ObjectState::NotText);
        let is_read = || self.read_in(invoked, message).is_some_and(|read| read.answer == Some(ReadAnswer::Payload));
        sent.object.is_none() || is_text && is_read()
    }

    /// Whether the payload of a message could not be read in this invocation, and may be in another one.
    pub(super) fn is_payload_unavailable(&self, invoked: &Invoked, message: &ReceivedMessage) -> bool {
        self.read_in(invoked, message).is_some_and(|read| matches!(read.answer, Some(ReadAnswer::NotNow) | None))
    }

    /// Whether the message has no payload that this process can read, as it last found before this time, µs.
    pub(super) fn has_no_payload(&self, message_id: &str, process: &str, before_us: u64) -> bool {
        self.sent(message_id).is_some_and(crate::sent::Sent::is_unreadable)
            || self.is_payload_missing(message_id, process, before_us)
    }

    /// Whether its payload is no longer in S3, as this process last found before this time, µs.
    pub(super) fn is_payload_missing(&self, message_id: &str, process: &str, before_us: u64) -> bool {
        let read = self.read_before(message_id, process, before_us);
        read.is_some_and(|read| read.answer == Some(ReadAnswer::NotFound))
    }
}

/// Whether a call of S3 ends after this time, µs. A process that does not run ends it when it runs again.
pub(super) fn is_late(plan: &Plan, call: &Call, ends_us: u64) -> bool {
    !plan.has(Fault::Freeze) && call.ended_us.is_some_and(|ended_us| ended_us > ends_us)
}

/// Whether a call of S3 takes longer than this.
pub(super) fn is_too_long(plan: &Plan, call: &Call, longest: Duration) -> bool {
    let longest_us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    is_late(plan, call, call.began_us.saturating_add(longest_us).saturating_add(CLOCK_US))
}
