//! The verdict on a run: every key by its history, and every effect by its run.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::allowances::Allowances;
use crate::attempts::unexpected_calls;
use crate::effects::{Effect, WrongEffect, wrong_effects};
use crate::history::{History, Operation};
use crate::replay::replay;
use crate::verdict::{LostWrite, Verdict, verdict};

/// What was seen from outside of the processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// What the receiver counted.
    pub effects: Vec<Effect>,
    /// The keys of the messages that were deleted, each when its work was done and recorded. All messages of a key have
    /// the same payload, so an effect of the key is that of each of them.
    pub deleted: Vec<String>,
    /// Whether the works have records of their own, in the transactions of their effects. Then a last attempt with an
    /// unknown outcome is not permanent, because the next one reads that record.
    #[serde(default)]
    pub own_records: bool,
}

/// The verdict on a run. Each fault is one text.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of keys.
    pub keys: usize,
    /// Number of operations.
    pub operations: usize,
    /// Number of operations without an answer.
    pub unanswered: usize,
    /// Number of keys whose history needs calls that were sent twice.
    pub repeated_calls: usize,
    /// Number of steps that the model allows.
    pub steps: usize,
    /// Number of effects.
    pub effects: usize,
    /// Number of runs that may have had their effect and did not record it.
    pub unknown_runs: usize,
    /// Number of effects of a key after its first.
    pub repeated: usize,
    /// Histories without an order.
    pub not_linearizable: Vec<String>,
    /// Histories whose search took too long.
    pub undecided: Vec<String>,
    /// Writes that were lost.
    pub lost_writes: Vec<LostWrite>,
    /// Steps and calls that the model does not allow.
    pub not_in_model: Vec<String>,
    /// Effects without their run, repetitions that were not told, deletions without an effect.
    pub wrong_effects: Vec<WrongEffect>,
}

impl Report {
    /// The verdict on the calls of a store.
    #[must_use]
    pub fn of_calls(history: &History, allowances: Allowances) -> Self {
        let mut report = Self::default();
        for (key, operations) in &history.keys {
            report.check(key, operations, allowances);
        }
        report
    }

    /// The verdict on functions: as [`of_calls`](Self::of_calls), and each attempt makes the calls of the model's
    /// attempts, and each effect has its run.
    #[must_use]
    pub fn of_functions(history: &History, outside: &Outside, allowances: Allowances) -> Self {
        let mut report = Self::of_calls(history, allowances);
        report.add_runs(history, outside);
        report
    }

    /// Adds the verdict on attempts, whose calls are those of the model's attempts, and on their effects, each of which
    /// has its run.
    pub fn add_runs(&mut self, history: &History, outside: &Outside) {
        let report = self;
        for (key, operations) in &history.keys {
            let effects: Vec<_> = outside.effects.iter().filter(|effect| effect.key == *key).collect();
            let (wrong, unknown) = wrong_effects(key, operations, &effects);
            let named = |text: String| format!("{key}: {text}");
            report.not_in_model.extend(unexpected_calls(operations, outside.own_records).into_iter().map(named));
            report.wrong_effects.extend(wrong);
            report.unknown_runs += unknown;
            report.effects += effects.len();
            report.repeated += effects.len().saturating_sub(1);
        }
        let wrong = |key: &str, why: String| WrongEffect { key: key.to_owned(), repetition: None, why };
        let without_calls = outside.effects.iter().filter(|effect| !history.keys.contains_key(&effect.key));
        report
            .wrong_effects
            .extend(without_calls.map(|effect| wrong(&effect.key, format!("no call has the key of {effect:?}"))));
        let completions = history.keys.iter().filter(|(_, calls)| calls.iter().any(Operation::shows_completion));
        let completed: BTreeSet<&String> = completions.map(|(key, _)| key).collect();
        let not_completed = outside.deleted.iter().filter(|key| !completed.contains(key));
        report
            .wrong_effects
            .extend(not_completed.map(|key| wrong(key, "the message was deleted before it was completed".to_owned())));
        let has_effect = |key: &str| outside.effects.iter().any(|effect| effect.key == key);
        let without_effect = outside.deleted.iter().filter(|key| !has_effect(key));
        report
            .wrong_effects
            .extend(without_effect.map(|key| wrong(key, "the message was deleted without its effect".to_owned())));
    }

    fn check(&mut self, key: &str, operations: &[Operation], allowances: Allowances) {
        self.keys += 1;
        self.operations += operations.len();
        self.unanswered += operations.iter().filter(|operation| operation.returned_us.is_none()).count();
        let order = match verdict(operations, allowances) {
            Verdict::Linearizable { repeats, order } => {
                self.repeated_calls += usize::from(repeats > 0);
                order
            }
            Verdict::WritesLost { writes, order } => {
                self.lost_writes.extend(writes);
                order
            }
            Verdict::NotLinearizable { why, model_agrees } => {
                if model_agrees == Some(true) {
                    self.not_in_model.push(format!("{key}: the model allows none of the next answers"));
                }
                return self.not_linearizable.push(format!("{key}: not linearizable:\n{why}"));
            }
            Verdict::Undecided => return self.undecided.push(key.to_owned()),
        };
        match replay(operations, &order, None) {
            Ok(steps) => self.steps += steps,
            Err(why) => self.not_in_model.push(format!("{key}: {why}")),
        }
    }

    /// Everything that is wrong. Lost writes are wrong unless the run lost writes of its servers.
    pub fn faults(&self) -> impl Iterator<Item = String> {
        let texts = [&self.not_linearizable, &self.undecided, &self.not_in_model].into_iter().flatten().cloned();
        let writes = self.lost_writes.iter().map(ToString::to_string);
        texts.chain(writes).chain(self.wrong_effects.iter().map(ToString::to_string))
    }

    /// Adds the counts and faults of another run.
    pub fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.operations += other.operations;
        self.unanswered += other.unanswered;
        self.repeated_calls += other.repeated_calls;
        self.steps += other.steps;
        self.effects += other.effects;
        self.unknown_runs += other.unknown_runs;
        self.repeated += other.repeated;
        self.not_linearizable.extend(other.not_linearizable);
        self.undecided.extend(other.undecided);
        self.lost_writes.extend(other.lost_writes);
        self.not_in_model.extend(other.not_in_model);
        self.wrong_effects.extend(other.wrong_effects);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            ("keys", self.keys),
            ("operations", self.operations),
            ("  without an answer", self.unanswered),
            ("keys with a call that was sent twice", self.repeated_calls),
            ("keys that are not linearizable", self.not_linearizable.len()),
            ("keys without a result", self.undecided.len()),
            ("writes lost", self.lost_writes.len()),
            ("steps that the model allows", self.steps),
            ("steps that it does not allow", self.not_in_model.len()),
            ("effects", self.effects),
            ("  repeated", self.repeated),
            ("runs with an unknown effect", self.unknown_runs),
            ("effects and deletions that are wrong", self.wrong_effects.len()),
        ];
        writeln!(f, "\nby history")?;
        counts.iter().try_for_each(|(what, count)| writeln!(f, "  {what:<40}{count:>8}"))
    }
}
