//! Whether the calls of each attempt are those of the model's attempts (`tests/core/model/world/attempts.rs`): acquire,
//! then one way to settle, repeated until it is answered.

use crate::event::{Answer, Call, Claim, Hex};
use crate::history::Operation;

/// The calls of these operations of one key that no attempt of the core makes.
#[must_use]
pub(crate) fn unexpected_calls(operations: &[Operation], own_records: bool) -> Vec<String> {
    let mut owners: Vec<Hex<8>> = operations.iter().map(|operation| operation.call.request().owner).collect();
    owners.sort_unstable();
    owners.dedup();
    let of = |owner: Hex<8>| operations.iter().filter(move |operation| operation.call.request().owner == owner);
    owners.into_iter().filter_map(|owner| unexpected_call(&of(owner).collect::<Vec<_>>(), own_records)).collect()
}

/// The first call of one attempt that is not expected. A call before it was cut off if it has no answer.
fn unexpected_call(calls: &[&Operation], own_records: bool) -> Option<String> {
    let is_expected = |at: usize| match at.checked_sub(1) {
        None => matches!(calls[at].call, Call::Acquire { .. }),
        Some(before) => follows(calls[before], calls[at]) && comes_from(calls[0], calls[at], own_records),
    };
    let at = (0..calls.len()).find(|at| !is_expected(*at))?;
    Some(format!("no attempt makes this call: {}", calls[at]))
}

/// Whether an attempt makes this call after that one.
fn follows(before: &Operation, call: &Operation) -> bool {
    let in_order = before.returned_us.is_none_or(|returned_us| returned_us <= call.invoked_us);
    let is_next = match (&before.call, &call.call) {
        (Call::Acquire { .. }, Call::Complete { .. } | Call::Fail { .. } | Call::Release { claim: Some(_), .. }) => {
            true
        }
        (Call::Acquire { .. }, Call::Release { claim: None, .. }) => before.answer == Answer::Unknown,
        // A call is repeated until it is answered.
        (earlier, later) => earlier == later && before.answer == Answer::Unknown,
    };
    in_order && is_next
}

/// Whether a call belongs to this acquire: it has its request, and the claim that it returned, and reports what the
/// model reports.
fn comes_from(acquire: &Operation, call: &Operation, own_records: bool) -> bool {
    if call.call.request() != acquire.call.request() {
        return false;
    }
    let Some(claim) = call.claim() else { return true };
    // The record of the work shows that it is done, although the store says that it has failed, or has another payload.
    if own_records && matches!(acquire.answer, Answer::Failed | Answer::Mismatch) {
        return matches!(call.call, Call::Complete { .. });
    }
    let Claim { request, fence, attempt, recovery } = claim;
    // A recovery that finds another payload is not counted.
    let is_clean = matches!(call.call, Call::Fail { uncertain: false, permanent: false, .. });
    let attempt = if own_records && *recovery && is_clean { attempt + 1 } else { *attempt };
    let is_own = *request == *acquire.call.request()
        && acquire.answer == (Answer::Acquired { fence: *fence, attempt, recovery: *recovery });
    let is_reported = match &call.call {
        // A recovery that fails stays in doubt, and the last attempt is permanent.
        Call::Fail { uncertain, permanent, .. } => {
            let is_last = attempt >= request.max_attempts && !(own_records && *uncertain);
            // Another payload is a mismatch again in the next attempt, whatever this one is.
            let is_mismatch = own_records && !uncertain && !permanent;
            is_mismatch || (*uncertain || !recovery) && (*permanent || !is_last)
        }
        Call::Acquire { .. } | Call::Complete { .. } | Call::Release { .. } => true,
    };
    is_own && is_reported
}
