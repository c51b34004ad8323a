//! Whether each invocation changes the visibility timeouts that it should.

use std::ops::RangeInclusive;
use std::time::Duration;

use history::{Answer, Call, Operation, backoff_s};
use idempotent_sqs::idempotency::WorkErrorKind;
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::plan::Fault;
use crate::sqs::VisibilityChange;
use crate::world::Run;

use super::invocations::{has_calls, is_during, is_of};

/// SQS accepts 12 hours since the receive, of which the batching window may have taken 5 minutes and an invocation 15.
const LONGEST_DELAY: Duration = Duration::from_secs(12 * 3600 - 1200);

/// Changes of visibility timeouts wait for releases until this long before the end of the time for settling, µs: four
/// seconds, and as much as a process may be late.
const TO_CONCLUDE_US: u64 = 4_000_000 + 100_000;

/// How far apart in-batch duplicates are, seconds.
const APART_S: RangeInclusive<u64> = 5..=15;

impl Run {
    /// What is wrong with the visibility timeout of a message: a later one of its group has that of the first one that
    /// must be delivered again, and an in-batch duplicate one of 5 to 15 seconds after the message that ran, or before it if
    /// that has the longest.
    pub(super) fn wrong_visibility(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
    ) -> Option<String> {
        let Some(retained) = &invoked.retained else { return self.wrong_in_outage(invoked, calls, message) };
        if let Some(change) = self.change(invoked, message)
            && self.is_moved_by(invoked, calls, message)
        {
            return Some(format!("{}: is delivered again although its dead letter was sent: {change:?}", message.body));
        }
        let after = |message| self.change(invoked, message).map(|change| change.after);
        let has_handle = !is_named_in(&invoked.malformed.receipt_handles, message);
        let (expected, is_changed) = if let Some(first) = self.held_by(invoked, message) {
            // It is not known without a receipt handle.
            let expected = after(first)?;
            (expected..=expected, true)
        } else if let Some(ran) = self.ran_for(invoked, calls, message) {
            let ran = after(ran)?;
            let is_moved = self.is_letter_sent(&message.message_id, invoked.until_us);
            let [least, most] = [*APART_S.start(), *APART_S.end()].map(Duration::from_secs);
            let is_before = ran + most > LONGEST_DELAY && after(message).is_some_and(|after| after < ran);
            let apart = if is_before {
                ran.saturating_sub(most)..=ran.saturating_sub(least)
            } else {
                ran + least..=LONGEST_DELAY.min(ran + most)
            };
            (apart, !is_moved)
        } else if let Some(expected) = self.expected_delay(invoked, calls, message) {
            // A process may be frozen until just before the end.
            (expected, is_named_in(retained, message) && invoked.until_us <= self.changes_end_us(invoked))
        } else if self.has_in_batch_duplicate(invoked, message) && !has_calls(calls, message) {
            return None;
        } else {
            // Whether it is changed depends on the time that was left, unless its receiver is known to be unavailable.
            let has_time = self.has_time(invoked);
            if let Some(change) = self.change(invoked, message).filter(|_| has_lost(calls, message)) {
                return Some(format!("{}: another owner has its claim, but it has {change:?}", message.body));
            }
            // Behind messages of its group that are done, one that was not started for lack of time comes at once.
            let is_behind_done = self.earlier_of_group(invoked, message).next().is_some()
                && !self.follows_unchanged(invoked, calls, message);
            if self.lacks_only_time(invoked, calls, message) {
                let expected = is_behind_done.then_some(Duration::ZERO);
                let is_wrong = |change: &&VisibilityChange| Some(change.after) != expected;
                let change = self.change(invoked, message).filter(is_wrong)?;
                return Some(format!("{}: only the time for its work had passed, but it has {change:?}", message.body));
            }
            let has_run = self.runs_of(invoked).any(|run| run.message_id == message.message_id);
            if is_behind_done && !has_run && after(message) == Some(Duration::ZERO) {
                return None;
            }
            let waits =
                self.waits_for_receiver(invoked, calls, message) && !self.follows_unchanged(invoked, calls, message);
            (backoff_of(invoked, message), has_time && waits)
        };
        let is_right = after(message).map_or(!is_changed || !has_handle, |after| expected.contains(&after));
        (!is_right).then(|| format!("{}: visible after {:?}, not {expected:?}", message.body, after(message)))
    }

    /// What is wrong with the visibility timeout of a message whose invocation failed: each message has the backoff of
    /// the first one of its group, or its conflict ends with the lease, unless a record has no messageId. In-batch
    /// duplicates are at least 5 seconds apart.
    fn wrong_in_outage(&self, invoked: &Invoked, calls: &[&Operation], message: &ReceivedMessage) -> Option<String> {
        let change = self.change(invoked, message);
        let expected = self.delay_in_outage(invoked, calls, message);
        let has_time = self.has_time(invoked);
        let is_changed = !invoked.malformed.has_unnamed;
        let has_handle = !is_named_in(&invoked.malformed.receipt_handles, message);
        // A message that was done, or had no time, had no delay before the invocation failed.
        let was_delayed = |other: &&ReceivedMessage| {
            let is_acquire = |call: &&&Operation| matches!(call.call, Call::Acquire { .. }) && is_of(call, other);
            calls.iter().filter(is_acquire).all(|call| call.is_failed() || remains(call).is_some())
        };
        let ran = self.ran_for(invoked, calls, message).filter(was_delayed);
        let from =
            ran.and_then(|ran| self.change(invoked, ran)).map(|ran| ran.after + Duration::from_secs(*APART_S.start()));
        let is_right = match change {
            Some(change) => {
                is_changed && expected.contains(&change.after) && from.is_none_or(|from| change.after >= from)
            }
            None => !is_changed || !has_handle || !has_time,
        };
        (!is_right).then(|| format!("{}: {change:?} in an outage, not {expected:?} and from {from:?}", message.body))
    }

    /// The visibility timeout of a message whose invocation failed. An in-batch duplicate waits for 5 to 15 seconds
    /// longer than the message that has the calls.
    fn delay_in_outage(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
    ) -> RangeInclusive<Duration> {
        let group: Vec<_> = self.earlier_of_group(invoked, message).chain([message]).collect();
        let lease = |message: &ReceivedMessage| {
            let mut own = calls.iter().copied().filter(|call| is_of(call, message));
            own.find_map(remains).map(after_conflict)
        };
        let (mut from, mut to) = lease(group[0]).unwrap_or_else(|| backoff_of(invoked, group[0])).into_inner();
        for lease in group.iter().filter_map(|message| lease(message)) {
            (from, to) = (from.max(*lease.start()), to.max(*lease.end()));
        }
        for other in group.iter().flat_map(|message| self.with_its_key(invoked, message)) {
            let waits = lease(other).unwrap_or_else(|| backoff_of(invoked, other));
            to = to.max(*waits.end() + Duration::from_secs(*APART_S.end()));
        }
        from..=to.min(LONGEST_DELAY)
    }

    /// A visibility timeout that was changed before the records of acquires without a reply were released, unless less
    /// than four seconds were left: the message could be in conflict with its own acquire.
    pub(super) fn changed_before_release(&self, invoked: &Invoked, calls: &[&Operation]) -> Option<String> {
        let mut changes = invoked.messages.iter().filter_map(|message| self.change(invoked, message));
        let first = changes.find(|change| change.at_us + TO_CONCLUDE_US < self.settling_ends_us(invoked))?;
        let is_release = |call: &&&Operation| matches!(call.call, Call::Release { claim: None, .. });
        let mut releases = calls.iter().filter(is_release);
        let late = releases.find(|call| call.returned_us.is_some_and(|returned_us| returned_us > first.at_us))?;
        Some(format!("{}: visibility timeouts are changed before {late}: {first:?}", late.call.key()))
    }

    /// Whether an invocation had time to change visibility timeouts: a process may be frozen until the time for work
    /// has passed.
    fn has_time(&self, invoked: &Invoked) -> bool {
        invoked.until_us < self.work_ends_us(invoked) || !self.plan.has(Fault::Freeze)
    }

    /// The visibility timeout that it has: after a conflict, it ends with the lease; after a failure, with the delay
    /// that the receiver asked for; and after another one with the backoff. `None` if this is not known.
    pub(super) fn expected_delay(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
    ) -> Option<RangeInclusive<Duration>> {
        let own = || calls.iter().copied().filter(|call| is_of(call, message));
        let is_failure = |call: &Operation| matches!(call.call, Call::Fail { permanent: false, .. });
        let is_recorded = || own().any(|call| is_failure(call) && call.answer == Answer::Recorded);
        let is_outcome = |call: &&Operation| matches!(call.call, Call::Complete { .. } | Call::Fail { .. });
        let last = own().filter(is_outcome).max_by_key(|call| (call.invoked_us, call.number));
        let backoff = backoff_of(invoked, message);
        // An outcome that was not recorded has the backoff, because the store is unavailable. So may a last failure.
        let run = self.runs_of(invoked).find(|run| run.message_id == message.message_id);
        let failure = run.and_then(|run| match run.returned {
            Some(Err(WorkErrorKind::Unavailable { after } | WorkErrorKind::Busy { after })) => {
                Some(after.map_or(backoff.clone(), |after| not_before(after, &backoff)))
            }
            Some(Err(WorkErrorKind::Retryable { after: Some(after) })) if is_recorded() => Some(requested(after)),
            _ if is_recorded() || last.is_some_and(Operation::is_failed) => Some(backoff.clone()),
            _ => None,
        });
        let is_unread =
            is_named_in(&invoked.malformed.messages, message) || self.is_payload_unavailable(invoked, message);
        let unread = (is_unread && !self.follows_unchanged(invoked, calls, message)).then(|| backoff.clone());
        own().find_map(remains).map(after_conflict).or(failure).or(unread)
    }

    /// The first message of its group that must be delivered again, if this one comes after it: it has the same delay.
    /// A message may be delivered again because its delete was lost, so the first one is known by its change.
    fn held_by<'a>(&self, invoked: &'a Invoked, message: &ReceivedMessage) -> Option<&'a ReceivedMessage> {
        let is_held = |other: &&ReceivedMessage| {
            self.change(invoked, other).is_some() || is_named_in(&invoked.malformed.receipt_handles, other)
        };
        self.earlier_of_group(invoked, message).find(is_held)
    }

    /// Whether an earlier message of its group is delivered again with an unchanged visibility timeout, because the
    /// time for work ended, not because its delete was lost. Then the visibility timeout of this one is not changed
    /// either.
    fn follows_unchanged(&self, invoked: &Invoked, calls: &[&Operation], message: &ReceivedMessage) -> bool {
        let is_done = |other: &ReceivedMessage| {
            calls.iter().any(|call| is_of(call, other) && call.shows_completion())
                || self.is_letter_sent(&other.message_id, invoked.until_us)
        };
        self.earlier_of_group(invoked, message).any(|other| {
            let is_retained = invoked.retained.as_ref().is_some_and(|retained| is_named_in(retained, other));
            is_retained && self.change(invoked, other).is_none() && !is_done(other)
        })
    }

    /// The messages before it in its invocation that are of its group, if the queue is FIFO.
    fn earlier_of_group<'a>(
        &self,
        invoked: &'a Invoked,
        message: &ReceivedMessage,
    ) -> impl Iterator<Item = &'a ReceivedMessage> {
        let group = |other: &ReceivedMessage| self.sent(&other.message_id)?.group.as_ref();
        let own = group(message).filter(|_| self.plan.fifo);
        let before = invoked.messages.iter().take_while(|other| other.message_id != message.message_id);
        before.filter(move |other| own.is_some() && group(other) == own)
    }

    /// The change of its visibility timeout in this invocation.
    pub(super) fn change(&self, invoked: &Invoked, message: &ReceivedMessage) -> Option<&VisibilityChange> {
        let mut changes = self.changes.iter().filter(|change| is_during(change.at_us, invoked));
        changes.find(|change| change.receipt_handle == message.receipt_handle)
    }
}

/// Whether the work of a message ran, and its outcome was not recorded because another owner has the record.
fn has_lost(calls: &[&Operation], message: &ReceivedMessage) -> bool {
    let is_outcome = |call: &&&Operation| matches!(call.call, Call::Complete { .. } | Call::Fail { .. });
    let outcomes = calls.iter().filter(|call| is_of(call, message)).filter(is_outcome);
    outcomes
        .max_by_key(|call| (call.invoked_us, call.number))
        .is_some_and(|call| matches!(call.answer, Answer::Lost(_)))
}

fn is_named_in(ids: &[String], message: &ReceivedMessage) -> bool {
    ids.contains(&message.message_id)
}

/// How long the other lease lasts after a conflict.
pub(super) fn remains(call: &Operation) -> Option<Duration> {
    match call.answer {
        Answer::Conflict { remains_ms } => Some(Duration::from_millis(remains_ms)),
        _ => None,
    }
}

/// As the receiver asked, and at least a second.
fn requested(after: Duration) -> RangeInclusive<Duration> {
    let after = after.clamp(Duration::from_secs(1), LONGEST_DELAY);
    whole_seconds(after..=after)
}

/// As the receiver asked, and not before the backoff.
fn not_before(after: Duration, backoff: &RangeInclusive<Duration>) -> RangeInclusive<Duration> {
    let after = after.min(LONGEST_DELAY);
    whole_seconds(after.max(*backoff.start())..=after.max(*backoff.end()))
}

/// In whole seconds, which SQS has.
fn after_conflict(remains: Duration) -> RangeInclusive<Duration> {
    whole_seconds(remains..=remains + Duration::from_secs(2))
}

/// The backoff of its receive count, which is 1 if it cannot be read.
pub(super) fn backoff_of(invoked: &Invoked, message: &ReceivedMessage) -> RangeInclusive<Duration> {
    let is_unreadable = is_named_in(&invoked.malformed.receive_counts, message);
    let (from_s, to_s) = backoff_s(if is_unreadable { 1 } else { message.receive_count() }).into_inner();
    Duration::from_secs(from_s)..=Duration::from_secs(to_s)
}

fn whole_seconds(range: RangeInclusive<Duration>) -> RangeInclusive<Duration> {
    let up = |time: Duration| Duration::from_secs(time.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX));
    up(*range.start())..=up(*range.end())
}
