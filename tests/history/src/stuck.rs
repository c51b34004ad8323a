//! Whether each process gets answers again after a fault.

use std::collections::BTreeMap;

use crate::history::{History, Operation};

/// Longest pause between the calls of a process that is running, µs. A process that is stopped makes none for longer.
const PAUSE_US: u64 = 1_000_000;

/// How long the calls of a process may fail after another process got an answer, µs.
const RECOVERY_US: u64 = 1_500_000;

/// The processes whose calls go on to fail although another process gets answers.
#[must_use]
pub(crate) fn stuck_processes(history: &History) -> Vec<String> {
    let mut processes: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in history.keys.values().flatten().chain(&history.not_executed) {
        processes.entry(&operation.process).or_default().push(operation);
    }
    let mut stuck = Vec::new();
    for (process, operations) in &mut processes {
        operations.sort_by_key(|operation| (operation.invoked_us, operation.number));
        for series in operations
            .chunk_by(|call, next| call.is_failed() == next.is_failed() && next.invoked_us - call.invoked_us < PAUSE_US)
        {
            let (first, last) = (series[0], series[series.len() - 1]);
            if !first.is_failed() || last.invoked_us < first.invoked_us + RECOVERY_US {
                continue;
            }
            let all = || history.keys.values().flatten().chain(&history.not_executed);
            let others = || all().filter(|other| other.process != *process);
            let answered = || others().filter(|other| !other.is_failed());
            let answered_us = answered().map(|other| other.invoked_us).filter(|at_us| *at_us >= first.invoked_us).min();
            // A part of the store fails for another process too, which gets answers from the others.
            let is_of_part = |failed: &&Operation| {
                failed.is_failed()
                    && failed.invoked_us <= last.invoked_us
                    && answered().any(|other| {
                        other.process == failed.process && other.invoked_us.abs_diff(failed.invoked_us) < PAUSE_US / 2
                    })
            };
            let failed_us = others().filter(is_of_part).map(|failed| failed.invoked_us).max().unwrap_or_default();
            if answered_us.is_some_and(|at_us| last.invoked_us >= at_us.max(failed_us) + RECOVERY_US) {
                stuck.push(format!("process {process} gets no answers while another does, from {first} to {last}"));
            }
        }
    }
    stuck
}
