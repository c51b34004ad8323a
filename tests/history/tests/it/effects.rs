//! Effects that do not fit the runs of a history made by hand.

use history::{Allowances, Answer, Call, Effect, Hex, LostTo, LostWrite, Outside, Repetition, RepetitionKind, Report};

use history::hand_made::{
    Calls, KEY, acquire, acquired, calls, complete, complete_recovery, duplicate, fence, release,
};

/// The effect of a claim that was acquired at this time, 5 ms later.
fn effect(acquired_ms: u64, is_recovery: bool) -> Effect {
    effect_at(acquired_ms, is_recovery, acquired_ms + 5)
}

fn effect_at(acquired_ms: u64, is_recovery: bool, at_ms: u64) -> Effect {
    Effect { key: KEY.to_owned(), fence: fence(acquired_ms), is_recovery, at_us: at_ms * 1000 }
}

/// The faults of a run in which all messages of the key were deleted.
fn faults(calls: Calls, effects: &[Effect]) -> Vec<String> {
    let outside = Outside { effects: effects.to_vec(), deleted: vec![KEY.to_owned()], ..Outside::default() };
    let report = Report::of_functions(&calls.history(), &outside, Allowances::REAL);
    assert!(report.not_linearizable.is_empty(), "{report:?}");
    report.faults().collect()
}

fn once() -> Calls {
    calls().answered(0, 2, acquire(1), acquired(1, 1, false)).answered(10, 12, complete(1, 1), Answer::Recorded)
}

/// A process is stopped, and another one takes over.
fn replaced() -> Calls {
    calls()
        .answered(0, 2, acquire(1), acquired(1, 1, false))
        .answered(1100, 1102, acquire(2), acquired(1101, 2, true))
        .answered(1110, 1112, complete_recovery(2, 1101), Answer::Recorded)
        .answered(1200, 1202, complete(1, 1), Answer::Lost(LostTo::Completed))
}

fn is_one(faults: &[String], text: &str) {
    assert!(faults.len() == 1 && faults[0].contains(text), "{faults:#?}");
}

#[test]
fn one_effect_of_each_run_is_right() {
    assert_eq!(faults(once(), &[effect(1, false)]), Vec::<String>::new());
    assert_eq!(faults(replaced(), &[effect(1, false), effect(1101, true)]), Vec::<String>::new());
    assert_eq!(faults(replaced(), &[effect(1101, true)]), Vec::<String>::new());
}

#[test]
fn a_deletion_without_an_effect_is_found() {
    is_one(&faults(once(), &[]), "deleted without its effect");
}

#[test]
fn a_deletion_before_a_completion_is_found() {
    let begun = || calls().answered(0, 2, acquire(1), acquired(1, 1, false));
    is_one(&faults(begun(), &[effect(1, false)]), "deleted before it was completed");
    let cut_off = || begun().cut_off(10, complete(1, 1));
    is_one(&faults(cut_off(), &[effect(1, false)]), "deleted before it was completed");
    let shown = cut_off().answered(20, 22, acquire(2), duplicate(1));
    assert_eq!(faults(shown, &[effect(1, false)]), Vec::<String>::new());
}

#[test]
fn an_effect_without_a_run_is_found() {
    assert!(
        faults(once(), &[effect(1, false), effect(7, true)]).iter().any(|fault| fault.contains("no run has the fence"))
    );
}

#[test]
fn two_effects_of_one_run_are_found() {
    let faults = faults(once(), &[effect(1, false), effect(1, false)]);
    assert!(faults.iter().any(|fault| fault.contains("more than once")), "{faults:#?}");
    assert!(faults.iter().any(|fault| fault.contains("2 effects of 0 unknown runs")), "{faults:#?}");
}

#[test]
fn an_effect_before_its_claim_was_returned_is_found() {
    is_one(&faults(once(), &[effect_at(1, false, 1)]), "before its claim was returned at 2000 µs");
    assert_eq!(faults(once(), &[effect_at(1, false, 2)]), Vec::<String>::new());
}

#[test]
fn an_effect_after_its_run_was_done_is_found() {
    is_one(&faults(once(), &[effect_at(1, false, 11)]), "after its run was done at 10000 µs");
    assert_eq!(faults(once(), &[effect_at(1, false, 10)]), Vec::<String>::new());
    // The completion of a run that was replaced is not recorded, but it was invoked.
    let late = [effect_at(1, false, 1201), effect(1101, true)];
    is_one(&faults(replaced(), &late), "after its run was done at 1200000 µs");
}

#[test]
fn a_repetition_and_the_lost_writes_have_their_claim_and_times() {
    let outside = Outside { effects: vec![effect(1, false), effect(1101, false)], ..Outside::default() };
    let history = once().answered(1100, 1102, acquire(2), acquired(1101, 1, false)).history();
    let report = Report::of_functions(&history, &outside, Allowances::REAL);
    let repetitions: Vec<_> = report.wrong_effects.iter().map(|wrong| wrong.repetition).collect();
    assert_eq!(repetitions, [Some(Repetition { fence: fence(1101), kind: RepetitionKind::NotTold })]);
    let times = |write: &LostWrite| (write.is_acknowledged, write.operation.invoked_us, write.operation.returned_us);
    let lost: Vec<_> = report.lost_writes.iter().map(times).collect();
    assert_eq!(lost, [(true, 0, Some(2000)), (true, 10_000, Some(12_000))]);
}

#[test]
fn a_repetition_that_was_not_told_is_found() {
    let faults = faults(replaced(), &[effect(1, false), effect(1101, false)]);
    assert!(faults.iter().any(|fault| fault.contains("was not told")), "{faults:#?}");
}

#[test]
fn an_effect_of_a_run_that_reported_none_is_found() {
    let released = calls()
        .answered(0, 2, acquire(1), acquired(1, 1, false))
        .answered(10, 12, release(1, 1), Answer::Recorded)
        .answered(20, 22, acquire(2), acquired(21, 1, false))
        .answered(30, 32, complete(2, 21), Answer::Recorded);
    let faults = faults(released, &[effect(1, false), effect(21, false)]);
    assert!(faults.iter().any(|fault| fault.contains("of a run that reported none")), "{faults:#?}");
}

#[test]
fn a_call_that_no_attempt_makes_is_found() {
    let settled_twice = once().answered(20, 22, complete(1, 1), Answer::Recorded);
    is_one(&faults(settled_twice, &[effect(1, false)]), "no attempt makes this call: complete");
    let (mut of_another, released) = (release(1, 1), release(1, 1));
    if let Call::Release { request, .. } = &mut of_another {
        request.fingerprint = Hex([2; 16]);
    }
    for (release, count) in [(of_another, 1), (released, 0)] {
        let begun = calls().answered(0, 2, acquire(1), acquired(1, 1, false));
        let again =
            begun.answered(10, 12, release, Answer::Recorded).answered(20, 22, acquire(2), acquired(21, 1, false));
        let faults = faults(again.answered(30, 32, complete(2, 21), Answer::Recorded), &[effect(21, false)]);
        let wrong = faults.iter().filter(|fault| fault.contains("no attempt makes this call: release"));
        assert_eq!(wrong.count(), count, "{faults:#?}");
    }
    let repeated = calls()
        .answered(0, 2, acquire(1), acquired(1, 1, false))
        .answered(10, 500, complete(1, 1), Answer::Unknown)
        .answered(550, 552, complete(1, 1), Answer::Recorded);
    assert_eq!(faults(repeated, &[effect(1, false)]), Vec::<String>::new());
}
