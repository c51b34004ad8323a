//! Histories that are possible at some times only: by the tolerance, by the server's clock, and by the expiry of
//! records.

use std::collections::BTreeMap;

use history::hand_made::{Calls, KEY, acquire, acquired, calls, complete, conflict, fail, fence, release, request};
use history::{Allowances, Answer, Call, Claim, Jump, Loss, LostTo, Report, Request};

use super::{begun, faults, is_impossible, is_linearizable};

/// What is wrong if the server's clock is set at these times this far ahead, ms.
fn faults_with_jumps(calls: Calls, jumps: &[(u64, i64)]) -> Vec<String> {
    let jump = |(at_ms, ahead_ms): &(u64, i64)| Jump { at_us: at_ms * 1000, ahead_us: ahead_ms * 1000 };
    let history = calls.history().with_jumps(&jumps.iter().map(jump).collect::<Vec<_>>());
    Report::of_calls(&history, Allowances::EXACT).faults().collect()
}

#[test]
fn a_server_clock_outside_the_interval_of_its_call_is_within_the_tolerance() {
    let early = || calls().answered(10, 12, acquire(1), acquired(6, 1, false));
    assert_eq!(faults(early(), Allowances::REAL), Vec::<String>::new());
    assert!(!faults(early(), Allowances::EXACT).is_empty());
    let conflict = || begun().answered(10, 12, acquire(2), conflict(987));
    assert_eq!(faults(conflict(), Allowances::REAL), Vec::<String>::new());
    assert!(!faults(conflict(), Allowances::EXACT).is_empty());
    assert_eq!(faults(begun(), Allowances::EXACT), Vec::<String>::new());
}

#[test]
fn a_conflict_that_shortens_a_lease_later_is_executed_later() {
    // Its answer would also be right during the first lease, which it does not shorten.
    let with = |owner, lease_ms, longest_lease_ms| Call::Acquire {
        request: Request { lease_ms, longest_lease_ms, ..request(owner) },
    };
    let shortened = |remains_ms| {
        calls()
            .answered(0, 20, with(1, 40, 10_000), acquired(20, 1, false))
            .answered(0, 42, with(2, 40, 40), conflict(40))
            .answered(22, 25, release(1, 20), Answer::Recorded)
            .answered(28, 32, acquire(3), acquired(30, 1, false))
            .answered(43, 44, acquire(4), conflict(remains_ms))
    };
    assert!(is_linearizable(shortened(37), 0));
    assert!(is_linearizable(shortened(986), 0));
    assert!(!is_linearizable(shortened(500), 0));
}

#[test]
fn after_its_clock_went_back_a_server_shortens_a_lease() {
    // Owner 1 acquires when the clock is 100 seconds ahead.
    let begun = || calls().answered(10, 12, acquire(1), acquired(100_011, 1, false));
    let jumps = [(5, 100_000), (50, 0)];
    // Between 60 and 70 ms, at 66 ms, the lease is shortened to 10 seconds.
    let shortened = begun().answered(60, 70, acquire(2), conflict(10_000));
    let shown = shortened.answered(100, 100, acquire(3), conflict(9966));
    assert_eq!(faults_with_jumps(shown, &jumps), Vec::<String>::new());
    let shortened = begun().cut_off(60, acquire(2)).answered(100, 100, acquire(3), conflict(9966));
    assert_eq!(faults_with_jumps(shortened, &jumps), Vec::<String>::new());
    let too_late = begun().cut_off(60, acquire(2)).answered(100, 100, acquire(3), conflict(9926));
    assert!(!faults_with_jumps(too_late, &jumps).is_empty());
}

#[test]
fn a_fence_follows_the_one_before_only_after_the_clock_went_back() {
    let again = || {
        let next = Answer::Acquired { fence: fence(1) + 1, attempt: 2, recovery: false };
        begun().answered(10, 12, fail(1, 1, 1), Answer::Recorded).answered(30, 32, acquire(2), next)
    };
    assert_eq!(faults_with_jumps(again(), &[(20, -1000)]), Vec::<String>::new());
    for jumps in [&[(20, 1000)], &[(40, -1000)]] {
        assert!(!faults_with_jumps(again(), jumps).is_empty());
    }
}

#[test]
fn claims_whose_fences_do_not_grow_are_named_without_a_search() {
    const WHY: &str = "the fence of acquire by 0202020202020202";
    let is_named = |faults: &[String]| faults.len() == 1 && faults[0].contains(WHY) && faults[0].contains("by 0101");
    // The clock goes back by a second, and the next claim has the same fence, or that of its own time.
    let jumps = [(20, -1000)];
    let next = |fence: u64| Answer::Acquired { fence, attempt: 2, recovery: false };
    let after = |fence: u64| {
        begun().answered(10, 12, fail(1, 1, 1), Answer::Recorded).answered(30, 32, acquire(2), next(fence))
    };
    for fence in [fence(1), fence(31) - 1_000_000] {
        assert!(is_named(&faults_with_jumps(after(fence), &jumps)), "{:?}", faults_with_jumps(after(fence), &jumps));
    }
    assert_eq!(faults_with_jumps(after(fence(1) + 1), &jumps), Vec::<String>::new());
    // Two claims that overlap have no order by time, but the fences of two owners differ.
    let overlapping =
        begun().answered(10, 30, fail(1, 1, 1), Answer::Recorded).answered(0, 32, acquire(2), next(fence(1)));
    assert!(is_named(&faults_with_jumps(overlapping, &jumps)));
}

#[test]
fn fences_need_not_grow_if_a_record_was_lost_or_has_expired() {
    let jumps = [Jump { at_us: 20_000, ahead_us: -1_000_000 }];
    let lower = || {
        let next = Answer::Acquired { fence: fence(31) - 1_000_000, attempt: 1, recovery: false };
        begun().answered(30, 32, acquire(2), next).history().with_jumps(&jumps)
    };
    // The run knows the loss, or it does not.
    let losses = BTreeMap::from([(KEY.to_owned(), vec![Loss { at_us: 25_000, since_us: 0 }])]);
    for (history, is_known) in [(lower(), false), (lower().with_losses(&losses), true)] {
        let lost = Report::of_calls(&history, Allowances::EXACT).lost_writes;
        assert!(lost.len() == 1 && lost[0].is_known == is_known, "{lost:?}");
    }
    // The clock is 100 seconds ahead until 15 ms. The record of owner 2 is kept for 10 ms.
    let followed = Answer::Acquired { fence: fence(100_011) + 1, attempt: 1, recovery: false };
    let expired = calls()
        .answered(10, 12, brief(acquire(1), 10, 0), acquired(100_011, 1, false))
        .answered(13, 14, brief(release(1, 100_011), 10, 0), Answer::Recorded)
        .answered(20, 22, brief(acquire(2), 10, 0), followed)
        .answered(60, 62, brief(acquire(3), 10, 0), acquired(61, 1, false));
    assert_eq!(faults_with_jumps(expired, &[(5, 100_000), (15, 0)]), Vec::<String>::new());
}

#[test]
fn the_order_of_time_is_kept_in_a_run_with_a_jump() {
    // The lease ends at 1001 ms, so there is no conflict after the answer at 1050 ms.
    let late = || {
        begun().answered(1050, 1052, complete(2, 1), Answer::Lost(LostTo::Processing)).answered(
            900,
            1200,
            acquire(3),
            conflict(500),
        )
    };
    assert!(is_impossible(late()));
    let found = faults_with_jumps(late(), &[(10_000, -5)]);
    assert!(found.iter().any(|fault| fault.contains("the model allows none")), "{found:#?}");
}

/// A call with a lease of 10 ms, this retention, and this time for which a failure applies, in ms.
fn brief(mut call: Call, retention_ms: u64, failed_retention_ms: u64) -> Call {
    let (Call::Acquire { request }
    | Call::Complete { claim: Claim { request, .. }, .. }
    | Call::Fail { claim: Claim { request, .. }, .. }
    | Call::Release { request, .. }) = &mut call;
    (request.lease_ms, request.retention_ms) = (10, retention_ms);
    (request.failed_retention_ms, request.max_attempts) = (failed_retention_ms, 1);
    call
}

#[test]
fn an_acquire_without_an_answer_may_be_executed_late() {
    for retention_ms in [25, 150] {
        let acquire = |owner| brief(acquire(owner), retention_ms, 0);
        // Only a record that was written shortly before 9000 ms is there.
        let taken_over = || calls().cut_off(0, acquire(1)).answered(9000, 9002, acquire(2), acquired(9001, 1, true));
        assert_eq!(faults(taken_over(), Allowances::REAL), Vec::<String>::new());
        assert_eq!(faults(taken_over(), Allowances::EXACT), Vec::<String>::new());
        let missed =
            calls().cut_off(0, acquire(1)).answered(9000, 9002, complete(2, 1), Answer::Lost(LostTo::Processing));
        assert_eq!(faults(missed, Allowances::EXACT), Vec::<String>::new());
        // It expires again before the next call.
        let expired = taken_over().answered(9400, 9402, acquire(3), acquired(9401, 1, false));
        assert_eq!(faults(expired, Allowances::EXACT), Vec::<String>::new());
        let expired = calls().cut_off(0, acquire(1)).answered(9000, 9002, acquire(2), acquired(9001, 1, false));
        assert!(
            !faults(expired.answered(9003, 9004, acquire(3), acquired(9003, 1, false)), Allowances::EXACT).is_empty()
        );
    }
}

#[test]
fn a_settling_call_without_an_answer_may_be_executed_late() {
    let settled = [brief(fail(1, 1, 1), 25, 0), brief(complete(1, 1), 25, 0)];
    for (settled, shown) in settled.into_iter().zip([LostTo::Failed, LostTo::Completed]) {
        let late = calls()
            .answered(0, 2, brief(acquire(1), 25, 0), acquired(1, 1, false))
            .cut_off(5, settled)
            .answered(9000, 9002, brief(fail(2, 3000, 1), 25, 0), Answer::Lost(shown));
        assert_eq!(faults(late, Allowances::EXACT), Vec::<String>::new());
    }
}

#[test]
fn a_claim_without_an_answer_is_acquired_again_by_its_owner() {
    let again = calls().cut_off(0, acquire(1)).answered(500, 502, acquire(1), acquired(300, 1, false));
    assert_eq!(faults(again, Allowances::EXACT), Vec::<String>::new());
    let before = calls().cut_off(300, acquire(1)).answered(500, 502, acquire(1), acquired(200, 1, false));
    assert!(!faults(before, Allowances::EXACT).is_empty());
}

#[test]
fn a_failure_shows_when_a_claim_without_an_answer_was_acquired() {
    // All attempts are used up, which applies for 50 ms.
    let failed = |failed_ms| {
        calls().cut_off(0, brief(acquire(1), 60_000, 50)).answered(
            9000,
            failed_ms,
            brief(acquire(2), 60_000, 50),
            Answer::Failed,
        )
    };
    assert_eq!(faults(failed(9002), Allowances::EXACT), Vec::<String>::new());
}

/// Whether each write that was lost is one that the run knows to be lost at this time, since this time, in ms.
fn are_known(calls: Calls, at_ms: u64, since_ms: u64) -> Vec<bool> {
    let losses = BTreeMap::from([(KEY.to_owned(), vec![Loss { at_us: at_ms * 1000, since_us: since_ms * 1000 }])]);
    let report = Report::of_calls(&calls.history().with_losses(&losses), Allowances::EXACT);
    assert!(report.not_linearizable.is_empty(), "{report:?}");
    report.lost_writes.iter().map(|write| write.is_known).collect()
}

#[test]
fn only_writes_of_the_time_that_was_lost_are_known_to_be_lost() {
    let repeated = || {
        let done = begun().answered(10, 12, complete(1, 1), Answer::Recorded);
        done.answered(1100, 1102, acquire(2), acquired(1101, 2, true))
    };
    assert_eq!(are_known(repeated(), 50, 5), [true]);
    assert_eq!(are_known(repeated(), 11, 11), [true]);
    // Neither a write before that time, nor one of which a later call shows that it was lost earlier.
    for (at_ms, since_ms) in [(50, 13), (9, 0), (2000, 5)] {
        assert_eq!(are_known(repeated(), at_ms, since_ms), [false], "{at_ms} {since_ms}");
    }
    // If the claim was lost too, there is no recovery.
    let again = || {
        let done = begun().answered(10, 12, complete(1, 1), Answer::Recorded);
        done.answered(1100, 1102, acquire(2), acquired(1101, 1, false))
    };
    assert_eq!(are_known(again(), 50, 0), [true, true]);
    assert_eq!(are_known(again(), 50, 5), [false, false]);
}

#[test]
fn a_call_without_an_answer_may_follow_a_known_loss() {
    let failed = || begun().cut_off(10, fail(1, 1, 1));
    // Its failure is lost with the claim, or there was no failure, or it stays after the loss.
    let lost = failed().answered(60, 62, acquire(2), acquired(61, 1, false));
    assert!(are_known(lost, 50, 0).iter().all(|is_known| *is_known));
    let after = failed().answered(60, 62, acquire(2), acquired(61, 2, false));
    assert_eq!(are_known(after, 50, 0), [] as [bool; 0]);
}
