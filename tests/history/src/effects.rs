//! Whether the effects that the receiver counted are those of the runs in the history.

use std::fmt;

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
    /// When it took place, by the monotonic clock, µs.
    pub at_us: u64,
}

/// What is wrong with an effect, or with a message that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongEffect {
    /// The idempotency key.
    pub key: String,
    /// Whether it is one that repeats another effect. A lost write may be the reason.
    pub repetition: Option<Repetition>,
    /// What is wrong.
    pub why: String,
}

/// An effect that repeats another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// The fence of its claim.
    pub fence: u64,
    /// What is wrong with it.
    pub kind: RepetitionKind,
}

/// What is wrong with an effect that repeats another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepetitionKind {
    /// It was not told of an earlier one.
    NotTold,
    /// There are more effects than unknown runs explain. It is one of the last.
    TooMany,
}

impl fmt::Display for WrongEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

/// The run of a claim.
struct Run {
    claim: Claim,
    /// When the claim was returned, by the monotonic clock, µs.
    begins_us: u64,
    /// When its completion was invoked first, if it was.
    done_us: Option<u64>,
    end: End,
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
pub(crate) fn wrong_effects(key: &str, operations: &[Operation], effects: &[&Effect]) -> (Vec<WrongEffect>, usize) {
    let runs = runs(operations);
    let unknown = runs.iter().filter(|run| run.end == End::Unknown).count();
    let mut wrong = Vec::new();
    let mut add = |repetition, why| wrong.push(WrongEffect { key: key.to_owned(), repetition, why });
    for effect in effects {
        match runs.iter().find(|run| run.claim.fence == effect.fence) {
            None => add(None, format!("no run has the fence of {effect:?}")),
            Some(run) => wrong_effect_of(run, effect).into_iter().for_each(|why| add(None, why)),
        }
        let earlier = effects.iter().any(|other| other.fence < effect.fence);
        if earlier && !effect.is_recovery {
            let repetition = Repetition { fence: effect.fence, kind: RepetitionKind::NotTold };
            add(Some(repetition), format!("this repetition was not told: {effect:?}"));
        }
        if effects.iter().filter(|other| other.fence == effect.fence).count() > 1 {
            add(None, format!("one run had this effect more than once: {effect:?}"));
        }
    }
    // All but one effect are of unknown runs.
    let mut fences: Vec<u64> = effects.iter().map(|effect| effect.fence).collect();
    fences.sort_unstable();
    for fence in fences.into_iter().skip(1 + unknown) {
        let repetition = Repetition { fence, kind: RepetitionKind::TooMany };
        add(Some(repetition), format!("{} effects of {unknown} unknown runs: {effects:?}", effects.len()));
    }
    (wrong, unknown)
}

/// What is wrong with an effect of this run.
fn wrong_effect_of(run: &Run, effect: &Effect) -> Vec<String> {
    let Run { claim, begins_us, done_us, end } = run;
    let mut wrong = Vec::new();
    if claim.recovery != effect.is_recovery {
        wrong.push(format!("the run was told otherwise than {effect:?}: {claim:?}"));
    }
    if *end == End::WithoutEffect {
        wrong.push(format!("{effect:?} of a run that reported none: {claim:?}"));
    }
    if effect.at_us < *begins_us {
        wrong.push(format!("{effect:?} before its claim was returned at {begins_us} µs: {claim:?}"));
    }
    if let Some(done_us) = done_us
        && effect.at_us > *done_us
    {
        wrong.push(format!("{effect:?} after its run was done at {done_us} µs: {claim:?}"));
    }
    wrong
}

/// The runs of the claims that these operations of one key returned. An owner that acquires again has the same claim.
fn runs(operations: &[Operation]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for operation in operations {
        if let Some(claim) = operation.acquired() {
            let begins_us = operation.ends_us();
            match runs.iter_mut().find(|run| run.claim == claim) {
                Some(run) => run.begins_us = run.begins_us.min(begins_us),
                None => runs.push(Run::of(claim, begins_us, operations)),
            }
        }
    }
    runs
}

impl Run {
    fn of(claim: Claim, begins_us: u64, operations: &[Operation]) -> Self {
        let settled = || operations.iter().filter(|operation| operation.claim() == Some(&claim));
        let completed = settled().filter(|operation| matches!(operation.call, Call::Complete { .. }));
        let done_us = completed.map(|operation| operation.invoked_us).min();
        let end = settled().fold(End::Unknown, |end, operation| match (&operation.call, &operation.answer) {
            (Call::Complete { .. }, Answer::Recorded) => End::Recorded,
            (Call::Release { .. } | Call::Fail { uncertain: false, .. }, _) => End::WithoutEffect,
            // A recovery that fails is uncertain, although it may report that this run had no effect.
            _ => end,
        });
        Self { claim, begins_us, done_us, end }
    }
}
