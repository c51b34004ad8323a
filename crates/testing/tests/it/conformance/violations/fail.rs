//! `fail`.

use idempotent_sqs::idempotency::protocol::Record;
use idempotent_sqs::idempotency::{Fence, Fingerprint, MessageIdHash, Owner, Settled, State};

use super::super::faulty::Fault::{As, Step, Write};
use super::{
    Answer, Call, Fault, LOST, Op, Violation, always, failure, is_after_completion, is_after_lease,
    is_after_own_failure, is_late, is_lost, is_marked, is_own, loses_the_payload, never_expires, renews_the_retention,
    take,
};

const fn fail(what: &'static str, when: fn(&Call, &Answer) -> bool, fault: Fault) -> Violation {
    Violation { what, op: Op::Fail, when, fault }
}

fn loses_the_message(_: &Call, record: &mut Record) {
    record.message = MessageIdHash::of("");
}

fn is_late_again(call: &Call, answer: &Answer) -> bool {
    is_late(call, answer) && call.failure.uncertain && is_marked(call)
}

pub(super) const VIOLATIONS: &[Violation] = &[
    fail("a failure is not kept", always, Step(|call| (call.step().0, None))),
    fail("any owner fails", |call, _| call.state() == Some(State::Processing), As(take)),
    fail("a failure replaces a completion", is_after_completion, As(|call| call.record = None)),
    fail(
        "the owner's failure replaces its completion",
        |call, _| call.owns(),
        As(|call| {
            if call.state() == Some(State::Completed) {
                call.record = None;
            }
        }),
    ),
    fail("a repeated failure is lost", is_after_own_failure, LOST),
    fail("a repeated failure counts", is_after_own_failure, Write(|_, record| record.attempts += 1)),
    fail("a repeated failure renews the retention", is_after_own_failure, Write(renews_the_retention)),
    fail("a failure after the lease is lost", is_after_lease, LOST),
    fail("a failure renews the retention", is_own, Write(renews_the_retention)),
    fail("a failure never expires", is_own, Write(never_expires)),
    fail("a failure lowers the fence", is_own, Write(|call, record| record.fence = call.fence)),
    fail("a failure does not count", is_own, Write(|_, record| record.attempts -= 1)),
    fail("a failure loses its payload", is_own, Write(loses_the_payload)),
    fail("a failure loses its message", is_own, Write(loses_the_message)),
    fail(
        "a failure without a payload erases the stored one",
        is_own,
        Write(|call, record| {
            record.fingerprint = call.request.fingerprint;
        }),
    ),
    fail(
        "a failure applies from its own time",
        is_own,
        Write(|call, record| {
            record.fence = record.fence.max(Fence(call.now));
        }),
    ),
    fail("a failure is always uncertain", always, As(|call| call.failure.uncertain = true)),
    fail("a failure is never uncertain", always, As(|call| call.failure.uncertain = false)),
    fail(
        "a permanent failure is never uncertain",
        always,
        As(|call| call.failure.uncertain &= !call.failure.permanent),
    ),
    fail(
        "an uncertain failure is never permanent",
        always,
        As(|call| call.failure.permanent &= !call.failure.uncertain),
    ),
    // The record was lost.
    fail("a failure of a lost record is lost", is_lost, LOST),
    fail("a failure of a lost record is not kept", is_lost, Step(|call| (call.step().0, None))),
    fail("a restored failure never expires", is_lost, Write(never_expires)),
    fail("a restored failure has the attempts 1", is_lost, Write(|_, record| record.attempts = 1)),
    fail("a restored failure loses its payload", is_lost, Write(loses_the_payload)),
    fail("a restored failure loses its message", is_lost, Write(loses_the_message)),
    fail("a restored failure loses its owner", is_lost, Write(|_, record| record.owner = Owner::random())),
    // Another owner has failed.
    fail("late doubt is dropped", is_late, LOST),
    fail("late doubt is recorded", is_late, Step(|call| (Answer::Settled(Settled::Recorded), call.step().1))),
    fail(
        "late doubt marks the failure of another payload",
        is_late,
        Step(|call| {
            let mut other = call.clone();
            other.request.fingerprint = Fingerprint::NONE;
            other.step()
        }),
    ),
    fail(
        "late doubt without a payload is dropped",
        |call, answer| is_late(call, answer) && call.request.fingerprint == Fingerprint::NONE,
        LOST,
    ),
    fail(
        "late doubt does not mark a failure without a payload",
        |call, answer| {
            is_late(call, answer) && call.record.as_ref().is_some_and(|record| record.fingerprint == Fingerprint::NONE)
        },
        LOST,
    ),
    fail(
        "repeated doubt makes a failure permanent",
        is_late_again,
        Write(|_, record| {
            failure(record, |failure| failure.permanent = true);
        }),
    ),
    fail(
        "repeated doubt takes back the doubt",
        is_late_again,
        Write(|_, record| {
            failure(record, |failure| failure.uncertain = false);
        }),
    ),
    fail(
        "late doubt makes a permanent failure temporary",
        is_late,
        Write(|_, record| {
            failure(record, |failure| failure.permanent = false);
        }),
    ),
    fail(
        "a late permanent failure makes a failure permanent",
        is_late,
        Write(|call, record| {
            failure(record, |failure| failure.permanent |= call.failure.permanent);
        }),
    ),
    fail("a late clean failure leaves doubt", is_late, As(|call| call.failure.uncertain = true)),
    fail(
        "a late clean failure takes back doubt",
        is_late,
        Write(|call, record| {
            failure(record, |failure| failure.uncertain &= call.failure.uncertain);
        }),
    ),
    fail("late doubt has the attempts of its claim", is_late, Write(|call, record| record.attempts = call.number)),
    fail(
        "late doubt has the message of its claim",
        is_late,
        Write(|call, record| record.message = call.request.message),
    ),
    fail("late doubt takes the record", is_late, Write(|call, record| record.owner = call.request.owner)),
    fail("late doubt never expires", is_late, Write(never_expires)),
    fail("late doubt renews the retention", is_late, Write(renews_the_retention)),
];
