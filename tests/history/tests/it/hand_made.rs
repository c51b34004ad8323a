//! Histories made by hand, which are linearizable or are not.

mod times;

use history::hand_made::{Calls, KEY, acquire, acquired, calls, complete, conflict, duplicate, fail, fence, request};
use history::{Allowances, Answer, Call, History, LostTo, LostWrite, Report, Verdict, verdict};

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

#[test]
fn calls_that_begin_at_one_time_are_in_the_order_of_their_processes() {
    let directory = tempfile::tempdir().unwrap();
    let processes = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for process in ["c", "h", "a", "f", "d", "b", "g", "e"] {
        begun().write(directory.path(), process).unwrap();
    }
    let history = History::read(directory.path()).unwrap();
    assert!(history.keys[KEY].iter().map(|operation| &operation.process).eq(processes));
}
