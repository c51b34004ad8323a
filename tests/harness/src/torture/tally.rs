//! Counts of effects and faults, and which fault may have caused which repetition.

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
    /// Deadline of its invocation, until which its record can be written.
    pub deadline: Instant,
    pub is_recovery: bool,
}

/// One fault.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: &'static str,
    /// The affected process; `None` if Redis or the database was affected, and so all processes.
    pub process: Option<usize>,
    pub from: Instant,
    pub to: Instant,
}

/// An invocation that deleted messages.
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

/// Result of one seed.
#[derive(Default)]
pub struct Sum {
    pub messages: usize,
    pub deliveries: usize,
    /// Deliveries of a message that was already in flight.
    pub concurrent_deliveries: usize,
    /// Deletes after which the message was delivered again.
    pub redelivered: usize,
    pub invocations: usize,
    pub lost: Vec<String>,
    pub repeated: usize,
    /// Repeated effects without a fault that can have prevented the record of the first.
    pub without_cause: Vec<String>,
    /// Repeated effects whose run was not a recovery.
    pub without_recovery: Vec<String>,
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
                if !repetition.is_recovery {
                    sum.without_recovery.push(format!("{key}: {effects:?}"));
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

/// Additional duration of a fault on a slow test machine.
const MARGIN: Duration = Duration::from_millis(500);

impl Fault {
    /// Whether it may have prevented the record of the effect.
    fn cuts_off(&self, effect: &Effect) -> bool {
        match self.process {
            // Requests of a frozen process may arrive when it resumes.
            Some(process) => process == effect.process && self.to + MARGIN >= effect.at && self.from <= effect.deadline,
            // A completion is retried until shortly before the deadline, so only an outage that lasts until then
            // prevents it.
            None => self.from <= effect.deadline && self.to + MARGIN >= effect.deadline,
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
        self.without_recovery.extend(other.without_recovery);
        for (kind, recoveries) in other.faults {
            self.faults.entry(kind).or_default().extend(recoveries);
        }
    }

    pub fn table(&self, seeds: u64) -> String {
        let mut table = format!("\n{seeds} seeds\n");
        let counts = [
            ("messages", self.messages),
            ("deliveries", self.deliveries),
            ("  concurrent", self.concurrent_deliveries),
            ("  after their deletion", self.redelivered),
            ("invocations", self.invocations),
            ("lost", self.lost.len()),
            ("repeated", self.repeated),
            ("repeated without a cause", self.without_cause.len()),
            ("repeated without a recovery", self.without_recovery.len()),
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
