//! A necessary condition that takes no search: without a loss, the fences of the claims of a key grow.
//!
//! A record that is neither lost nor expired keeps its fence or gets a greater one, and each claim of another owner has
//! a greater one than the record. A search would try all orders before it finds that two claims contradict this.

use crate::event::Answer;
use crate::history::Operation;

/// Two claims of different owners, of which the second has not a greater fence than the first: it was invoked after the
/// first was returned, or both have the same fence. No order without a loss contains both.
pub(crate) fn contradiction(operations: &[Operation]) -> Option<[&Operation; 2]> {
    let claims: Vec<_> = operations.iter().filter_map(|operation| Some((operation, fence(operation)?))).collect();
    let retention_ms = operations.iter().map(|operation| operation.call.request().retention_ms).min()?;
    let pairs = claims.iter().flat_map(|first| claims.iter().map(move |second| (first, second)));
    let wrong = pairs.filter(|((first, first_fence), (second, second_fence))| {
        let is_later = first.ends_us() < second.invoked_us;
        let grows = if is_later { second_fence > first_fence } else { second_fence != first_fence };
        let other_owner = first.call.request().owner != second.call.request().owner;
        !grows && other_owner && keeps_record(first, second, retention_ms)
    });
    wrong.map(|((first, _), (second, _))| [*first, *second]).next()
}

fn fence(operation: &Operation) -> Option<u64> {
    match operation.answer {
        Answer::Acquired { fence, .. } => Some(fence),
        _ => None,
    }
}

/// Whether the record of one of these claims is neither lost, as far as the run knows, nor expired when the other is
/// executed. It expires `retention_ms` after it was written, at the earliest, by a clock that may have been set in
/// between.
fn keeps_record(first: &Operation, second: &Operation, retention_ms: u64) -> bool {
    let from_us = first.invoked_us.min(second.invoked_us);
    let until_us = first.ends_us().max(second.ends_us());
    let is_lost = first.losses.iter().any(|loss| (from_us..=until_us).contains(&loss.at_us));
    let wall_us = [from_us, until_us].map(|us| us.saturating_add(first.unix_offset_us));
    let clock = first.server_clock(wall_us.into());
    let begins_us = clock.iter().map(|(from_us, ..)| *from_us).min();
    let ends_us = clock.iter().map(|(_, until_us, _)| *until_us).max();
    let lasts_us = ends_us.zip(begins_us).map(|(ends_us, begins_us)| ends_us - begins_us);
    !is_lost && lasts_us.is_some_and(|lasts_us| lasts_us < retention_ms.saturating_mul(1000))
}
