//! Stores that violate the contract. The suite must find each of them.

mod claims;
mod complete;
mod conflicts;
mod fail;
mod failures;
mod keys;
mod payloads;
mod release;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use idempotent_sqs::idempotency::protocol::{AcquireAnswer, Record, RecordState};
use idempotent_sqs::idempotency::{Failure, Fingerprint, Settled, State};
use idempotent_sqs_testing::conformance;

use super::faulty::{Answer, Call, Fault, Faulty, Op, Violation};

/// The rows that fail with such a store.
async fn failing_rows(violation: Option<Violation>) -> BTreeSet<&'static str> {
    let mut failing = BTreeSet::new();
    macro_rules! run {
        ($($row:ident)+) => {$(
            let store = Faulty::new(violation);
            if Box::pin(AssertUnwindSafe(conformance::$row(&store)).catch_unwind()).await.is_err() {
                failing.insert(stringify!($row));
            }
        )+};
    }
    idempotent_sqs_testing::__conformance_rows! { @call run }
    failing
}

#[tokio::test(start_paused = true)]
async fn each_violation_of_the_contract_is_found_and_each_row_finds_one() {
    assert_eq!(failing_rows(None).await, BTreeSet::new(), "a store without a fault");
    let of_acquire = [claims::VIOLATIONS, conflicts::VIOLATIONS, failures::VIOLATIONS, payloads::VIOLATIONS].concat();
    let of_others = [complete::VIOLATIONS, fail::VIOLATIONS, release::VIOLATIONS, keys::VIOLATIONS].concat();
    let (mut missed, mut rows) = (Vec::new(), super::rows());
    for violation in of_acquire.into_iter().chain(of_others) {
        let failing = failing_rows(Some(violation)).await;
        if failing.is_empty() {
            missed.push(violation.what);
        }
        rows.retain(|row| !failing.contains(row.as_str()));
    }
    assert!(missed.is_empty(), "no row fails: {missed:#?}");
    assert!(rows.is_empty(), "no store fails: {rows:#?}");
}

const fn acquire(what: &'static str, when: fn(&Call, &Answer) -> bool, fault: Fault) -> Violation {
    Violation { what, op: Op::Acquire, when, fault }
}

// Acquires.

fn is_claim(_: &Call, answer: &Answer) -> bool {
    matches!(answer, Answer::Acquire(AcquireAnswer::Acquired { .. }))
}

/// Without a record.
fn is_first(call: &Call, _: &Answer) -> bool {
    call.record.is_none()
}

/// By the owner that holds the record.
fn is_repeated(call: &Call, _: &Answer) -> bool {
    call.owns() && call.state() == Some(State::Processing)
}

/// Of a record that another owner held.
fn is_takeover(call: &Call, answer: &Answer) -> bool {
    is_claim(call, answer) && call.state() == Some(State::Processing) && !call.owns()
}

/// After a failure.
fn is_retry(call: &Call, answer: &Answer) -> bool {
    is_claim(call, answer) && call.state() == Some(State::Failed)
}

fn is_next(call: &Call, answer: &Answer) -> bool {
    is_takeover(call, answer) || is_retry(call, answer)
}

fn is_conflict(_: &Call, answer: &Answer) -> bool {
    matches!(answer, Answer::Acquire(AcquireAnswer::Conflict { .. }))
}

fn is_duplicate(_: &Call, answer: &Answer) -> bool {
    matches!(answer, Answer::Acquire(AcquireAnswer::Duplicate { .. }))
}

fn is_mismatch(_: &Call, answer: &Answer) -> bool {
    *answer == Answer::Acquire(AcquireAnswer::Mismatch)
}

fn is_failed(_: &Call, answer: &Answer) -> bool {
    *answer == Answer::Acquire(AcquireAnswer::Failed)
}

// Settlements, and any call.

fn always(_: &Call, _: &Answer) -> bool {
    true
}

/// By the owner that holds the record.
fn is_own(call: &Call, answer: &Answer) -> bool {
    is_repeated(call, answer)
}

/// Of a record that was lost.
fn is_lost(call: &Call, _: &Answer) -> bool {
    call.record.is_none()
}

/// After another owner has failed.
fn is_late(call: &Call, _: &Answer) -> bool {
    call.state() == Some(State::Failed) && !call.owns()
}

/// After the owner itself has failed or released.
fn is_after_own_failure(call: &Call, _: &Answer) -> bool {
    call.state() == Some(State::Failed) && call.owns()
}

/// After a failure of any owner.
fn is_after_failure(call: &Call, _: &Answer) -> bool {
    call.state() == Some(State::Failed)
}

fn is_after_completion(call: &Call, _: &Answer) -> bool {
    call.state() == Some(State::Completed)
}

fn is_after_lease(call: &Call, _: &Answer) -> bool {
    let lease = call.record.as_ref().map(|record| &record.state);
    matches!(lease, Some(RecordState::Processing { lease_end_ms, .. }) if *lease_end_ms <= call.now / 1000)
}

/// The failure of a record. In another state it is of no use.
fn failure(record: &mut Record, change: impl FnOnce(&mut Failure)) {
    if let RecordState::Failed(failure) = &mut record.state {
        change(failure);
    }
}

/// Takes the record for one of this owner.
fn take(call: &mut Call) {
    let owner = call.request.owner;
    call.record.iter_mut().for_each(|record| record.owner = owner);
}

/// Whether the record is a failure that is marked as uncertain.
fn is_marked(call: &Call) -> bool {
    let state = call.record.as_ref().map(|record| &record.state);
    matches!(state, Some(RecordState::Failed(failure)) if failure.uncertain)
}

/// A settlement is lost.
const LOST: Fault =
    Fault::Step(|call| (Answer::Settled(Settled::Lost(call.state().unwrap_or(State::Processing))), None));

fn loses_the_payload(_: &Call, record: &mut Record) {
    record.fingerprint = Fingerprint::NONE;
}

fn never_expires(_: &Call, record: &mut Record) {
    record.expires_ms = u64::MAX;
}

fn renews_the_retention(call: &Call, record: &mut Record) {
    record.expires_ms = call.expiry();
}
