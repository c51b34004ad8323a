//! What happened in a run: deliveries, calls of SQS, faults, and how long each fault lasted.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs_testing::Queue;
use tokio::time::Instant;

/// One delivery of a message to a process.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub message_id: String,
    pub receipt_handle: String,
    pub body: String,
    pub receive_count: u32,
    /// The number of the process, and when its invocation began and ended.
    pub process: usize,
    pub begun: Instant,
    pub ended: Instant,
    /// Whether its record in the event had another type of body.
    pub is_malformed: bool,
    pub invocation: Invoked,
}

/// How an invocation ended for one of its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invoked {
    /// It returned a response in time, which names the message as failed.
    Named,
    /// It returned a response in time, which does not name the message.
    NotNamed,
    /// It returned an error.
    Error(String),
    /// It timed out, or its process was killed.
    Unknown,
}

/// One fault.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: &'static str,
    /// The affected process; `None` if Redis or the database was affected, and so all processes.
    pub process: Option<usize>,
    pub from: Instant,
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
    pub deliveries: Mutex<Vec<Delivery>>,
    /// The visibility timeouts that the function has asked for, in seconds by receipt handle.
    pub visibility_s: Mutex<HashMap<String, u64>>,
    /// The reasons of the messages that the function has sent to the dead-letter queue.
    pub letters: Mutex<Vec<DeadLetter>>,
    /// When SQS was called on a connection that was idle, and for how long it was.
    pub reused_connections: Mutex<Vec<(Instant, Duration)>>,
    pub faults: Mutex<Vec<Fault>>,
    pub successes: Mutex<Vec<Success>>,
    pub invocations: Mutex<usize>,
    /// Those that timed out, and whose process was not stopped meanwhile.
    pub timeouts: Mutex<usize>,
}

/// Counts of one seed, or of several.
#[derive(Default)]
pub struct Sum {
    pub messages: usize,
    pub deliveries: usize,
    /// Deliveries of a message that was already in flight.
    pub concurrent_deliveries: usize,
    /// Deletes after which the message was delivered again.
    pub redelivered: usize,
    pub invocations: usize,
    /// Those that timed out, and whose process was not stopped.
    pub timeouts: usize,
    /// By kind, the time until the next success.
    pub faults: BTreeMap<&'static str, Vec<Option<Duration>>>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    pub fn fault(&self, kind: &'static str, process: Option<usize>, from: Instant) {
        lock(&self.faults).push(Fault { kind, process, from });
    }

    /// The counts of this run, and of its queue.
    pub fn sum(&self, queue: &Queue) -> Sum {
        let (counts, successes) = (queue.counts(), lock(&self.successes));
        let mut sum = Sum {
            messages: counts.sent,
            deliveries: counts.received,
            concurrent_deliveries: counts.concurrent_deliveries,
            redelivered: counts.redelivered,
            invocations: *lock(&self.invocations),
            timeouts: *lock(&self.timeouts),
            faults: BTreeMap::new(),
        };
        for fault in lock(&self.faults).iter() {
            let concerned = |success: &&Success| {
                success.begun >= fault.from && fault.process.is_none_or(|process| process == success.process)
            };
            let next = successes.iter().filter(concerned).map(|success| success.ended - fault.from).min();
            sum.faults.entry(fault.kind).or_default().push(next);
        }
        sum
    }
}

impl Sum {
    pub fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.concurrent_deliveries += other.concurrent_deliveries;
        self.redelivered += other.redelivered;
        self.invocations += other.invocations;
        self.timeouts += other.timeouts;
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
            ("  timed out, without a stop", self.timeouts),
        ];
        for (what, count) in counts {
            writeln!(table, "  {what:<40}{count:>8}").unwrap();
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
