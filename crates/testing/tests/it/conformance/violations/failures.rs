//! Acquires after failures: permanent ones, used-up attempts, and for how long they apply.

use std::time::Duration;

use idempotent_sqs::idempotency::Owner;
use idempotent_sqs::idempotency::protocol::{AcquireAnswer, RecordState};

use super::super::faulty::Fault::{As, Step, Write};
use super::{
    Answer, Call, State, Violation, acquire, always, failure, is_after_failure, is_failed, is_mismatch,
    renews_the_retention,
};

/// Whether the record is a permanent failure.
fn is_permanent(call: &Call, _: &Answer) -> bool {
    matches!(call.record.as_ref().map(|record| &record.state), Some(RecordState::Failed(failure)) if failure.permanent)
}

/// Whether its attempts are used up.
fn is_used_up(call: &Call, _: &Answer) -> bool {
    call.record.as_ref().is_some_and(|record| record.attempts >= call.request.max_attempts)
}

fn is_of_ended_lease(call: &Call, _: &Answer) -> bool {
    call.state() == Some(State::Processing)
}

fn has_another_payload(call: &Call, _: &Answer) -> bool {
    call.record.as_ref().is_some_and(|record| !record.fingerprint.agrees_with(&call.request.fingerprint))
}

/// Takes the record for one of this message.
fn of_its_message(call: &mut Call) {
    let message = call.request.message;
    call.record.iter_mut().for_each(|record| record.message = message);
}

fn is_temporary(call: &mut Call) {
    call.record.iter_mut().for_each(|record| failure(record, |failure| failure.permanent = false));
}

pub(super) const VIOLATIONS: &[Violation] = &[
    acquire(
        "an owner that failed acquires again",
        |call, answer| is_failed(call, answer) && call.owns(),
        As(|call| {
            call.record.as_mut().unwrap().owner = Owner::random();
        }),
    ),
    acquire("a permanent failure is retried", is_permanent, As(is_temporary)),
    acquire("a permanent failure applies to all messages", is_permanent, As(of_its_message)),
    acquire("used-up attempts are retried", is_used_up, As(|call| call.request.max_attempts = u8::MAX)),
    acquire("used-up attempts apply to all messages", is_used_up, As(of_its_message)),
    acquire(
        "only exactly used-up attempts apply",
        |call, _| call.record.as_ref().is_some_and(|record| record.attempts > call.request.max_attempts),
        As(|call| call.request.max_attempts = u8::MAX),
    ),
    acquire(
        "used-up attempts of an ended lease do not apply",
        is_of_ended_lease,
        As(|call| {
            call.request.max_attempts = u8::MAX;
        }),
    ),
    acquire(
        "used-up attempts of an ended lease apply for ever",
        is_of_ended_lease,
        As(|call| {
            call.request.failed_retention = Duration::MAX;
        }),
    ),
    acquire("a failure applies for ever", is_after_failure, As(|call| call.request.failed_retention = Duration::MAX)),
    acquire("a failure applies for no time", always, As(|call| call.request.failed_retention = Duration::ZERO)),
    acquire(
        "another payload of the message runs after a permanent failure",
        |call, answer| is_permanent(call, answer) && has_another_payload(call, answer),
        As(is_temporary),
    ),
    acquire(
        "another payload of another message does not run after a permanent failure",
        |call, answer| is_permanent(call, answer) && has_another_payload(call, answer),
        As(of_its_message),
    ),
    acquire(
        "another payload fails after a permanent uncertain failure",
        |call, answer| is_permanent(call, answer) && is_mismatch(call, answer),
        Step(|_| (Answer::Acquire(AcquireAnswer::Failed), None)),
    ),
    acquire("FAILED renews the retention", is_failed, Write(renews_the_retention)),
    acquire("FAILED counts", is_failed, Write(|_, record| record.attempts += 1)),
    acquire("FAILED takes the record", is_failed, Write(|call, record| record.owner = call.request.owner)),
    acquire(
        "FAILED makes a failure permanent",
        is_failed,
        Write(|_, record| {
            failure(record, |failure| failure.permanent = true);
        }),
    ),
];
