//! What happened: effects, faults, and what followed from what.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_sqs_testing::Queue;
use tokio::time::Instant;

/// One effect: the webhook answered 200.
#[derive(Clone, Debug)]
pub struct Effect {
    pub key: String,
    pub process: usize,
    pub at: Instant,
    /// End of the invocation that it was part of: its record is written by then, or never.
    pub deadline: Instant,
    pub told_of_recovery: bool,
}

/// One fault.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: &'static str,
    /// The process that it befell; `None` for what befell Redis or the database, and so all.
    pub process: Option<usize>,
    pub from: Instant,
    pub to: Instant,
}

/// An invocation that deleted something.
#[derive(Clone, Debug)]
pub struct Success {
    pub process: usize,
    pub begun: Instant,
    pub ended: Instant,
}

#[derive(Default)]
pub struct Tally {
    pub effects: Mutex<Vec<Effect>>,
    pub faults: Mutex<Vec<Fault>>,
    pub successes: Mutex<Vec<Success>>,
    pub invocations: Mutex<usize>,
}

/// What a run of one seed came to.
#[derive(Default)]
pub struct Sum {
    pub messages: usize,
    pub deliveries: usize,
    /// Deliveries that left their message visible, for another process to get at the same time.
    pub concurrent_deliveries: usize,
    /// Messages that were delivered again after they were deleted.
    pub redelivered: usize,
    pub invocations: usize,
    pub lost: Vec<String>,
    pub repeated: usize,
    /// Repeated, and nothing befell the run whose record would have prevented it.
    pub without_cause: Vec<String>,
    /// Repeated, and the work was not told that it is a recovery.
    pub untold: Vec<String>,
    pub faults: BTreeMap<&'static str, Vec<Option<Duration>>>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    pub fn fault(&self, kind: &'static str, process: Option<usize>, from: Instant, to: Instant) {
        lock(&self.faults).push(Fault { kind, process, from, to });
    }

    pub fn sum(&self, keys: &[String]) -> Sum {
        let (faults, successes) = (lock(&self.faults), lock(&self.successes));
        let mut by_key: HashMap<String, Vec<Effect>> = HashMap::new();
        for effect in lock(&self.effects).iter() {
            by_key.entry(effect.key.clone()).or_default().push(effect.clone());
        }
        let mut sum = Sum { messages: keys.len(), invocations: *lock(&self.invocations), ..Sum::default() };
        for key in keys {
            let Some(effects) = by_key.get(key) else {
                sum.lost.push(key.clone());
                continue;
            };
            for (nth, repetition) in effects.iter().enumerate().skip(1) {
                sum.repeated += 1;
                let cause = effects[..nth].iter().any(|effect| faults.iter().any(|fault| fault.cuts_off(effect)));
                if !cause {
                    sum.without_cause.push(format!("{key}: {effects:?}"));
                }
                if !repetition.told_of_recovery {
                    sum.untold.push(format!("{key}: {effects:?}"));
                }
            }
        }
        for fault in faults.iter() {
            let concerned = |success: &&Success| {
                success.begun >= fault.from && fault.process.is_none_or(|process| process == success.process)
            };
            let next = successes.iter().filter(concerned).map(|success| success.ended - fault.from).min();
            sum.faults.entry(fault.kind).or_default().push(next);
        }
        sum
    }
}

/// How late a busy machine may be with what a fault holds up.
const LATE: Duration = Duration::from_millis(500);

impl Fault {
    /// Whether it may have kept the effect's run from writing its record.
    fn cuts_off(&self, effect: &Effect) -> bool {
        match self.process {
            // What a stopped process had sent, or was about to, may arrive when it goes on.
            Some(process) => process == effect.process && self.to + LATE >= effect.at && self.from <= effect.deadline,
            // A completion is asked for until shortly before the deadline: only an outage that
            // lasts until then keeps it from being written.
            None => self.from <= effect.deadline && self.to + LATE >= effect.deadline,
        }
    }
}

impl Sum {
    pub fn count(&mut self, queue: &Queue) {
        let counts = queue.counts();
        (self.deliveries, self.concurrent_deliveries, self.redelivered) =
            (counts.received, counts.concurrent_deliveries, counts.redelivered);
    }

    pub fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.concurrent_deliveries += other.concurrent_deliveries;
        self.redelivered += other.redelivered;
        self.invocations += other.invocations;
        self.lost.extend(other.lost);
        self.repeated += other.repeated;
        self.without_cause.extend(other.without_cause);
        self.untold.extend(other.untold);
        for (kind, recoveries) in other.faults {
            self.faults.entry(kind).or_default().extend(recoveries);
        }
    }

    pub fn table(&self, seeds: u64) -> String {
        let mut table = format!("\n{seeds} seeds\n");
        let counts = [
            ("messages", self.messages),
            ("deliveries", self.deliveries),
            ("  twice at once", self.concurrent_deliveries),
            ("  after their deletion", self.redelivered),
            ("invocations", self.invocations),
            ("lost", self.lost.len()),
            ("repeated", self.repeated),
            ("repeated without a cause", self.without_cause.len()),
            ("repeated and not told so", self.untold.len()),
        ];
        for (what, count) in counts {
            writeln!(table, "  {what:<26}{count:>6}").unwrap();
        }
        writeln!(table, "\n  {:<48}{:>24}", "", "until the next success").unwrap();
        writeln!(table, "  {:<44}{:>6}{:>12}{:>12}", "fault", "times", "median", "longest").unwrap();
        for (kind, recoveries) in &self.faults {
            let mut known: Vec<Duration> = recoveries.iter().copied().flatten().collect();
            known.sort_unstable();
            let show = |time: Option<&Duration>| time.map_or("-".to_owned(), |time| format!("{} ms", time.as_millis()));
            let (median, longest) = (show(known.get(known.len() / 2)), show(known.last()));
            writeln!(table, "  {kind:<44}{:>6}{median:>12}{longest:>12}", recoveries.len()).unwrap();
        }
        table
    }
}
