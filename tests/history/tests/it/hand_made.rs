//! Histories made by hand, which are linearizable or are not.

mod times;

use std::{fs, io};

use history::{
    Allowances, Answer, Call, Claim, Event, Hex, History, LostTo, LostWrite, Operation, Report, Request, StoredBytes,
    Verdict, verdict,
};
use idempotent_sqs::idempotency::MessageIdHash;

pub(crate) const KEY: &str = "pay-1";

/// The messageId of all calls.
pub(crate) const MESSAGE: &str = "m1";

/// The wall clock when the monotonic clock was 0, µs.
const UNIX_US: u64 = 1_700_000_000_000_000;

/// The calls of one process on one key. Times are in ms.
pub(crate) struct Calls(Vec<Event>);

pub(crate) fn calls() -> Calls {
    Calls(vec![Event::Clocks { monotonic_us: 0, unix_us: UNIX_US }])
}

impl Calls {
    /// A call that got this answer.
    pub(crate) fn answered(mut self, from_ms: u64, to_ms: u64, call: Call, answer: Answer) -> Self {
        let number = self.0.len() as u64;
        self.0.push(Event::Invoked { at_us: from_ms * 1000, number, call });
        self.0.push(Event::Returned { at_us: to_ms * 1000, number, answer });
        self
    }

    /// A call that was cut off.
    pub(crate) fn cut_off(mut self, from_ms: u64, call: Call) -> Self {
        let number = self.0.len() as u64;
        self.0.push(Event::Invoked { at_us: from_ms * 1000, number, call });
        self
    }

    pub(crate) fn history(self) -> History {
        self.read().unwrap()
    }

    fn read(&self) -> io::Result<History> {
        let directory = tempfile::tempdir().unwrap();
        let lines: Vec<_> = self.0.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
        fs::write(directory.path().join("1.jsonl"), lines.join("\n")).unwrap();
        History::read(directory.path())
    }

    fn operations(self) -> Vec<Operation> {
        self.history().keys.remove(KEY).unwrap()
    }
}

fn request(owner: u8) -> Request {
    Request {
        key: KEY.to_owned(),
        owner: Hex([owner; 8]),
        fingerprint: Hex([1; 16]),
        message: Hex(*MessageIdHash::of(MESSAGE).as_bytes()),
        lease_ms: 1000,
        longest_lease_ms: 10_000,
        retention_ms: 3_600_000,
        max_attempts: 5,
        failed_retention_ms: u64::MAX,
    }
}

/// The fence of a claim that was acquired at this time.
pub(crate) fn fence(at_ms: u64) -> u64 {
    UNIX_US + at_ms * 1000
}

pub(crate) fn claim(owner: u8, at_ms: u64) -> Claim {
    Claim { request: request(owner), fence: fence(at_ms), attempt: 1, recovery: false }
}

pub(crate) fn acquire(owner: u8) -> Call {
    Call::Acquire { request: request(owner) }
}

pub(crate) fn acquired(at_ms: u64, attempt: u8, recovery: bool) -> Answer {
    Answer::Acquired { fence: fence(at_ms), attempt, recovery }
}

/// The completion of a first attempt that was acquired at this time.
pub(crate) fn complete(owner: u8, at_ms: u64) -> Call {
    Call::Complete { claim: claim(owner, at_ms), result: StoredBytes::NotKept }
}

/// The completion of a second attempt, which is a recovery.
pub(crate) fn complete_recovery(owner: u8, at_ms: u64) -> Call {
    let claim = Claim { attempt: 2, recovery: true, ..claim(owner, at_ms) };
    Call::Complete { claim, result: StoredBytes::NotKept }
}

/// The clean failure of attempt number `attempt`.
fn fail(owner: u8, at_ms: u64, attempt: u8) -> Call {
    Call::Fail { claim: Claim { attempt, ..claim(owner, at_ms) }, uncertain: false, permanent: false }
}

pub(crate) fn release(owner: u8, at_ms: u64) -> Call {
    Call::Release { request: request(owner), claim: Some(claim(owner, at_ms)) }
}

pub(crate) fn duplicate(at_ms: u64) -> Answer {
    Answer::Duplicate { fence: fence(at_ms), attempts: 1, result: StoredBytes::NotKept }
}

fn conflict(remains_ms: u64) -> Answer {
    Answer::Conflict { remains_ms }
}

fn is_linearizable(calls: Calls, repeats: u8) -> bool {
    matches!(verdict(&calls.operations(), Allowances { repeats, ..Allowances::REAL }), Verdict::Linearizable { .. })
}

fn faults(calls: Calls, allowances: Allowances) -> Vec<String> {
    Report::of_calls(&calls.history(), allowances).faults().collect()
}

/// The writes that have to be lost to explain the history.
fn lost(calls: Calls) -> Vec<LostWrite> {
    match verdict(&calls.operations(), Allowances::REAL.without_repeats()) {
        Verdict::WritesLost { writes, .. } => writes,
        other => panic!("{other:?}"),
    }
}

/// That no order exists, also by the model.
fn is_impossible(calls: Calls) -> bool {
    let verdict = verdict(&calls.operations(), Allowances::REAL.without_repeats());
    matches!(verdict, Verdict::NotLinearizable { model_agrees: Some(true), .. })
}

/// Owner 1 acquires at 1 ms.
fn begun() -> Calls {
    calls().answered(0, 2, acquire(1), acquired(1, 1, false))
}

#[test]
fn work_that_is_done_and_then_a_duplicate_is_linearizable() {
    let done = begun().answered(10, 12, complete(1, 1), Answer::Recorded);
    assert!(is_linearizable(done.answered(20, 22, acquire(2), duplicate(1)), 0));
}

#[test]
fn a_takeover_after_the_lease_of_a_killed_owner_is_linearizable() {
    let met = begun().answered(500, 502, acquire(2), conflict(500));
    let late = met.answered(1100, 1102, acquire(3), acquired(1101, 2, true));
    assert!(is_linearizable(late.answered(1200, 1202, complete(1, 1), Answer::Lost(LostTo::Processing)), 0));
}

#[test]
fn a_call_without_an_answer_is_executed_or_not() {
    let shown = calls().cut_off(0, acquire(1)).answered(10, 12, acquire(2), conflict(995));
    assert!(is_linearizable(shown, 0));
    let not_executed = calls().cut_off(0, acquire(1)).answered(10, 12, acquire(2), acquired(11, 1, false));
    assert!(is_linearizable(not_executed, 0));
    let completed = begun().cut_off(10, complete(1, 1)).answered(20, 22, acquire(2), duplicate(1));
    assert!(is_linearizable(completed, 0));
}

#[test]
fn many_equal_calls_without_an_answer_are_decided() {
    let owners = [1, 2, 3, 4];
    let withdrawn = |owner| Call::Release { request: request(owner), claim: None };
    let mut calls = owners.into_iter().fold(calls(), |calls, owner| calls.cut_off(0, acquire(owner)));
    for at_ms in 10..45 {
        calls = owners.into_iter().fold(calls, |calls, owner| calls.cut_off(at_ms, withdrawn(owner)));
    }
    assert!(is_impossible(calls.answered(60, 62, acquire(5), duplicate(1))));
}

#[test]
fn concurrent_calls_are_executed_in_any_order() {
    let concurrent = begun()
        .answered(10, 30, acquire(2), duplicate(1))
        .answered(12, 28, complete(1, 1), Answer::Recorded)
        .answered(11, 29, acquire(3), conflict(985));
    assert!(is_linearizable(concurrent, 0));
}

#[test]
fn a_call_that_was_sent_twice_is_named() {
    let repeated = || {
        begun()
            .answered(10, 12, fail(1, 1, 1), Answer::Recorded)
            .answered(20, 22, acquire(2), acquired(21, 2, false))
            .answered(30, 32, fail(2, 21, 2), Answer::Recorded)
            // Owner 1 sent its acquire twice, and the first one was executed after 32 ms.
            .answered(40, 42, acquire(3), conflict(995))
    };
    assert!(!is_linearizable(repeated(), 0));
    assert!(is_linearizable(repeated(), 1));
    assert_eq!(faults(repeated(), Allowances::REAL), Vec::<String>::new());
    assert!(!faults(repeated(), Allowances::EXACT).is_empty());
}

#[test]
fn two_owners_at_once_are_a_lost_acquire() {
    let writes = lost(begun().answered(10, 12, acquire(2), acquired(11, 1, false)));
    assert_eq!(writes.len(), 1);
    assert!(
        writes[0].to_string().starts_with("pay-1: acknowledged write lost: acquire by 0101010101010101"),
        "{writes:?}"
    );
    assert!(writes[0].is_acknowledged);
}

#[test]
fn work_that_is_done_and_runs_again_is_a_lost_completion() {
    let done = begun().answered(10, 12, complete(1, 1), Answer::Recorded);
    let writes = lost(done.answered(1100, 1102, acquire(2), acquired(1101, 2, true)));
    assert_eq!(writes.len(), 1);
    assert!(
        writes[0].to_string().starts_with("pay-1: acknowledged write lost: complete by 0101010101010101"),
        "{writes:?}"
    );
    assert!(writes[0].is_acknowledged);
}

#[test]
fn a_duplicate_of_nothing_is_impossible() {
    assert!(is_impossible(begun().answered(10, 12, acquire(2), duplicate(1))));
}

#[test]
fn a_takeover_that_is_no_recovery_is_impossible() {
    assert!(is_impossible(begun().answered(1100, 1102, acquire(2), acquired(1101, 2, false))));
}

#[test]
fn a_takeover_during_the_lease_is_impossible() {
    assert!(is_impossible(begun().answered(900, 902, acquire(2), acquired(901, 2, true))));
}

#[test]
fn a_conflict_after_the_lease_is_impossible() {
    assert!(is_impossible(begun().answered(1100, 1102, acquire(2), conflict(1))));
}

#[test]
fn a_fence_that_does_not_grow_is_impossible() {
    let calls =
        begun().answered(1100, 1102, acquire(2), Answer::Acquired { fence: fence(1), attempt: 2, recovery: true });
    // The model has no clock but the order of the fences, so it does not see a fence of the past.
    assert!(matches!(verdict(&calls.operations(), Allowances::REAL), Verdict::NotLinearizable { .. }));
}

#[test]
fn an_answer_to_a_call_that_was_not_executed_is_impossible() {
    let not_sent = calls().answered(0, 2, acquire(1), Answer::NotExecuted);
    assert!(is_impossible(not_sent.answered(10, 12, acquire(2), conflict(991))));
}

#[test]
fn a_call_that_was_executed_before_it_was_invoked_is_impossible() {
    let early =
        calls().answered(10, 12, acquire(2), conflict(991)).answered(20, 22, acquire(1), acquired(21, 1, false));
    assert!(is_impossible(early));
}

#[test]
fn an_owner_that_was_replaced_and_completes_is_a_lost_takeover() {
    let late = begun().answered(1100, 1102, acquire(2), acquired(1101, 2, true));
    let writes = lost(late.answered(1200, 1202, complete(1, 1), Answer::Recorded));
    assert_eq!(writes.len(), 1);
    assert!(
        writes[0].to_string().starts_with("pay-1: acknowledged write lost: acquire by 0202020202020202"),
        "{writes:?}"
    );
    assert!(writes[0].is_acknowledged);
}

#[test]
fn a_file_that_no_process_writes_is_not_read() {
    assert!(begun().read().is_ok());
    assert!(Calls(Vec::new()).read().is_ok(), "of a process that was killed before its first event");
    let [invoked, returned] = [1, 2].map(|event| begun().0[event].clone());
    assert!(Calls([begun().0, vec![returned]].concat()).read().is_err(), "a second answer");
    assert!(Calls([begun().0, vec![invoked]].concat()).read().is_err(), "a second call with a number");
    assert!(calls().answered(2, 1, acquire(1), acquired(1, 1, false)).read().is_err(), "an answer before its call");
}
