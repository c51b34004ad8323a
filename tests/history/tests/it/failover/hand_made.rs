//! Failovers made by hand, in which something is wrong or nothing is.

use history::{Answer, Effect, Failover, FailoverVerdict, Hex, Log, Logs, LostTo, Reach};

use history::hand_made::{Calls, KEY, acquire, acquired, calls, complete, complete_recovery, fence};

/// When the fault occurs, ms. All processes reach the old primary before it, and the new one after it.
const FAULT_MS: u64 = 1000;

/// A log with these records: state, owner, and the time of the claim, ms.
fn log(records: &[(u8, u8, u64)]) -> Log {
    let set = |(state, owner, at_ms): &(u8, u8, u64)| {
        let record = [&[*state, 1, 0, 1][..], &fence(*at_ms).to_be_bytes(), &Hex([*owner; 8]).0, &[1; 16]].concat();
        vec![b"SET".to_vec(), format!("payments:{KEY}").into_bytes(), record]
    };
    Log::of("payments", &records.iter().map(set).collect::<Vec<_>>())
}

fn verdict(calls: Calls, old: &[(u8, u8, u64)], new: &[(u8, u8, u64)], effects: &[(u64, bool)]) -> FailoverVerdict {
    let reach = Reach { old: [0..FAULT_MS * 1000, 0..0], new_from: FAULT_MS * 1000 };
    let mut failover = Failover::default();
    failover.add(calls.history(), &reach, &Logs { old: log(old), new: log(new) });
    let effect = |(at_ms, is_recovery): &(u64, bool)| {
        let (key, fence, at_us, is_recovery) = (KEY.to_owned(), fence(*at_ms), *at_ms * 1000 + 2000, *is_recovery);
        Effect { key, fence, is_recovery, at_us }
    };
    failover.verdict(&effects.iter().map(effect).collect::<Vec<_>>(), FAULT_MS * 1000)
}

fn is_found(verdict: &FailoverVerdict, text: &str) {
    assert!(verdict.wrong.iter().any(|wrong| wrong.contains(text)), "{:#?}", verdict.wrong);
}

/// A claim is lost, and another owner runs on the new primary, as a recovery or not.
fn repeated(is_recovery: bool) -> Calls {
    calls().answered(0, 2, acquire(1), acquired(1, 1, false)).answered(
        3000,
        3002,
        acquire(2),
        acquired(3001, if is_recovery { 2 } else { 1 }, is_recovery),
    )
}

const CLAIMS: [(u8, u8, u64); 2] = [(b'P', 1, 1), (b'P', 2, 3001)];
const EFFECTS: [(u64, bool); 2] = [(1, false), (3001, false)];

#[test]
fn a_lost_claim_explains_a_repetition_as_a_first_attempt() {
    let verdict = verdict(repeated(false), &CLAIMS[..1], &CLAIMS[1..], &EFFECTS);
    assert_eq!((verdict.wrong.as_slice(), verdict.lost, verdict.untold), ([].as_slice(), 1, 1));
}

#[test]
fn a_lost_completion_explains_a_repetition_as_a_recovery() {
    let completed = calls()
        .answered(0, 2, acquire(1), acquired(1, 1, false))
        .answered(10, 12, complete(1, 1), Answer::Recorded)
        .answered(3000, 3002, acquire(2), acquired(3001, 2, true))
        .answered(3010, 3012, complete_recovery(2, 3001), Answer::Recorded);
    let (old, new) = ([CLAIMS[0], (b'C', 1, 1)], [CLAIMS[0], CLAIMS[1], (b'C', 2, 3001)]);
    let verdict = verdict(completed, &old, &new, &[(1, false), (3001, true)]);
    assert_eq!((verdict.wrong.as_slice(), verdict.lost, verdict.told), ([].as_slice(), 1, 1));
}

#[test]
fn a_repetition_without_a_loss_is_found() {
    // Both servers have the first claim, so the second attempt is wrong.
    let verdict = verdict(repeated(false), &CLAIMS[..1], &CLAIMS, &EFFECTS);
    assert_eq!(verdict.lost, 0);
    is_found(&verdict, "acknowledged write lost");
    is_found(&verdict, "no claim was lost");
}

#[test]
fn a_recovery_after_a_lost_claim_is_found() {
    // The new primary cannot know of it.
    is_found(&verdict(repeated(true), &CLAIMS[..1], &CLAIMS[1..], &[(1, false), (3001, true)]), "not linearizable");
}

#[test]
fn an_acknowledged_write_that_no_server_has_is_found() {
    is_found(&verdict(repeated(false), &CLAIMS[..1], &[], &EFFECTS), "→ Acquired");
}

#[test]
fn an_answer_of_the_old_primary_without_its_write_is_found() {
    let calls = calls().answered(0, 2, acquire(1), acquired(1, 1, false)).answered(
        10,
        12,
        complete(1, 1),
        Answer::Lost(LostTo::Completed),
    );
    is_found(&verdict(calls, &CLAIMS[..1], &CLAIMS[..1], &[(1, false)]), "not linearizable");
}

#[test]
fn an_effect_without_a_run_is_found() {
    is_found(&verdict(repeated(false), &CLAIMS[..1], &CLAIMS[1..], &[(7, false)]), "no server has the run");
}
