//! Whether the effects that the receiver counted are those of the runs in the history.

use crate::event::{Answer, Call, Claim};
use crate::history::Operation;

/// One effect, as its receiver saw it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Effect {
    /// The idempotency key.
    pub key: String,
    /// The fence of its claim.
    pub fence: u64,
    /// Whether it was told that an earlier attempt may have taken effect.
    pub is_recovery: bool,
}

/// How a run ended by the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Its completion was recorded.
    Recorded,
    /// It reported that it had no effect.
    WithoutEffect,
    /// Anything else: it may have had its effect.
    Unknown,
}

/// What is wrong with the effects of one key, and the number of its unknown runs.
#[must_use]
pub(crate) fn wrong_effects(operations: &[Operation], effects: &[&Effect]) -> (Vec<String>, usize) {
    let mut wrong = Vec::new();
    let runs: Vec<(Claim, End)> = operations.iter().filter_map(claimed).map(|claim| ended(claim, operations)).collect();
    let unknown = runs.iter().filter(|(_, end)| *end == End::Unknown).count();
    for effect in effects {
        let run = runs.iter().find(|(claim, _)| claim.fence == effect.fence);
        wrong.extend(match run {
            None => Some(format!("no run has the fence of {effect:?}")),
            Some((claim, _)) if claim.recovery != effect.is_recovery => {
                Some(format!("the run was told otherwise than {effect:?}: {claim:?}"))
            }
            Some((claim, End::WithoutEffect)) => Some(format!("{effect:?} of a run that reported none: {claim:?}")),
            Some(_) => None,
        });
        let earlier = effects.iter().any(|other| other.fence < effect.fence);
        if earlier && !effect.is_recovery {
            wrong.push(format!("this repetition was not told: {effect:?}"));
        }
        if effects.iter().filter(|other| other.fence == effect.fence).count() > 1 {
            wrong.push(format!("one run had this effect more than once: {effect:?}"));
        }
    }
    if effects.len() > 1 + unknown {
        wrong.push(format!("{} effects of {unknown} unknown runs: {effects:?}", effects.len()));
    }
    (wrong, unknown)
}

/// The claim that this operation returned.
fn claimed(operation: &Operation) -> Option<Claim> {
    match (&operation.call, &operation.answer) {
        (Call::Acquire { request }, Answer::Acquired { fence, attempt, recovery }) => {
            Some(Claim { request: request.clone(), fence: *fence, attempt: *attempt, recovery: *recovery })
        }
        _ => None,
    }
}

/// How the run of this claim ended.
fn ended(claim: Claim, operations: &[Operation]) -> (Claim, End) {
    let settled = operations.iter().filter(|operation| operation.claim() == Some(&claim));
    let end = settled.fold(End::Unknown, |end, operation| match (&operation.call, &operation.answer) {
        (Call::Complete { .. }, Answer::Recorded) => End::Recorded,
        (Call::Release { .. } | Call::Fail { uncertain: false, .. }, _) => End::WithoutEffect,
        // A recovery that fails is uncertain, although it may report that this run had no effect.
        _ => end,
    });
    (claim, end)
}
