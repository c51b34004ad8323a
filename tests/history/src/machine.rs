//! One execution of a call on the pure state machine, and the times that have to be tried for it.

use std::iter;
use std::time::Duration;

use idempotent_sqs::idempotency::protocol::{self, AcquireAnswer, Record, RecordState, SettleRequest};
use idempotent_sqs::idempotency::{AcquireRequest, Failure, Fence, Settled};

use crate::event::{Answer, Call, Claim, Hex};
use crate::history::Operation;

/// What an execution depends on beside its call and the record: the server's clock, and the lease that an acquire got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// µs since 1970.
    pub now_us: u64,
    /// ms.
    pub lease_ms: u64,
}

/// How long a server may keep an expired record, ms: it compares whole ms, by a clock that it read before the script.
const EXPIRY_SLACK_MS: u64 = 1;

/// What the server may find at this time.
pub(crate) fn found(record: Option<&Record>, now_us: u64) -> impl Iterator<Item = Option<&Record>> {
    let kept = record.filter(|record| record.expires_ms + EXPIRY_SLACK_MS >= now_us / 1000);
    let expired = record.is_none_or(|record| record.expires_ms <= now_us / 1000);
    kept.map(Some).into_iter().chain(expired.then_some(None))
}

/// Executes the call. Returns the answer, and the record if it changes.
#[must_use]
pub(crate) fn execute(operation: &Operation, record: Option<&Record>, choice: Choice) -> (Answer, Option<Record>) {
    let Choice { now_us, lease_ms } = choice;
    let attempt = &operation.attempt;
    match &operation.call {
        Call::Acquire { .. } => {
            let mut request = attempt.clone();
            request.lease = Duration::from_millis(lease_ms);
            let (answer, changed) = protocol::acquire(record, &request, now_us);
            (acquired(answer), changed)
        }
        Call::Complete { claim, result } => {
            settled(protocol::complete(record, to_settle(attempt, claim), result.to_stored(), now_us))
        }
        Call::Fail { claim, uncertain, permanent } => {
            let failure = Failure { uncertain: *uncertain, permanent: *permanent };
            settled(protocol::fail(record, to_settle(attempt, claim), failure, now_us))
        }
        Call::Release { claim, .. } => {
            let recovery = claim.as_ref().filter(|claim| claim.recovery).map(|claim| to_settle(attempt, claim));
            settled(protocol::release(record, attempt, recovery, now_us))
        }
    }
}

fn to_settle<'a>(request: &'a AcquireRequest, claim: &Claim) -> SettleRequest<'a> {
    SettleRequest { request, fence: Fence(claim.fence), number: claim.attempt }
}

fn acquired(answer: AcquireAnswer) -> Answer {
    match answer {
        AcquireAnswer::Acquired { fence, attempts: attempt, recovery } => {
            Answer::Acquired { fence: fence.0, attempt, recovery }
        }
        AcquireAnswer::Duplicate { fence, attempts, result } => {
            Answer::Duplicate { fence: fence.0, attempts, result: result.into() }
        }
        AcquireAnswer::Conflict { remains } => {
            // Rounded up to whole milliseconds, as in every store.
            Answer::Conflict { remains_ms: u64::try_from(remains.as_micros().div_ceil(1000)).unwrap_or(u64::MAX) }
        }
        AcquireAnswer::Mismatch => Answer::Mismatch,
        AcquireAnswer::Failed => Answer::Failed,
    }
}

fn settled((answer, changed): (Settled, Option<Record>)) -> (Answer, Option<Record>) {
    match answer {
        Settled::Recorded => (Answer::Recorded, changed),
        Settled::Lost(state) => (Answer::Lost(state.into()), changed),
    }
}

/// The times that the answers of a history show beside those of the claims that were answered.
#[derive(Default)]
pub(crate) struct Shown {
    /// When the first operation of the key was invoked, by the monotonic clock.
    pub(crate) begins_us: u64,
    /// Each ms at which a lease may have ended by a conflict.
    pub(crate) lease_ends_ms: Vec<u64>,
    /// The fences of completed records.
    pub(crate) fences_us: Vec<u64>,
    /// The fences of claims, each with its owner, which may have acquired it by an earlier call.
    pub(crate) claims: Vec<(Hex<8>, u64)>,
    /// The earliest time of each operation, and the time of each claim.
    pub(crate) reached_us: Vec<u64>,
    /// The earliest times of the attempts whose failure may apply to a later call.
    pub(crate) applies_us: Vec<u64>,
}

/// The choices that have to be tried for an execution at a time from `from_us` to `to_us`, whose answer is that of the
/// operation or is unknown. Any other choice has the result of an earlier one of these, apart from times that no answer
/// in the history shows.
#[must_use]
pub(crate) fn choices(
    operation: &Operation,
    is_answer: bool,
    record: Option<&Record>,
    (from_us, to_us): (u64, u64),
    shown: &Shown,
) -> Vec<Choice> {
    let Call::Acquire { request } = &operation.call else {
        let expiry_us = record.map(|record| record.expires_ms.saturating_mul(1000));
        let times = iter::once(from_us).chain(expiry_us).filter(|us| (from_us..=to_us).contains(us));
        // If the record is written again, its expiry may show the time.
        let times = times.chain(times_of_expiry(operation, shown).filter(|us| (from_us..=to_us).contains(us)));
        return times.map(|now_us| Choice { now_us, lease_ms: 0 }).collect();
    };
    let mut times = vec![from_us];
    times.extend(record.into_iter().flat_map(|record| turning_points(operation, record)));
    // The fence of a claim is the time of its acquire.
    times.extend(if let Answer::Acquired { fence, .. } = operation.answer { Some(fence) } else { None });
    // After a clock went back, a fence does not show the time.
    let shows_time = is_answer && !operation.clock_goes_back(shown.begins_us);
    if !is_answer {
        times.extend(&shown.fences_us);
        times.extend(shown.claims.iter().filter(|(owner, _)| *owner == request.owner).map(|(_, fence)| *fence));
    }
    if !shows_time {
        times.extend(times_of_expiry(operation, shown));
        times.extend(&shown.applies_us);
    }
    // Conflicts show when a claim without an answer was acquired, and when a lease was shortened.
    let longest_ms = request.longest_lease_ms.max(request.lease_ms);
    let (leases, shortens) = match operation.answer {
        _ if !is_answer => (&*operation.leases_ms, true),
        Answer::Conflict { .. } => (&[][..], true),
        Answer::Acquired { .. } if !shows_time => (&*operation.leases_ms, false),
        _ => (&[][..], false),
    };
    let shown_leases = || leases.iter().copied().chain(shortens.then_some(longest_ms));
    for begun_ms in
        shown.lease_ends_ms.iter().flat_map(|end| shown_leases().map(|lease_ms| end.saturating_sub(lease_ms)))
    {
        let begun_us = begun_ms.saturating_mul(1000);
        // At any time within this ms.
        times.push(if begun_us + 1000 > from_us { begun_us.max(from_us) } else { begun_us });
    }
    times.retain(|us| (from_us..=to_us).contains(us));
    times.sort_unstable();
    times.dedup();
    let leases = &operation.leases_ms;
    times
        .into_iter()
        .flat_map(|now_us| leases.iter().map(move |lease_ms| Choice { now_us, lease_ms: *lease_ms }))
        .collect()
}

/// The earliest times after which the record is still there at one of the shown times. At any later time it is there
/// too.
fn times_of_expiry<'a>(operation: &'a Operation, shown: &'a Shown) -> impl Iterator<Item = u64> {
    let retention_ms = operation.call.request().retention_ms;
    let is_acquire = matches!(operation.call, Call::Acquire { .. });
    // The record of a claim expires no earlier than its lease.
    let longer = operation.leases_ms.iter().filter(move |lease_ms| is_acquire && **lease_ms > retention_ms);
    let lifetimes_ms = longer.copied().chain([retention_ms]);
    lifetimes_ms.flat_map(|lifetime_ms| {
        let lasts_ms = lifetime_ms.saturating_add(EXPIRY_SLACK_MS);
        shown.reached_us.iter().map(move |us| (us / 1000).saturating_sub(lasts_ms).saturating_mul(1000))
    })
}

/// The times at which the answer to an acquire changes.
fn turning_points(operation: &Operation, record: &Record) -> [u64; 4] {
    let failed_retention = u64::try_from(operation.attempt.failed_retention.as_micros()).unwrap_or(u64::MAX);
    let lease_end_ms = match record.state {
        RecordState::Processing { lease_end_ms, .. } => lease_end_ms,
        RecordState::Completed { .. } | RecordState::Failed(_) => 0,
    };
    // The remaining lease in a conflict shows the time.
    let conflict_ms = match operation.answer {
        Answer::Conflict { remains_ms } => lease_end_ms.saturating_sub(remains_ms),
        _ => lease_end_ms,
    };
    let [expiry, lease_end, conflict] =
        [record.expires_ms, lease_end_ms, conflict_ms].map(|ms| ms.saturating_mul(1000));
    [expiry, lease_end, conflict, record.fence.0.saturating_add(failed_retention)]
}
