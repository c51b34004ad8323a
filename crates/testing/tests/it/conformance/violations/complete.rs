//! `complete`.

use idempotent_sqs::idempotency::{Fence, Fingerprint, Settled, State, StoredResult};

use super::super::faulty::Fault::{As, Step, Write};
use super::{
    Answer, Call, Fault, LOST, Op, Violation, always, is_after_completion, is_after_failure, is_after_lease,
    is_after_own_failure, is_late, is_lost, is_own, loses_the_payload, never_expires, renews_the_retention, take,
};

const fn complete(what: &'static str, when: fn(&Call, &Answer) -> bool, fault: Fault) -> Violation {
    Violation { what, op: Op::Complete, when, fault }
}

/// Whether the record of a failure has a payload, and whether the claim has one.
fn payloads(call: &Call) -> Option<(bool, bool)> {
    let record = call.record.as_ref().filter(|_| call.state() == Some(State::Failed))?;
    Some((record.fingerprint != Fingerprint::NONE, call.request.fingerprint != Fingerprint::NONE))
}

pub(super) const VIOLATIONS: &[Violation] = &[
    complete("a completion is not kept", always, Step(|call| (call.step().0, None))),
    complete("any owner completes", |call, _| call.state() == Some(State::Processing), As(take)),
    complete("any owner completes again", is_after_completion, As(|call| call.record = None)),
    complete(
        "a completion after another one is lost with another state",
        is_after_completion,
        Step(|call| match call.step() {
            (Answer::Settled(Settled::Lost(_)), changed) => (Answer::Settled(Settled::Lost(State::Failed)), changed),
            step => step,
        }),
    ),
    complete("a repeated completion is lost", is_after_completion, LOST),
    complete("a repeated completion renews the retention", is_after_completion, Write(renews_the_retention)),
    complete("a completion after the lease is lost", is_after_lease, LOST),
    complete("a completion renews the retention", is_own, Write(renews_the_retention)),
    complete("a completion never expires", is_own, Write(never_expires)),
    complete("a completion expires at once", always, Write(|call, record| record.expires_ms = call.now / 1000)),
    complete("a completion lowers the fence", is_own, Write(|call, record| record.fence = call.fence)),
    complete("a completion has the attempts 1", is_own, Write(|_, record| record.attempts = 1)),
    complete("a completion loses its payload", is_own, Write(loses_the_payload)),
    complete(
        "a completion without a payload erases the stored one",
        is_own,
        Write(|call, record| {
            record.fingerprint = call.request.fingerprint;
        }),
    ),
    complete("a result is not kept", always, As(|call| call.result = StoredResult::NotKept)),
    complete(
        "an empty result is not kept",
        |call, _| call.result == StoredResult::Inline(Vec::new()),
        As(|call| {
            call.result = StoredResult::NotKept;
        }),
    ),
    complete(
        "a result in an object is inline",
        always,
        As(|call| {
            if let StoredResult::Object(location) = &call.result {
                call.result = StoredResult::Inline(location.clone());
            }
        }),
    ),
    complete(
        "a result is text",
        always,
        As(|call| {
            if let StoredResult::Inline(bytes) = &call.result {
                call.result = StoredResult::Inline(String::from_utf8_lossy(bytes).into_owned().into_bytes());
            }
        }),
    ),
    // The record was lost.
    complete("a completion of a lost record is lost", is_lost, LOST),
    complete("a completion of a lost record is not kept", is_lost, Step(|call| (call.step().0, None))),
    complete("a restored completion never expires", is_lost, Write(never_expires)),
    complete("a restored completion has another fence", is_lost, Write(|call, record| record.fence = Fence(call.now))),
    complete("a restored completion has the attempts 1", is_lost, Write(|_, record| record.attempts = 1)),
    complete("a restored completion loses its payload", is_lost, Write(loses_the_payload)),
    // After a failure.
    complete("a completion does not replace a failure", is_after_failure, LOST),
    complete("a completion does not replace the failure of its owner", is_after_own_failure, LOST),
    complete(
        "a completion replaces a failure of another payload",
        is_after_failure,
        As(|call| {
            call.record.as_mut().unwrap().fingerprint = Fingerprint::NONE;
        }),
    ),
    complete(
        "a completion does not replace a failure without a payload",
        |call, _| payloads(call) == Some((false, true)),
        LOST,
    ),
    complete(
        "a completion without a payload does not replace a failure",
        |call, _| payloads(call) == Some((true, false)),
        LOST,
    ),
    complete(
        "a completion without a payload erases that of a failure",
        is_late,
        Write(|call, record| {
            record.fingerprint = call.request.fingerprint;
        }),
    ),
    complete(
        "a completion after a failure without a payload has none",
        is_late,
        Write(|call, record| {
            record.fingerprint = call.record.as_ref().unwrap().fingerprint;
        }),
    ),
    complete("a late completion lowers the fence", is_late, Write(|call, record| record.fence = call.fence)),
    complete("a late completion never expires", is_late, Write(never_expires)),
    complete("a late completion renews the retention", is_late, Write(renews_the_retention)),
    complete(
        "a late completion has the attempts of the failure",
        is_late,
        Write(|call, record| {
            record.attempts = call.record.as_ref().unwrap().attempts;
        }),
    ),
];
