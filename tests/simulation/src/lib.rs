//! Runs the whole function in one thread, by a seed: several execution environments, the event source mapping and the
//! queue of the test kit, a Redis that executes the scripts in `lua/`, and a receiver, on a simulated network and clock.
//!
//! - `deterministic`, `rng`, `trace`: the same seed has the same run
//! - `network`: hosts, streams and their faults
//! - [`redis`]: servers and clusters
#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::must_use_candidate, reason = "not published")]

pub mod deterministic;
pub mod network;
pub mod redis;
pub mod rng;
pub mod trace;
