//! The protocol as a model, and every schedule of its faults.
//!
//! Two messages of one key, with the same payload or another; up to four attempts between them,
//! counting redeliveries, dead-lettering after two receives and a redrive under a new messageId.
//! Each verb is a request, an execution and a reply of their own. A trace has a budget of faults,
//! of whatever kinds: a crash, a pause beyond the deadline, a work that fails, a request or a reply
//! lost, an execution twice or late, no answer in time, a work that cannot start, a delivery too many, an eviction, a failover
//! that drops the newest writes, and a clock that jumps forwards or back. Whatever needs no fault
//! happens in every order: leases end and messages come again.
//!
//! It is assumed that
//! - an invocation is over before its lease ends and its message is visible again, unless it was
//!   paused or the clock jumped;
//! - the store's clock differs between two claims of one key, unless it jumped back;
//! - a message that met a conflict becomes visible no sooner than that lease ends.
//!
//! One more effect is permitted for each of these events in the trace, and for no other:
//! - a claim was taken over while its owner went on, because its lease had ended early;
//! - state was lost, and an acquire met the loss before the owner settled;
//! - an attempt died, gave up or could not tell between its effect and the record of it.

mod scripts;
mod world;

use std::collections::BTreeSet;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use scripts::{Guard, Scripts};
use world::{Promise, Protocol, World};

const NO_LOSS: &str = "nothing is deleted without its effect";
const NO_REPEAT: &str = "no effect is repeated without a cause";
const COMPLETED_STAYS: &str = "completed stays";
const FENCE_GROWS: &str = "the fence only grows";
const STALE_OWNER: &str = "a stale owner changes nothing";
const WITH_ITSELF: &str = "a conflict is with somebody else";
const CONFLICTS: &str = "conflicts alone dead-letter nothing";
const TOLD: &str = "a run after an effect is a recovery";
const FOR_GOOD: &str = "what failed for good stays failed";
const UNCOUNTED: &str = "what is released is not counted";

fn properties(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always(NO_LOSS, |_, world: &World| world.nothing_is_deleted_without_its_effect()),
        Property::always(NO_REPEAT, |protocol, world: &World| world.nothing_is_repeated_without_a_cause(protocol)),
        Property::always(COMPLETED_STAYS, |_, world: &World| world.keeps(Promise::CompletedStays)),
        Property::always(FENCE_GROWS, |_, world: &World| world.keeps(Promise::FenceGrows)),
        Property::always(STALE_OWNER, |_, world: &World| world.keeps(Promise::StaleOwnerChangesNothing)),
        Property::always(WITH_ITSELF, |_, world: &World| world.keeps(Promise::ConflictIsWithSomebodyElse)),
        Property::always(CONFLICTS, |_, world: &World| world.keeps(Promise::ConflictsDeadLetterNothing)),
        Property::always(TOLD, |_, world: &World| world.keeps(Promise::RunAfterAnEffectIsARecovery)),
        Property::always(FOR_GOOD, |_, world: &World| world.keeps(Promise::FailedForGoodStaysFailed)),
        Property::always(UNCOUNTED, |_, world: &World| world.keeps(Promise::ReleasedIsNotCounted)),
        // A model in which these cannot happen would prove nothing.
        Property::sometimes("all is done", |_, world: &World| world.all_is_done()),
        Property::sometimes("a redriven message is done", |_, world: &World| world.one_is_redriven_and_done()),
        Property::sometimes("a loss repeats", |_, world: &World| world.repeats_for([0, 1, 0])),
    ];
    if !protocol.park {
        properties.push(Property::sometimes("an early end repeats", |_, world: &World| world.repeats_for([1, 0, 0])));
        properties.push(Property::sometimes("a crash repeats", |_, world: &World| world.repeats_for([0, 0, 1])));
    }
    properties
}

fn protocol(attempts: usize, faults: u8) -> Protocol {
    let scripts = Scripts { without: None, max_attempts: 2 };
    Protocol { scripts, faults, max_receives: 2, attempts, park: false }
}

fn holds(protocol: Protocol) {
    let start = Instant::now();
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{states} states, up to {depth} steps deep, in {:.1?}: {protocol:?}", start.elapsed());
    checker.assert_properties();
}

#[test]
fn every_property_holds_in_every_schedule_of_two_faults() {
    holds(protocol(4, 2));
}

#[test]
fn every_property_holds_in_every_schedule_of_two_faults_with_parked_recoveries() {
    holds(Protocol { park: true, ..protocol(3, 2) });
}

#[test]
#[ignore = "five million states: a minute, in a release build"]
fn every_property_holds_in_every_schedule_of_three_faults_and_three_attempts() {
    holds(protocol(3, 3));
}

/// Without the guard the promise is broken, within so many attempts and faults.
fn breaks(guard: Guard, promise: &'static str, attempts: usize, faults: u8) {
    let whole = protocol(attempts, faults);
    let protocol = Protocol { scripts: Scripts { without: Some(guard), ..whole.scripts }, ..whole };
    let first = HasDiscoveries::AllOf(BTreeSet::from([promise]));
    let checker = protocol.checker().finish_when(first).spawn_bfs().join();
    let trace = checker.discovery(promise).map(stateright::Path::into_actions);
    println!("without {guard:?}: {promise}, but {trace:?}");
    assert!(trace.is_some(), "without {guard:?} it is still true that {promise}");
}

#[test]
fn without_the_owner_check_in_complete_a_stale_owner_completes() {
    breaks(Guard::OwnerInComplete, STALE_OWNER, 2, 1);
}

#[test]
fn without_the_owner_check_in_fail_a_stale_owner_fails_the_record_of_another() {
    breaks(Guard::OwnerInFail, STALE_OWNER, 2, 2);
}

#[test]
fn without_the_stored_fence_a_clock_that_jumps_back_takes_the_fence_with_it() {
    breaks(Guard::FenceAboveStored, FENCE_GROWS, 2, 2);
}

#[test]
fn without_the_clock_the_fence_restarts_after_a_loss() {
    breaks(Guard::FenceFromClock, FENCE_GROWS, 2, 1);
}

#[test]
fn without_restoring_in_complete_finished_work_is_repeated() {
    breaks(Guard::HealInComplete, NO_REPEAT, 2, 1);
}

#[test]
fn without_restoring_in_fail_an_uncertain_failure_is_lost() {
    breaks(Guard::HealInFail, TOLD, 2, 2);
}

#[test]
fn without_the_fingerprint_another_payload_is_deleted_without_its_effect() {
    breaks(Guard::Fingerprint, NO_LOSS, 2, 0);
}

#[test]
fn without_the_lease_two_run_at_once() {
    breaks(Guard::Lease, NO_REPEAT, 2, 0);
}

#[test]
fn without_an_end_of_leases_conflicts_dead_letter_a_message() {
    breaks(Guard::LeaseEnds, CONFLICTS, 3, 1);
}

#[test]
fn without_the_owner_in_acquire_an_owner_that_lost_a_reply_conflicts_with_itself() {
    breaks(Guard::SameOwner, WITH_ITSELF, 1, 1);
}

#[test]
fn without_the_owner_of_a_failure_a_late_acquire_takes_the_record_back() {
    breaks(Guard::SettledOwner, STALE_OWNER, 1, 2);
}

#[test]
fn without_the_duplicate_completed_does_not_stay() {
    breaks(Guard::CompletedStays, COMPLETED_STAYS, 2, 0);
}

#[test]
fn without_the_permanent_mark_a_permanent_failure_runs_again() {
    breaks(Guard::Permanent, FOR_GOOD, 2, 1);
}

#[test]
fn without_recovery_after_a_takeover_a_repeated_effect_is_not_a_recovery() {
    breaks(Guard::TakeoverIsRecovery, TOLD, 2, 1);
}

#[test]
fn without_stored_recoveries_a_failed_recovery_hides_earlier_uncertainty() {
    breaks(Guard::RecoveryStays, TOLD, 3, 2);
}

#[test]
fn without_the_owner_check_in_release_a_stale_owner_releases_the_record_of_another() {
    breaks(Guard::OwnerInRelease, STALE_OWNER, 2, 2);
}

#[test]
fn without_the_uncertainty_in_release_a_repeated_effect_is_not_a_recovery() {
    breaks(Guard::DoubtInRelease, TOLD, 3, 2);
}

#[test]
fn without_the_count_in_release_attempts_that_never_ran_are_used_up() {
    breaks(Guard::UncountedInRelease, UNCOUNTED, 1, 1);
}

#[test]
fn without_the_fingerprint_in_complete_a_late_owner_replaces_the_failure_of_another_payload() {
    breaks(Guard::FingerprintInComplete, STALE_OWNER, 2, 2);
}

#[test]
fn if_an_unknown_settlement_counts_as_success_a_message_is_lost() {
    breaks(Guard::UnknownIsNoSuccess, NO_LOSS, 1, 2);
}

#[test]
fn if_a_lost_claim_counts_as_success_a_message_is_lost() {
    breaks(Guard::LostIsNoSuccess, NO_LOSS, 2, 2);
}

#[test]
fn if_a_failed_work_counts_as_success_of_another_payload_a_message_is_lost() {
    breaks(Guard::LostAfterFailure, NO_LOSS, 2, 2);
}

#[test]
fn if_conflicts_do_not_wait_for_the_lease_they_dead_letter_a_message() {
    breaks(Guard::ConflictWaits, CONFLICTS, 3, 0);
}
