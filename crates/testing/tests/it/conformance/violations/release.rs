//! `release`.

use idempotent_sqs::idempotency::protocol::{Record, RecordState};
use idempotent_sqs::idempotency::{Failure, Fingerprint, MessageIdHash, Owner, Settled, State};

use super::super::faulty::Fault::{As, Step, Write};
use super::{
    Answer, Call, Fault, LOST, Op, Violation, always, failure, is_after_completion, is_after_lease,
    is_after_own_failure, is_late, is_lost, is_marked, is_own, loses_the_payload, never_expires, renews_the_retention,
    take,
};

const fn release(what: &'static str, when: fn(&Call, &Answer) -> bool, fault: Fault) -> Violation {
    Violation { what, op: Op::Release, when, fault }
}

fn is_late_again(call: &Call, answer: &Answer) -> bool {
    is_late(call, answer) && call.recovery && is_marked(call)
}

pub(super) const VIOLATIONS: &[Violation] = &[
    release("a release is not kept", always, Step(|call| (call.step().0, None))),
    release("any owner releases", |call, _| call.state() == Some(State::Processing), As(take)),
    release("a release counts", is_own, Write(|_, record| record.attempts += 1)),
    release(
        "a release is always uncertain",
        is_own,
        Write(|_, record| failure(record, |failure| failure.uncertain = true)),
    ),
    release(
        "a release is never uncertain",
        is_own,
        Write(|_, record| failure(record, |failure| failure.uncertain = false)),
    ),
    release(
        "a release without a claim is never uncertain",
        is_own,
        Write(|call, record| {
            failure(record, |failure| failure.uncertain &= call.has_claim);
        }),
    ),
    release("a release is permanent", is_own, Write(|_, record| failure(record, |failure| failure.permanent = true))),
    release("a release never expires", is_own, Write(never_expires)),
    release("a release renews the retention", is_own, Write(renews_the_retention)),
    release("a release lowers the fence", is_own, Write(|_, record| record.fence.0 -= 1)),
    release("a release loses its payload", is_own, Write(loses_the_payload)),
    release("an owner that released acquires again", is_own, Write(|_, record| record.owner = Owner::random())),
    release("a release after the lease is lost", is_after_lease, LOST),
    release("a repeated release is lost", is_after_own_failure, LOST),
    release(
        "a repeated release takes back another attempt",
        is_after_own_failure,
        Write(|_, record| record.attempts -= 1),
    ),
    release("a repeated release renews the retention", is_after_own_failure, Write(renews_the_retention)),
    release(
        "a release replaces the completion of its owner",
        is_after_completion,
        Step(|call| {
            let state = RecordState::Failed(Failure::default());
            (Answer::Settled(Settled::Recorded), call.record.clone().map(|record| Record { state, ..record }))
        }),
    ),
    release(
        "a release that is lost has another state",
        |call, _| call.record.is_some(),
        Step(|call| match call.step() {
            (Answer::Settled(Settled::Lost(_)), changed) => {
                (Answer::Settled(Settled::Lost(State::Processing)), changed)
            }
            step => step,
        }),
    ),
    // The record was lost.
    release("a release without a record is lost", is_lost, LOST),
    release(
        "a release without a record and a claim writes one",
        |call, _| call.record.is_none() && !call.has_claim,
        As(|call| {
            (call.recovery, call.number) = (true, 1);
        }),
    ),
    release(
        "a release of a first attempt without a record writes one",
        is_lost,
        As(|call| call.recovery = call.has_claim),
    ),
    release("the doubt of a lost recovery is dropped", is_lost, Step(|call| (call.step().0, None))),
    release("the release of a lost recovery counts", is_lost, Write(|call, record| record.attempts = call.number)),
    release("the release of a lost recovery never expires", is_lost, Write(never_expires)),
    release("the release of a lost recovery loses its payload", is_lost, Write(loses_the_payload)),
    release(
        "the release of a lost recovery loses its message",
        is_lost,
        Write(|_, record| {
            record.message = MessageIdHash::of("");
        }),
    ),
    release(
        "the release of a lost recovery is permanent",
        is_lost,
        Write(|_, record| {
            failure(record, |failure| failure.permanent = true);
        }),
    ),
    // Another owner has failed.
    release("the doubt of a recovery is dropped", is_late, LOST),
    release("a first attempt leaves doubt", is_late, As(|call| call.recovery = call.has_claim)),
    release("a release without a claim leaves doubt", is_late, As(|call| call.recovery = true)),
    release(
        "the doubt of a recovery marks the failure of another payload",
        is_late,
        As(|call| {
            call.request.fingerprint = Fingerprint::NONE;
        }),
    ),
    release(
        "the doubt of a recovery without a payload is dropped",
        |call, answer| is_late(call, answer) && call.request.fingerprint == Fingerprint::NONE,
        LOST,
    ),
    release(
        "the doubt of a recovery does not mark a failure without a payload",
        |call, answer| {
            is_late(call, answer) && call.record.as_ref().is_some_and(|record| record.fingerprint == Fingerprint::NONE)
        },
        LOST,
    ),
    release(
        "repeated doubt makes a failure permanent",
        is_late_again,
        Write(|_, record| {
            failure(record, |failure| failure.permanent = true);
        }),
    ),
    release(
        "repeated doubt takes back the doubt",
        is_late_again,
        Write(|_, record| {
            failure(record, |failure| failure.uncertain = false);
        }),
    ),
    release(
        "the doubt of a recovery makes a permanent failure temporary",
        is_late,
        Write(|_, record| {
            failure(record, |failure| failure.permanent = false);
        }),
    ),
    release("the doubt of a recovery takes back an attempt", is_late, Write(|_, record| record.attempts -= 1)),
    release(
        "the doubt of a recovery takes the record",
        is_late,
        Write(|call, record| record.owner = call.request.owner),
    ),
    release("the doubt of a recovery never expires", is_late, Write(never_expires)),
    release("the doubt of a recovery renews the retention", is_late, Write(renews_the_retention)),
];
