//! Fingerprints of acquires.

use idempotent_sqs::idempotency::Fingerprint;
use idempotent_sqs::idempotency::protocol::AcquireAnswer;

use super::super::faulty::Fault::{As, Step, Write};
use super::{
    Answer, Call, State, Violation, acquire, is_after_completion, is_after_failure, is_claim, is_conflict, is_mismatch,
    is_next,
};

/// A payload that no row has.
const UNUSED: [u8; 16] = [1; 16];

/// Takes the payload for that of the record.
fn of_its_payload(call: &mut Call) {
    call.request.fingerprint = Fingerprint::NONE;
}

fn has_another_payload(call: &Call) -> bool {
    call.record.as_ref().is_some_and(|record| !record.fingerprint.agrees_with(&call.request.fingerprint))
}

pub(super) const VIOLATIONS: &[Violation] = &[
    acquire("a payload is not kept", is_claim, Write(|_, record| record.fingerprint = Fingerprint::NONE)),
    acquire(
        "the payload of a later claim is not kept",
        is_next,
        Write(|call, record| {
            record.fingerprint = call.record.as_ref().unwrap().fingerprint;
        }),
    ),
    acquire(
        "another payload is a mismatch during a lease",
        |call, answer| is_conflict(call, answer) && has_another_payload(call),
        Step(|_| (Answer::Acquire(AcquireAnswer::Mismatch), None)),
    ),
    acquire(
        "another payload takes over an ended lease",
        |call, answer| is_mismatch(call, answer) && call.state() == Some(State::Processing),
        As(of_its_payload),
    ),
    acquire(
        "another payload is a duplicate",
        |call, answer| is_mismatch(call, answer) && is_after_completion(call, answer),
        As(of_its_payload),
    ),
    acquire(
        "another payload runs after an uncertain failure",
        |call, answer| is_mismatch(call, answer) && is_after_failure(call, answer),
        As(of_its_payload),
    ),
    acquire(
        "another payload does not run after a clean failure",
        |call, answer| is_after_failure(call, answer) && has_another_payload(call),
        Step(|_| (Answer::Acquire(AcquireAnswer::Mismatch), None)),
    ),
    acquire(
        "an acquire without a payload erases the stored one",
        is_next,
        Write(|call, record| {
            record.fingerprint = call.request.fingerprint;
        }),
    ),
    acquire(
        "an acquire without a payload is another payload",
        |call, _| call.request.fingerprint == Fingerprint::NONE,
        As(|call| call.request.fingerprint = Fingerprint::from_bytes(UNUSED)),
    ),
    acquire(
        "a record without a payload has another payload",
        |call, _| call.record.as_ref().is_some_and(|record| record.fingerprint == Fingerprint::NONE),
        As(|call| call.record.as_mut().unwrap().fingerprint = Fingerprint::from_bytes(UNUSED)),
    ),
];
