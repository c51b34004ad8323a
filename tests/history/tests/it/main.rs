//! Histories of real processes and stores, and that the checker finds what is wrong in them.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other value must fail the test")]

mod contention;
mod edited;
mod effects;
// A partition needs several loopback addresses, which only Linux has without configuration.
#[cfg(target_os = "linux")]
mod failover;
mod guards;
mod hand_made;
mod inbox;
mod lost_writes;
mod torture;
mod webhook;
