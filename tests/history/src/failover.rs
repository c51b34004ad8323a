//! The verdict on a failover: each of the two primaries has a history of its own, and the two have the same beginning.
//!
//! What each server has written is known by its log. A write that an old primary acknowledged, and that the log of the
//! new one does not have, is lost. Apart from that there are no losses: the answers of each server alone are those of
//! the state machine.
//!
//! ```text
//!   old primary   written and replicated ──┬── lost: its history ends here
//!   new primary                            └── the rest
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use crate::allowances::Allowances;
use crate::effects::{Effect, wrong_effects};
use crate::event::{Answer, Call};
use crate::history::{History, Operation};
use crate::log::Log;
use crate::report::Report;

/// When processes could reach the two primaries, by the monotonic clock, µs.
#[derive(Clone, Debug)]
pub struct Reach {
    /// When the old one could answer them: before the fault, and when the fault was undone. Either may be empty.
    pub old: [Range<u64>; 2],
    /// From when on the new one could.
    pub new_from: u64,
}

/// The logs of both primaries.
#[derive(Clone, Debug)]
pub struct Logs {
    /// Up to the time at which the server became a replica of the new one.
    pub old: Log,
    /// From the beginning.
    pub new: Log,
}

/// Where an operation was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On the old primary, and the new one has its write.
    Replicated,
    /// On the old primary, and the new one has no write of it.
    Old,
    New,
    Unknown,
}

/// The histories of both primaries, and what the failover lost.
#[derive(Clone, Debug, Default)]
pub struct Failover {
    old: History,
    new: History,
    /// Writes that were acknowledged and lost.
    pub lost: Vec<Operation>,
    /// Number of acknowledged writes.
    pub acknowledged: usize,
    /// Acknowledged writes that neither server has.
    pub nowhere: Vec<String>,
    /// Number of writes that the new primary acknowledged to each group of processes.
    continued: Vec<usize>,
}

impl Failover {
    /// Adds the operations of processes that could reach the primaries at these times.
    pub fn add(&mut self, history: History, reach: &Reach, logs: &Logs) {
        self.continued.push(0);
        for operation in history.keys.into_values().flatten() {
            let place = match (logs.old.has(&operation), logs.new.has(&operation)) {
                (Some(true), Some(true)) => Place::Replicated,
                (Some(true), Some(false)) => Place::Old,
                (Some(false), Some(true)) => Place::New,
                // A release may have nothing to write.
                (Some(false), Some(false)) if !matches!(operation.call, Call::Release { .. }) => {
                    self.nowhere.push(format!("{}: {operation}", operation.call.key()));
                    continue;
                }
                _ => reach.place(&operation),
            };
            self.put(&operation, place, logs);
        }
        [&mut self.old, &mut self.new].into_iter().for_each(History::sort);
    }

    fn put(&mut self, operation: &Operation, place: Place, logs: &Logs) {
        let wrote = logs.new.has(operation).is_some();
        self.acknowledged += usize::from(wrote);
        if place == Place::New && wrote {
            *self.continued.last_mut().expect("a group was added") += 1;
        }
        let is_lost = place == Place::Old && wrote;
        if is_lost {
            self.lost.push(operation.clone());
        }
        let on_old = matches!(place, Place::Replicated | Place::Old);
        let on_new = matches!(place, Place::Replicated | Place::New);
        // A client may have sent it to the other server first, without a reply.
        for (history, log, is_answer) in [(&mut self.old, &logs.old, on_old), (&mut self.new, &logs.new, on_new)] {
            let mut operation = operation.clone();
            if is_lost && !is_answer {
                continue;
            }
            if !is_answer {
                (operation.answer, operation.returned_us) = (Answer::Unknown, None);
            }
            if is_answer || log.may_have(&operation) {
                history.keys.entry(operation.call.key().to_owned()).or_default().push(operation);
            }
        }
    }

    /// The verdict on both servers and on these effects. `since_us`: when the fault was injected, by the monotonic
    /// clock.
    #[must_use]
    pub fn verdict(&self, effects: &[Effect], since_us: u64) -> Verdict {
        let mut verdict = Verdict { servers: Report::of_calls(&self.old, Allowances::REAL), ..Verdict::default() };
        verdict.servers.add(Report::of_calls(&self.new, Allowances::REAL));
        verdict.wrong.extend(verdict.servers.faults().chain(self.nowhere.iter().cloned()));
        (verdict.acknowledged, verdict.lost) = (self.acknowledged, self.lost.len());
        verdict.continued = self.continued.iter().copied().min().unwrap_or_default();
        let last_us = self.lost.iter().filter_map(|operation| operation.returned_us).max().unwrap_or_default();
        verdict.last_lost_ms = last_us.saturating_sub(since_us) / 1000;
        let keys: BTreeSet<&String> = self.old.keys.keys().chain(self.new.keys.keys()).collect();
        for key in keys {
            let effects: Vec<&Effect> = effects.iter().filter(|effect| effect.key == *key).collect();
            self.check_effects(key, &effects, &mut verdict);
        }
        verdict
    }

    /// Each server alone repeats no effect without telling, so a repetition that is not told is between the two.
    fn check_effects(&self, key: &str, effects: &[&Effect], verdict: &mut Verdict) {
        let runs = |history: &History| {
            let operations = history.keys.get(key).cloned().unwrap_or_default();
            let own: Vec<&Effect> =
                effects.iter().copied().filter(|effect| operations.iter().any(|it| claims(it, effect))).collect();
            (wrong_effects(key, &operations, &own), own)
        };
        let (((wrong_old, unknown_old), of_old), ((wrong_new, unknown_new), of_new)) =
            (runs(&self.old), runs(&self.new));
        let stray = effects.iter().filter(|effect| !of_old.contains(effect) && !of_new.contains(effect));
        verdict.wrong.extend(wrong_old.into_iter().chain(wrong_new).map(|wrong| wrong.to_string()));
        verdict.wrong.extend(stray.map(|effect| format!("{key}: no server has the run of {effect:?}")));
        let lost = || self.lost.iter().filter(|operation| operation.call.key() == key);
        let lost_claim = lost().any(|operation| matches!(operation.call, Call::Acquire { .. }));
        let told = effects.iter().filter(|effect| effect.is_recovery).count().min(effects.len().saturating_sub(1));
        let untold = effects.len().saturating_sub(1 + told);
        if untold > 0 && !lost_claim {
            verdict.wrong.push(format!("{key}: repeated as a first attempt, and no claim was lost: {effects:?}"));
        }
        if told > 0 && lost().next().is_none() && unknown_old + unknown_new == 0 {
            verdict.wrong.push(format!("{key}: repeated as a recovery, and nothing was lost: {effects:?}"));
        }
        verdict.effects += effects.len();
        verdict.untold += untold;
        verdict.told += told;
    }
}

impl Reach {
    /// Where an operation was executed by its times.
    fn place(&self, operation: &Operation) -> Place {
        let Some(returned_us) = operation.returned_us else { return Place::Unknown };
        let by_old = self.old.iter().any(|period| operation.invoked_us < period.end && returned_us >= period.start);
        match (by_old, returned_us >= self.new_from) {
            (true, false) => Place::Old,
            (false, true) => Place::New,
            _ => Place::Unknown,
        }
    }
}

/// Whether this operation has the claim of the run with this effect.
fn claims(operation: &Operation, effect: &Effect) -> bool {
    matches!(operation.answer, Answer::Acquired { fence, .. } if fence == effect.fence)
}

/// The verdict on one or more failovers.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The histories of each server, without any loss.
    pub servers: Report,
    /// Number of acknowledged writes.
    pub acknowledged: usize,
    /// Number of those that were lost.
    pub lost: usize,
    /// How long after the fault the last of them was acknowledged, ms.
    pub last_lost_ms: u64,
    /// The least number of writes that the new primary acknowledged to one group of processes.
    pub continued: usize,
    /// Number of effects.
    pub effects: usize,
    /// Number of effects that were repeated as a first attempt.
    pub untold: usize,
    /// Number of effects that were repeated as a recovery.
    pub told: usize,
    /// Everything that is wrong.
    pub wrong: Vec<String>,
}

impl Verdict {
    /// Adds the counts and faults of another failover.
    pub fn add(&mut self, other: Self) {
        self.servers.add(other.servers);
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.last_lost_ms = self.last_lost_ms.max(other.last_lost_ms);
        self.continued = self.continued.min(other.continued);
        self.effects += other.effects;
        self.untold += other.untold;
        self.told += other.told;
        self.wrong.extend(other.wrong);
    }
}

/// One line of a table: acknowledged writes, those lost and until when (ms), effects, those repeated as first attempts
/// and as recoveries, and what is wrong.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, lost, last_lost_ms, effects, untold, told, wrong, .. } = self;
        let wrong = wrong.len();
        write!(f, "{acknowledged:>8} {lost:>7} {last_lost_ms:>7} {effects:>8} {untold:>7} {told:>7} {wrong:>7}")
    }
}
