//! Conflicts, duplicates and mismatches.

use std::time::Duration;

use idempotent_sqs::idempotency::StoredResult;
use idempotent_sqs::idempotency::protocol::{AcquireAnswer, RecordState};

use super::super::faulty::Fault::{As, Step, Write};
use super::{
    Answer, Violation, acquire, is_conflict, is_duplicate, is_mismatch, is_takeover, never_expires,
    renews_the_retention,
};

pub(super) const VIOLATIONS: &[Violation] = &[
    acquire("a lease is no conflict", is_conflict, As(|call| call.now += 1_000_000_000_000)),
    acquire(
        "a lease does not end",
        is_takeover,
        Step(|call| (Answer::Acquire(AcquireAnswer::Conflict { remains: call.request.lease }), None)),
    ),
    acquire(
        "a conflict has the whole lease",
        is_conflict,
        Step(|call| {
            let record = call.record.as_ref().unwrap();
            let RecordState::Processing { lease_end_ms, .. } = record.state else { panic!("no conflict") };
            let remains = Duration::from_millis(lease_end_ms - record.fence.0 / 1000);
            (
                Answer::Acquire(AcquireAnswer::Conflict { remains: remains.min(call.request.longest_lease) }),
                call.step().1,
            )
        }),
    ),
    acquire("a conflict renews the retention", is_conflict, Write(renews_the_retention)),
    acquire(
        "a conflict extends the lease",
        is_conflict,
        Write(|_, record| {
            if let RecordState::Processing { lease_end_ms, .. } = &mut record.state {
                *lease_end_ms += 50;
            }
        }),
    ),
    acquire("a conflict counts", is_conflict, Write(|_, record| record.attempts += 1)),
    acquire("a conflict raises the fence", is_conflict, Write(|_, record| record.fence.0 += 1)),
    acquire(
        "a conflict is kept as the payload",
        is_conflict,
        Write(|call, record| {
            record.fingerprint = call.request.fingerprint;
        }),
    ),
    acquire(
        "a conflict is kept as the message",
        is_conflict,
        Write(|call, record| record.message = call.request.message),
    ),
    acquire("a conflict takes the record", is_conflict, Write(|call, record| record.owner = call.request.owner)),
    // Leases above the longest one.
    acquire(
        "a lease above the longest one stays",
        is_conflict,
        As(|call| {
            call.request.longest_lease = Duration::from_hours(1_000_000);
        }),
    ),
    acquire("a shortened lease is not kept", is_conflict, Step(|call| (call.step().0, None))),
    acquire(
        "a lease is shortened below that of the request",
        is_conflict,
        As(|call| {
            call.request.lease = call.request.lease.min(call.request.longest_lease);
        }),
    ),
    acquire(
        "a shortened lease is no recovery any more",
        is_conflict,
        Write(|_, record| {
            if let RecordState::Processing { recovery, .. } = &mut record.state {
                *recovery = false;
            }
        }),
    ),
    acquire("a shortened lease never expires", is_conflict, Write(never_expires)),
    // Duplicates and mismatches.
    acquire(
        "a duplicate has no result",
        is_duplicate,
        As(|call| {
            let state = RecordState::Completed { result: StoredResult::NotKept };
            call.record.as_mut().unwrap().state = state;
        }),
    ),
    acquire(
        "a duplicate of the owner fails",
        |call, answer| is_duplicate(call, answer) && call.owns(),
        Step(|_| (Answer::Acquire(AcquireAnswer::Failed), None)),
    ),
    acquire("a duplicate renews the retention", is_duplicate, Write(renews_the_retention)),
    acquire("a duplicate counts", is_duplicate, Write(|_, record| record.attempts += 1)),
    acquire("a duplicate raises the fence", is_duplicate, Write(|_, record| record.fence.0 += 1)),
    acquire(
        "a duplicate is kept as the payload",
        is_duplicate,
        Write(|call, record| {
            record.fingerprint = call.request.fingerprint;
        }),
    ),
    acquire("a mismatch renews the retention", is_mismatch, Write(renews_the_retention)),
    acquire("a mismatch counts", is_mismatch, Write(|_, record| record.attempts += 1)),
    acquire(
        "a mismatch is kept as the payload",
        is_mismatch,
        Write(|call, record| {
            record.fingerprint = call.request.fingerprint;
        }),
    ),
];
