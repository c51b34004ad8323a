//! Runs the whole function in one thread, by a seed: several execution environments, the event source mapping and the
//! queue of the test kit, a Redis that executes the scripts in `lua/`, and a receiver, on a simulated network and
//! clock.
//!
//! - `deterministic`, `trace`: each seed has the same run every time
//! - `network`: hosts, streams and their faults
//! - `connections`: those of the client library of Redis
//! - [`redis`]: servers and clusters
//! - [`postgres`]: servers that execute SQL
//! - `owners`: owners that break rules of the function contend for keys
//! - `plan`, `servers`: what a seed chooses before its run
//! - `producers`, `sent`, `malformed`: the messages, what is known of them, and events with malformed records
//! - `queue`, `sqs`, `objects`, `receiver`: the queues, the API of SQS, S3 and the effects
//! - `work`, `function`: the work and the processes
//! - `logins`: how clients log in at Redis
//! - `faults`, `maintenance`: inject the faults
//! - `after`: what callers do after the function has ended
//! - `callers`: read the results of work that was done
//! - `closures`: run closures once
//! - `own_records`: work with a record of its own
//! - `http`: HTTP requests to services with the layer
//! - `disconnects`: HTTP requests in tasks of their own, whose clients disconnect
//! - `parts`: parts of the library on their own
//! - `deployments`: connections to servers, clusters and sentinels by their URLs
//! - `sharing`: script calls that records of a cluster share
//! - `records`: scans and removals by an operator
//! - `letters`: reasons and sizes of dead letters
//! - `redrives`: an operator's commands on a dead-letter queue
//! - `memory`: records in memory
//! - `batches`: batches whose receivers are unavailable
//! - `duplicates`: batches with equal messages
//! - `shards`: batches on a store whose parts fail separately
//! - `deleted`: messages whose payload was deleted, and lists of keys
//! - `late_results`: large results that a redelivery finds while S3 hangs
//! - `freezes`: works of a process that does not run for some time
//! - `times`: batches whose messages take more time than an invocation has
//! - `visibility`: visibility timeouts of messages that were received long ago
//! - `store_errors`: invocations whose store fails
//! - `regions`: the regions of dead letters
//! - `inbox`: works by the inbox, on a PostgreSQL
//! - `backfill`: copies the rows of a PostgreSQL to a Redis
//! - `identity`: logins that AWS issues
//! - `inputs`: settings, messages and events
//! - `settings`: environments
//! - [`world`]: one run
//! - `verdict`: what is wrong
//! - [`command`]: the command line
//! - [`runner`]: runs seeds and prints their verdicts
//!
//! It replaces functions of libc, as Linux has them; on other systems the crate is empty.
#![cfg(target_os = "linux")]
#![recursion_limit = "256"]
#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::must_use_candidate, reason = "not published")]

mod after;
mod backfill;
mod batches;
mod busy;
mod callers;
mod closures;
pub mod command;
pub mod connections;
mod deleted;
mod deployments;
pub mod deterministic;
mod disconnects;
mod duplicates;
mod faults;
mod freezes;
mod function;
mod http;
mod identity;
mod inbox;
mod inputs;
mod late_results;
mod letters;
mod logins;
mod maintenance;
mod malformed;
mod memory;
pub mod network;
mod objects;
mod own_records;
mod owners;
mod parts;
mod plan;
pub mod postgres;
mod producers;
mod queue;
mod receiver;
mod records;
pub mod redis;
mod redrives;
mod regions;
pub mod runner;
mod sent;
mod servers;
mod settings;
mod shards;
mod sharing;
mod sqs;
mod store_errors;
mod times;
mod trace;
mod verdict;
mod visibility;
mod work;
pub mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of its last holder: works panic on purpose.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
