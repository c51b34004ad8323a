//! When operations may be executed: by their own times, by the server's clock, and by what the answers of the history
//! show.

use super::Step;
use crate::event::Answer;
use crate::history::Operation;
use crate::machine::{Choice, Shown, choices};

/// The times that are tried for the end of a lease that a conflict shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Those at which the conflict, or an operation during it, was invoked. Nearly always, an order exists with these.
    Invocations,
    /// Every millisecond of the conflict.
    All,
}

/// Operations that may be executed next, by their indices, with the choices for each.
pub(crate) type Next = Vec<(usize, Vec<Choice>)>;

/// The answered operations that may follow this order.
pub(crate) fn next_answers(operations: &[Operation], order: &[Step], tolerance_us: u64) -> Next {
    let done = |at: usize| {
        order.iter().any(|step| matches!(step, Step::Executed { operation, is_answer: true, .. } if *operation == at))
    };
    let clock_us = order.iter().rev().find_map(|step| match step {
        Step::Executed { wall_us, .. } => Some(*wall_us),
        Step::Lost { .. } => None,
    });
    let waiting = || (0..operations.len()).filter(|at| operations[*at].returned_us.is_some() && !done(*at));
    let horizon_us = waiting().map(|at| operations[at].ends_us()).min().unwrap_or(u64::MAX);
    let may_follow = waiting().filter(|at| operations[*at].invoked_us <= horizon_us);
    let shown = shown(operations, tolerance_us, Times::All);
    let choices = |at: usize| {
        let (from_us, to_us) = window(&operations[at], operations[at].ends_us(), tolerance_us);
        let record = order.last().and_then(Step::after);
        let ranges = operations[at].server_clock((from_us.max(clock_us.unwrap_or_default()), to_us)).into_iter();
        let choices =
            ranges.flat_map(|(from_us, to_us, _)| choices(&operations[at], true, record, (from_us, to_us), &shown));
        choices.collect()
    };
    may_follow.map(|at| (at, choices(at))).collect()
}

/// The times that the answers of these operations show.
pub(super) fn shown(operations: &[Operation], tolerance_us: u64, times: Times) -> Shown {
    let begins_us = operations.first().map_or(0, |operation| operation.invoked_us);
    let clock = |operation: &Operation| operation.server_clock(window(operation, operation.ends_us(), tolerance_us));
    let invoked_us: Vec<_> = operations.iter().flat_map(clock).map(|(from_us, ..)| from_us).collect();
    let mut shown = Shown { begins_us, ..Shown::default() };
    for operation in operations {
        let failed_retention_us = u64::try_from(operation.attempt.failed_retention.as_micros()).unwrap_or(u64::MAX);
        for (from_us, to_us, _) in clock(operation) {
            shown.reached_us.push(from_us);
            match operation.answer {
                Answer::Conflict { remains_ms } if times == Times::All => {
                    shown.lease_ends_ms.extend(from_us / 1000 + remains_ms..=to_us / 1000 + remains_ms);
                }
                Answer::Conflict { remains_ms } => {
                    let during = invoked_us.iter().filter(|us| (from_us..=to_us).contains(*us));
                    shown.lease_ends_ms.extend(during.map(|us| us / 1000 + remains_ms));
                }
                Answer::Failed => shown.applies_us.push(from_us.saturating_sub(failed_retention_us) + 1),
                _ => {}
            }
        }
        match operation.answer {
            Answer::Duplicate { fence, .. } => shown.fences_us.push(fence),
            Answer::Acquired { fence, .. } => {
                shown.claims.push((operation.call.request().owner, fence));
                shown.reached_us.push(fence);
                // After a clock went back, a fence follows the one before.
                if operation.clock_goes_back(begins_us) {
                    shown.fences_us.extend([fence.saturating_sub(1), fence.saturating_sub(2)]);
                }
            }
            _ => {}
        }
    }
    let Shown { lease_ends_ms, fences_us, reached_us, applies_us, .. } = &mut shown;
    for times in [lease_ends_ms, fences_us, reached_us, applies_us] {
        times.sort_unstable();
        times.dedup();
    }
    shown
}

/// The times by the wall clock at which the operation may be executed, if it is by `until_us` of the monotonic clock.
pub(super) fn window(operation: &Operation, until_us: u64, tolerance_us: u64) -> (u64, u64) {
    let from_us = (operation.invoked_us + operation.unix_offset_us).saturating_sub(tolerance_us);
    (from_us, until_us.saturating_add(operation.unix_offset_us + tolerance_us))
}
