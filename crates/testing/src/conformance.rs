//! The conformance suite: each transition of the [`Store`] contract, and each property that holds for all of them.
//!
//! A test is a function that takes an empty store and panics if the store violates the contract. The macro
//! [`store_conformance!`](crate::store_conformance) makes a `#[tokio::test]` of each:
//!
//! ```
//! # use idempotent_sqs::MemoryStore;
//! mod conformance {
//!     # use super::MemoryStore;
//!     idempotent_sqs_testing::store_conformance!(MemoryStore::default());
//! }
//! # fn main() {}
//! ```
//!
//! # Another store
//! Add `tokio`, with its features `macros` and `rt`, and this crate without default features to the
//! `[dev-dependencies]`. Each test needs an empty store: a new server, a new table, or a new namespace or key prefix,
//! because all tests use the same keys. What must stay alive during the test, such as a server, is bound in front of
//! the store:
//!
//! ```
//! # use idempotent_sqs::MemoryStore;
//! # struct Server(MemoryStore);
//! # impl Server {
//! #     async fn start() -> Self { Self(MemoryStore::default()) }
//! #     fn store(&self) -> &MemoryStore { &self.0 }
//! # }
//! mod conformance {
//!     # use super::Server;
//!     idempotent_sqs_testing::store_conformance!(let server = Server::start().await; server.store());
//! }
//! # fn main() {}
//! ```
//!
//! If a server takes long to start, [`run_all`] runs all rows in one test:
//!
//! ```
//! use idempotent_sqs::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // For a server: a store with a new namespace.
//! idempotent_sqs_testing::conformance::run_all(async || MemoryStore::default()).await;
//! # }
//! ```
//!
//! # Real time
//! More than half of the rows wait for the end of a lease or of a retention, up to 1.3 s.
//!
//! The store's clock decides, so they need real time: do not pause tokio's clock, except for a store that uses
//! it, such as `MemoryStore`. The other rows assume only that a call returns well within 60 seconds, the lease that
//! they ask for. If the store has a timeout, make it long enough for a slow test machine.
//!
//! # Fences
//! Fences must start at the store's clock, in µs since 1970. That is what makes them grow after a record was lost.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a row panics if the store violates the contract")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer violates the contract")]

mod acquire;
mod carried_over;
mod doubt;
mod keys;
mod lifetime;
mod payload;
mod release;
mod retention;
mod settle;
mod support;
mod unchanged;

use idempotent_sqs::Store;

pub use self::acquire::*;
pub use self::carried_over::*;
pub use self::doubt::*;
pub use self::keys::*;
pub use self::lifetime::*;
pub use self::payload::*;
pub use self::release::*;
pub use self::retention::*;
pub use self::settle::*;
pub use self::unchanged::*;

/// Makes a `#[tokio::test]` of each test of the [conformance suite](crate::conformance), with its name. Takes an
/// expression that makes an empty store, and optionally a `let` in front of it that keeps a fixture alive. Both may
/// `await`.
///
/// Put it in a separate module for each store.
#[macro_export]
macro_rules! store_conformance {
    (let $fixture:pat = $start:expr; $store:expr $(,)?) => {
        $crate::__conformance_rows! { @tests [$fixture = $start; $store] }
    };
    ($store:expr $(,)?) => {
        $crate::__conformance_rows! { @tests [$store] }
    };
}

/// Runs all rows in sequence, each on an empty store that `store` makes. Prints the name of each row to stderr.
///
/// # Panics
/// If the store violates the contract.
pub async fn run_all<S: Store>(mut store: impl AsyncFnMut() -> S) {
    macro_rules! run {
        ($($row:ident)*) => {$(
            eprintln!("{}", stringify!($row));
            $row(&store().await).await;
        )*};
    }
    crate::__conformance_rows! { @call run }
}

/// The list of all rows.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_rows {
    (@tests [$fixture:pat = $start:expr; $store:expr] $($row:ident)+) => {$(
        #[::tokio::test]
        async fn $row() {
            let $fixture = $start;
            $crate::conformance::$row(&$store).await;
        }
    )+};
    (@tests [$store:expr] $($row:ident)+) => {$(
        #[::tokio::test]
        async fn $row() {
            $crate::conformance::$row(&$store).await;
        }
    )+};
    (@call $call:ident $($row:ident)+) => {
        $call! { $($row)+ }
    };
    ($($head:tt)+) => {
        $crate::__conformance_rows! {
            $($head)+
            an_absent_record_is_acquired
            a_live_lease_is_a_conflict_with_its_remaining_time
            an_ended_lease_is_taken_over_as_a_recovery_under_a_higher_fence
            a_repeated_acquire_of_the_same_owner_gets_the_same_answer
            a_repeated_acquire_of_a_recovery_gets_the_same_answer
            a_completed_record_is_a_duplicate_with_its_result
            a_clean_failure_is_acquired_again_and_keeps_its_attempts
            an_uncertain_failure_is_acquired_as_a_recovery
            a_permanent_failure_applies_to_its_message_only
            a_parked_failure_is_a_recovery_for_another_message
            an_owner_that_failed_cannot_acquire_again
            used_up_attempts_fail_until_another_message
            a_spent_failure_applies_for_its_failed_retention
            attempts_that_never_settled_are_counted
            another_payload_is_a_conflict_during_a_lease_and_a_mismatch_after_it
            another_payload_mismatches_a_completed_record
            another_payload_is_acquired_after_a_clean_failure
            another_payload_mismatches_an_uncertain_failure
            no_fingerprint_matches_every_payload
            no_fingerprint_does_not_erase_the_stored_one
            empty_results_objects_and_results_not_kept_are_distinguished
            a_result_may_hold_any_bytes
            complete_is_idempotent
            fail_is_idempotent
            a_late_owner_does_not_change_a_completed_record
            a_late_completion_replaces_a_failure_of_the_same_payload
            a_late_completion_does_not_replace_a_failure_of_another_payload
            a_late_uncertain_failure_marks_a_later_failure_of_the_same_payload
            a_late_completion_of_a_taken_over_claim_is_lost_and_changes_nothing
            a_late_failure_of_a_taken_over_claim_is_lost_and_changes_nothing
            a_late_failure_of_a_completed_claim_is_lost_and_changes_nothing
            a_released_attempt_is_not_counted_and_causes_no_recovery
            a_release_keeps_the_uncertainty_of_earlier_attempts
            the_attempt_after_a_released_takeover_is_a_recovery
            releases_use_up_no_attempts
            release_is_idempotent
            a_release_without_an_acquire_changes_nothing
            a_release_of_a_recovery_whose_record_was_lost_keeps_the_uncertainty
            a_release_of_a_recovery_marks_a_later_failure_of_the_same_payload
            a_release_of_a_recovery_without_a_fingerprint_marks_a_later_failure
            late_doubt_leaves_a_permanent_failure_permanent
            a_release_of_a_first_attempt_whose_record_was_lost_changes_nothing
            a_release_of_another_owners_record_is_lost_and_changes_nothing
            an_owner_that_released_cannot_acquire_again
            completing_a_lost_record_restores_it
            failing_a_lost_record_restores_it
            a_claim_can_be_completed_after_its_lease_until_it_is_taken_over
            a_record_expires_with_its_retention
            a_record_lives_at_least_as_long_as_its_lease
            a_retention_of_zero_is_accepted
            a_lease_longer_than_the_longest_is_shortened
            a_repeated_acquire_after_the_lease_gets_the_same_answer
            a_takeover_renews_the_retention
            an_acquire_after_a_failure_renews_the_retention
            a_permanent_failure_of_a_second_message_applies_to_it
            a_payload_that_completes_after_a_failed_one_replaces_it
            a_payload_that_is_acquired_after_a_failed_one_replaces_it
            completing_a_lost_record_restores_its_attempts
            failing_a_lost_record_restores_its_attempts
            a_permanent_failure_of_a_lost_record_applies_to_its_message
            an_uncertain_failure_of_a_lost_record_restores_its_payload
            a_released_recovery_whose_record_was_lost_restores_its_payload
            a_conflict_has_the_time_that_remains_of_the_lease
            used_up_attempts_of_an_ended_lease_apply_to_its_message_for_the_failed_retention
            attempts_above_a_lower_maximum_are_used_up
            a_failed_retention_counts_from_the_acquire
            another_payload_of_a_message_that_failed_permanently_fails
            another_payload_mismatches_a_permanent_uncertain_failure
            a_late_completion_without_a_fingerprint_keeps_the_stored_one
            a_late_completion_replaces_a_failure_without_a_fingerprint
            a_completion_replaces_a_failure_of_its_own_claim
            a_completion_has_the_number_of_its_attempt
            a_failure_does_not_lower_the_fence
            a_completion_does_not_lower_the_fence
            a_settlement_of_a_lost_record_is_idempotent
            late_doubt_does_not_concern_another_payload
            late_doubt_without_a_fingerprint_concerns_every_payload
            late_doubt_concerns_a_failure_without_a_fingerprint
            late_doubt_is_idempotent
            the_doubt_of_a_released_recovery_is_idempotent
            a_late_permanent_failure_is_lost
            a_release_of_a_first_attempt_leaves_no_doubt
            a_released_recovery_whose_record_was_lost_restores_its_message
            a_lease_up_to_that_of_the_request_is_not_shortened
            a_shortened_lease_stays_that_of_its_owner
            a_claim_can_be_failed_or_released_after_its_lease_until_it_is_taken_over
            the_longest_durations_are_accepted
            an_acquire_that_does_not_get_the_record_does_not_renew_the_retention
            a_settlement_does_not_renew_the_retention
            a_restored_record_expires_with_its_retention
            a_repeated_acquire_does_not_renew_the_lease
            a_conflict_changes_nothing
            a_duplicate_changes_nothing
            a_failed_acquire_changes_nothing
            every_kind_of_key_has_a_record_of_its_own
            a_key_restored_from_its_stored_form_has_the_same_record
            one_of_many_concurrent_acquires_succeeds
            concurrent_acquires_of_different_keys_are_independent
            a_settlement_and_a_takeover_exclude_each_other
        }
    };
}
