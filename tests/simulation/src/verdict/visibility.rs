//! Whether each invocation changes the visibility timeouts that it should.

use std::ops::RangeInclusive;
use std::time::Duration;

use history::{Answer, Call, Operation, backoff_s};
use idempotent_sqs::idempotency::WorkErrorKind;
use idempotent_sqs_testing::ReceivedMessage;

use crate::function::Invoked;
use crate::queue::VisibilityChange;
use crate::world::Run;

use super::invocations::is_of;

impl Run {
    /// What is wrong with the visibility timeout of a message: after a conflict, it ends with the lease; after a failure, with
    /// the delay that the receiver asked for; and else with the backoff.
    pub(super) fn wrong_visibility(
        &self,
        invoked: &Invoked,
        calls: &[&Operation],
        message: &ReceivedMessage,
        change: Option<&VisibilityChange>,
    ) -> Option<String> {
        let retained = invoked.retained.as_ref()?;
        let is_named_in = |ids: &Vec<String>| ids.contains(&message.message_id);
        let own = || calls.iter().copied().filter(|call| is_of(call, message));
        let is_failure = |call: &Operation| matches!(call.call, Call::Fail { permanent: false, .. });
        let is_recorded = || own().any(|call| is_failure(call) && call.answer == Answer::Recorded);
        let backoff = backoff(if is_named_in(&invoked.malformed.receive_counts) { 1 } else { message.receive_count() });
        // A failure that was not recorded has the backoff, because the store is unavailable, and so has a last one.
        let run = self.runs_of(invoked).find(|run| run.message_id == message.message_id);
        let failure = run.and_then(|run| match run.returned {
            Some(Err(WorkErrorKind::Unavailable { after } | WorkErrorKind::Busy { after })) => {
                Some(after.map_or(backoff.clone(), |after| not_before(after, &backoff)))
            }
            Some(Err(WorkErrorKind::Retryable { after: Some(after) })) if is_recorded() => Some(requested(after)),
            Some(Err(WorkErrorKind::Retryable { after: None })) if is_recorded() => Some(backoff.clone()),
            _ => None,
        });
        let malformed = is_named_in(&invoked.malformed.messages).then(|| backoff.clone());
        let expected = own().find_map(remains).map(after_conflict).or(failure).or(malformed);
        let body = &message.body;
        let Some(change) = change else {
            let has_handle = !is_named_in(&invoked.malformed.receipt_handles);
            let is_missing = expected.is_some() && is_named_in(retained) && has_handle;
            return is_missing.then(|| format!("{body}: its visibility timeout was not changed: not {expected:?}"));
        };
        // A message that is a duplicate of another one in the batch, or waits for one of its group, follows that one.
        if self.plan.fifo || self.has_in_batch_duplicate(invoked, message) {
            return None;
        }
        let expected = expected.unwrap_or(backoff);
        (!expected.contains(&change.after)).then(|| format!("{body}: not {expected:?}: {change:?}"))
    }
}

/// How long the other lease lasts after a conflict.
fn remains(call: &Operation) -> Option<Duration> {
    match call.answer {
        Answer::Conflict { remains_ms } => Some(Duration::from_millis(remains_ms)),
        _ => None,
    }
}

/// As the receiver asked, and at least a second.
fn requested(after: Duration) -> RangeInclusive<Duration> {
    let after = after.max(Duration::from_secs(1));
    whole_seconds(after..=after)
}

/// As the receiver asked, and not before the backoff.
fn not_before(after: Duration, backoff: &RangeInclusive<Duration>) -> RangeInclusive<Duration> {
    whole_seconds(after.max(*backoff.start())..=after.max(*backoff.end()))
}

/// In whole seconds, which SQS has.
fn after_conflict(remains: Duration) -> RangeInclusive<Duration> {
    whole_seconds(remains..=remains + Duration::from_secs(2))
}

fn backoff(receive_count: u32) -> RangeInclusive<Duration> {
    let (from_s, to_s) = backoff_s(receive_count).into_inner();
    Duration::from_secs(from_s)..=Duration::from_secs(to_s)
}

fn whole_seconds(range: RangeInclusive<Duration>) -> RangeInclusive<Duration> {
    let up = |time: Duration| Duration::from_secs(time.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX));
    up(*range.start())..=up(*range.end())
}
