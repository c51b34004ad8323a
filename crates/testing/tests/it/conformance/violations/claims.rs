//! Claims: their fences, attempts, marks, leases and retentions.

use std::time::Duration;

use idempotent_sqs::idempotency::protocol::RecordState;
use idempotent_sqs::idempotency::{Fence, MessageIdHash, State};

use super::super::faulty::Fault::{As, Claim, Step, Write};
use super::{
    Violation, acquire, always, is_after_lease, is_claim, is_first, is_next, is_repeated, is_retry, is_takeover,
    never_expires, renews_the_retention,
};

pub(super) const VIOLATIONS: &[Violation] = &[
    acquire("a first attempt is a recovery", is_first, Claim(|_, claim| claim.recovery = true)),
    acquire("a first attempt has the number 0", is_first, Claim(|_, claim| claim.number = 0)),
    acquire("fences are in ms", is_claim, As(|call| call.now /= 1000)),
    acquire("fences are in ns", is_claim, Claim(|call, claim| claim.fence = claim.fence.max(Fence(call.now * 1000)))),
    acquire("fences count from 1", is_first, Claim(|_, claim| claim.fence = Fence(1))),
    acquire(
        "a fence is equal to the one before",
        is_next,
        Claim(|call, claim| {
            claim.fence = Fence(call.now.max(call.record.as_ref().unwrap().fence.0));
        }),
    ),
    acquire(
        "a fence is the one before",
        is_next,
        Claim(|call, claim| claim.fence = call.record.as_ref().unwrap().fence),
    ),
    acquire("a claim is not kept", is_first, Step(|call| (call.step().0, None))),
    acquire("a claim never expires", is_claim, Write(never_expires)),
    acquire("a record expires before its lease", is_claim, Write(renews_the_retention)),
    acquire("a retention of 0 is refused", |call, _| call.request.retention.is_zero(), Step(|_| panic!("an error"))),
    acquire("long durations are refused", |call, _| call.request.lease == Duration::MAX, Step(|_| panic!("an error"))),
    acquire(
        "a lease above its own longest one is cut off",
        always,
        As(|call| {
            call.request.lease = call.request.lease.min(call.request.longest_lease);
        }),
    ),
    acquire("the message of a claim is not kept", is_claim, Write(|_, record| record.message = MessageIdHash::of(""))),
    acquire(
        "the mark of a recovery is not kept",
        is_claim,
        Write(|_, record| {
            if let RecordState::Processing { recovery, .. } = &mut record.state {
                *recovery = false;
            }
        }),
    ),
    // Repeated by the owner.
    acquire(
        "a repeated acquire is a conflict",
        is_repeated,
        As(|call| {
            call.request.owner = idempotent_sqs::idempotency::Owner::random();
        }),
    ),
    acquire(
        "a repeated acquire renews the lease",
        is_repeated,
        Write(|call, record| {
            if let RecordState::Processing { lease_end_ms, .. } = &mut record.state {
                *lease_end_ms = call.now / 1000 + u64::try_from(call.request.lease.as_millis()).unwrap();
            }
        }),
    ),
    acquire("a repeated acquire renews the retention", is_repeated, Write(renews_the_retention)),
    acquire("a repeated acquire counts again", is_repeated, Write(|_, record| record.attempts += 1)),
    acquire("a repeated acquire has another fence", is_repeated, Claim(|_, claim| claim.fence.0 += 1)),
    acquire(
        "a repeated acquire after the lease is a recovery",
        |call, answer| is_repeated(call, answer) && is_after_lease(call, answer),
        Claim(|_, claim| claim.recovery = true),
    ),
    acquire(
        "a repeated acquire of a recovery is a first attempt",
        is_repeated,
        Claim(|_, claim| claim.recovery = false),
    ),
    // After a lease or a failure.
    acquire("a takeover is no recovery", is_takeover, Claim(|_, claim| claim.recovery = false)),
    acquire("a takeover does not count", is_takeover, Claim(|_, claim| claim.number -= 1)),
    acquire("a retry after a clean failure is a recovery", is_retry, Claim(|_, claim| claim.recovery = true)),
    acquire("a retry after an uncertain failure is no recovery", is_retry, Claim(|_, claim| claim.recovery = false)),
    acquire("attempts restart with a retry", is_retry, Claim(|_, claim| claim.number = 1)),
    acquire(
        "a retry does not count",
        is_retry,
        Claim(|call, claim| {
            claim.number = call.record.as_ref().unwrap().attempts.max(1);
        }),
    ),
    acquire(
        "attempts do not restart with another message",
        is_next,
        Claim(|call, claim| {
            claim.number = call.record.as_ref().unwrap().attempts + 1;
        }),
    ),
    acquire(
        "a later claim keeps the message of the one before",
        is_next,
        Write(|call, record| {
            record.message = call.record.as_ref().unwrap().message;
        }),
    ),
    acquire(
        "a later claim keeps the expiry",
        is_next,
        Write(|call, record| {
            record.expires_ms = call.record.as_ref().unwrap().expires_ms;
        }),
    ),
    acquire(
        "a takeover keeps the end of the lease",
        is_takeover,
        Write(|call, record| {
            record.state = match (&call.record.as_ref().unwrap().state, &record.state) {
                (RecordState::Processing { lease_end_ms, .. }, RecordState::Processing { recovery, .. }) => {
                    RecordState::Processing { recovery: *recovery, lease_end_ms: *lease_end_ms }
                }
                _ => panic!("no takeover"),
            };
        }),
    ),
    acquire(
        "completed work runs again",
        |call, _| call.state() == Some(State::Completed),
        As(|call| call.record = None),
    ),
    acquire(
        "completed work runs again for its owner",
        |call, _| call.state() == Some(State::Completed) && call.owns(),
        As(|call| call.record = None),
    ),
];
