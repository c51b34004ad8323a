//! A model of the protocol, checked in every schedule of its faults.
//!
//! The model has two messages of one key, with the same payload or different ones, and up to four attempts at them.
//! Messages are redelivered, moved to the dead-letter queue after two receives, and redriven under a new messageId.
//! Each call is a request, an execution and a reply, as separate steps. A trace has a limited number of faults of any
//! kind: a crash, a pause beyond the deadline, a work that fails or cannot start, a lost request or reply, a late or
//! repeated execution, a timeout, an additional delivery, an eviction, a failover that loses the last writes, and a
//! clock that jumps forwards or back. Steps that are not faults happen in every order: leases end and messages are
//! redelivered.
//!
//! Assumptions:
//! - An invocation ends before its lease ends and its message is visible again, unless it was paused or the clock
//!   jumped.
//! - The store's clock differs between two claims of one key, unless it jumped back.
//! - A message in conflict becomes visible when that lease ends, or later.
//!
//! One repeated effect is permitted for each of these events in the trace, and for no other:
//! - A claim was taken over while its owner continued, because its lease ended early.
//! - State was lost, and an acquire followed before the owner settled.
//! - An attempt died, timed out or did not know its outcome between its effect and the record.

mod world;

use std::collections::BTreeSet;
use std::time::Instant;

use record_model::{Guard, Scripts};
use stateright::{Checker, HasDiscoveries, Model, Property};

use world::{Protocol, Rule, World};

const NO_LOSS: &str = "no message is deleted without its effect";
const NO_REPEAT: &str = "no effect is repeated without a cause";
const COMPLETED_STAYS: &str = "a completed record stays completed";
const FENCE_GROWS: &str = "the fence only grows";
const STALE_OWNER: &str = "a stale owner changes nothing";
const NO_SELF_CONFLICT: &str = "no owner conflicts with itself";
const CONFLICTS: &str = "conflicts alone do not dead-letter a message";
const RECOVERY: &str = "a run after an effect is a recovery";
const PERMANENT: &str = "a permanent failure stays";
const RELEASED: &str = "a released attempt is not counted";

fn properties(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always(NO_LOSS, |_, world: &World| world.nothing_is_deleted_without_its_effect()),
        Property::always(NO_REPEAT, |protocol, world: &World| world.nothing_is_repeated_without_a_cause(protocol)),
        Property::always(COMPLETED_STAYS, |_, world: &World| world.holds(Rule::CompletedStays)),
        Property::always(FENCE_GROWS, |_, world: &World| world.holds(Rule::FenceGrows)),
        Property::always(STALE_OWNER, |_, world: &World| world.holds(Rule::StaleOwnerChangesNothing)),
        Property::always(NO_SELF_CONFLICT, |_, world: &World| world.holds(Rule::NoConflictWithItself)),
        Property::always(CONFLICTS, |_, world: &World| world.holds(Rule::ConflictsDeadLetterNothing)),
        Property::always(RECOVERY, |_, world: &World| world.holds(Rule::RunAfterEffectIsRecovery)),
        Property::always(PERMANENT, |_, world: &World| world.holds(Rule::PermanentFailureStays)),
        Property::always(RELEASED, |_, world: &World| world.holds(Rule::ReleasedIsNotCounted)),
        // Without these the other properties would hold trivially.
        Property::sometimes("all messages are done", |_, world: &World| world.all_messages_are_done()),
        Property::sometimes("a redriven message is done", |_, world: &World| world.a_redriven_message_is_done()),
        Property::sometimes("a loss repeats an effect", |_, world: &World| world.repeats_for([0, 1, 0])),
    ];
    if !protocol.park {
        properties.push(Property::sometimes("an early end of a lease repeats an effect", |_, world: &World| {
            world.repeats_for([1, 0, 0])
        }));
        properties
            .push(Property::sometimes("a crash repeats an effect", |_, world: &World| world.repeats_for([0, 0, 1])));
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

/// Without the guard the property is violated, within this number of attempts and faults.
fn violates(guard: Guard, property: &'static str, attempts: usize, faults: u8) {
    let whole = protocol(attempts, faults);
    let protocol = Protocol { scripts: Scripts { without: Some(guard), ..whole.scripts }, ..whole };
    let first = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let checker = protocol.checker().finish_when(first).spawn_bfs().join();
    let trace = checker.discovery(property).map(stateright::Path::into_actions);
    println!("without {guard:?}, {property:?} is violated by {trace:?}");
    assert!(trace.is_some(), "without {guard:?} the property still holds: {property}");
}

#[test]
fn without_the_owner_check_in_complete_a_stale_owner_completes() {
    violates(Guard::OwnerInComplete, STALE_OWNER, 2, 1);
}

#[test]
fn without_the_owner_check_in_fail_a_stale_owner_fails_the_record_of_another() {
    violates(Guard::OwnerInFail, STALE_OWNER, 2, 2);
}

#[test]
fn without_the_stored_fence_a_clock_that_jumps_back_takes_the_fence_with_it() {
    violates(Guard::FenceAboveStored, FENCE_GROWS, 2, 2);
}

#[test]
fn without_the_clock_the_fence_restarts_after_a_loss() {
    violates(Guard::FenceFromClock, FENCE_GROWS, 2, 1);
}

#[test]
fn without_restoring_in_complete_finished_work_is_repeated() {
    violates(Guard::RestoreInComplete, NO_REPEAT, 2, 1);
}

#[test]
fn without_restoring_in_fail_an_uncertain_failure_is_lost() {
    violates(Guard::RestoreInFail, RECOVERY, 2, 2);
}

#[test]
fn without_the_fingerprint_another_payload_is_deleted_without_its_effect() {
    violates(Guard::Fingerprint, NO_LOSS, 2, 0);
}

#[test]
fn without_the_lease_two_run_at_once() {
    violates(Guard::Lease, NO_REPEAT, 2, 0);
}

#[test]
fn without_an_end_of_leases_conflicts_dead_letter_a_message() {
    violates(Guard::LeaseEnds, CONFLICTS, 3, 1);
}

#[test]
fn without_the_owner_in_acquire_an_owner_that_lost_a_reply_conflicts_with_itself() {
    violates(Guard::SameOwner, NO_SELF_CONFLICT, 1, 1);
}

#[test]
fn without_the_owner_of_a_failure_a_late_acquire_takes_the_record_back() {
    violates(Guard::SettledOwner, STALE_OWNER, 1, 2);
}

#[test]
fn without_the_duplicate_completed_does_not_stay() {
    violates(Guard::CompletedStays, COMPLETED_STAYS, 2, 0);
}

#[test]
fn without_the_permanent_mark_a_permanent_failure_runs_again() {
    violates(Guard::Permanent, PERMANENT, 2, 1);
}

#[test]
fn without_recovery_after_a_takeover_a_repeated_effect_is_not_a_recovery() {
    violates(Guard::TakeoverIsRecovery, RECOVERY, 2, 1);
}

#[test]
fn without_stored_recoveries_a_failed_recovery_hides_earlier_uncertainty() {
    violates(Guard::RecoveryStays, RECOVERY, 3, 2);
}

#[test]
fn without_the_owner_check_in_release_a_stale_owner_releases_the_record_of_another() {
    violates(Guard::OwnerInRelease, STALE_OWNER, 2, 2);
}

#[test]
fn without_the_uncertainty_in_release_a_repeated_effect_is_not_a_recovery() {
    violates(Guard::UncertaintyInRelease, RECOVERY, 3, 2);
}

#[test]
fn without_the_count_in_release_attempts_that_never_ran_are_used_up() {
    violates(Guard::UncountedInRelease, RELEASED, 1, 1);
}

#[test]
fn without_the_fingerprint_in_complete_a_late_owner_replaces_the_failure_of_another_payload() {
    violates(Guard::FingerprintInComplete, STALE_OWNER, 2, 2);
}

#[test]
fn if_an_unknown_settlement_counts_as_success_a_message_is_lost() {
    violates(Guard::UnknownIsNoSuccess, NO_LOSS, 1, 2);
}

#[test]
fn if_a_failed_work_whose_claim_was_lost_counts_as_success_a_message_is_lost() {
    violates(Guard::LostAfterFailure, NO_LOSS, 2, 2);
}

#[test]
fn if_conflicts_do_not_wait_for_the_lease_they_dead_letter_a_message() {
    violates(Guard::ConflictWaits, CONFLICTS, 3, 0);
}
