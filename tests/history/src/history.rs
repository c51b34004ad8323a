//! The operations of all processes, by key.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io;
use std::iter;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use idempotent_sqs::idempotency::AcquireRequest;

use crate::event::{Answer, Call, Claim, Event, LostTo};

/// One call of one process.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Name of the file of its process.
    pub process: String,
    /// Number of the call in its process.
    pub number: u64,
    /// When it was invoked, by the monotonic clock, µs.
    pub invoked_us: u64,
    /// When its answer was received, by the monotonic clock, µs. `None` if it is unknown whether it was executed: it
    /// may be executed at any later time.
    pub returned_us: Option<u64>,
    /// When the store returned an error for it, by the monotonic clock, µs.
    pub failed_us: Option<u64>,
    /// What the wall clock is ahead of the monotonic clock, µs.
    pub unix_offset_us: u64,
    /// The call.
    pub call: Call,
    /// Its answer.
    pub answer: Answer,
    /// The acquire that the call is or belongs to.
    pub attempt: AcquireRequest,
    /// The leases that an acquire may have got, ms: calls of one process that are made together share the longest lease
    /// among them.
    pub leases_ms: Vec<u64>,
    /// When the server's clock was set.
    pub jumps: Arc<[Jump]>,
    /// When writes of the key were lost.
    pub losses: Arc<[Loss]>,
}

/// The server's clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// When, by the monotonic clock, µs.
    pub at_us: u64,
    /// How far ahead of the wall clock it is since then, µs.
    pub ahead_us: i64,
}

/// Writes of a key were lost. Times are by the monotonic clock, µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When.
    pub at_us: u64,
    /// Since when: the writes that were executed from then on were lost.
    pub since_us: u64,
}

impl Loss {
    /// Whether a write that was executed at one of these times may be lost.
    #[must_use]
    pub fn may_include(&self, executed_us: &RangeInclusive<u64>) -> bool {
        *executed_us.start() <= self.at_us && *executed_us.end() >= self.since_us
    }
}

/// The operations of all processes.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By key, in the order of their invocations. Without operations that were not executed.
    pub keys: BTreeMap<String, Vec<Operation>>,
    /// Operations that were not executed, in the order of their invocations.
    pub not_executed: Vec<Operation>,
}

/// How much longer than requested a lease may be because calls share it, ms.
const SHARED_LEASE_MS: u64 = 100;

impl History {
    /// Reads the history files in this directory.
    ///
    /// # Errors
    /// If a file cannot be read, or is not a history file.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let mut history = Self::default();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "jsonl") {
                continue;
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            for operation in operations(&name, &fs::read_to_string(&path)?)? {
                if operation.answer == Answer::NotExecuted {
                    history.not_executed.push(operation);
                } else {
                    history.keys.entry(operation.call.key().to_owned()).or_default().push(operation);
                }
            }
        }
        history.sort();
        Ok(history)
    }

    /// Adds the operations of other processes.
    pub fn add(&mut self, other: Self) {
        for (key, operations) in other.keys {
            self.keys.entry(key).or_default().extend(operations);
        }
        self.not_executed.extend(other.not_executed);
        self.sort();
    }

    /// Operations that began at one time are in the order of their processes: that of files in a directory is not defined.
    pub(crate) fn sort(&mut self) {
        for operations in self.keys.values_mut().chain([&mut self.not_executed]) {
            operations.sort_by(|one, other| one.place().cmp(&other.place()));
        }
    }

    /// Adds when the server's clock was set, in order.
    #[must_use]
    pub fn with_jumps(mut self, jumps: &[Jump]) -> Self {
        let jumps: Arc<[Jump]> = jumps.into();
        self.keys.values_mut().flatten().for_each(|operation| operation.jumps = Arc::clone(&jumps));
        self
    }

    /// Adds when writes of each key were lost, in order. Of other keys nothing was lost.
    #[must_use]
    pub fn with_losses(mut self, losses: &BTreeMap<String, Vec<Loss>>) -> Self {
        for (key, operations) in &mut self.keys {
            let losses: Arc<[Loss]> = losses.get(key).map_or_else(Arc::default, |losses| losses.as_slice().into());
            for operation in operations {
                operation.losses = Arc::clone(&losses);
            }
        }
        self
    }
}

/// Whether the record of this key shows that a dead letter was sent: docs of `Key::stored`.
#[must_use]
pub fn is_of_dead_letter(key: &str) -> bool {
    key.starts_with("dead-letter:")
}

/// The operations in one file, in the order of their invocations.
fn operations(process: &str, text: &str) -> io::Result<Vec<Operation>> {
    let malformed = |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{process}: unexpected {line}"));
    let mut lines = text.lines().map(|line| serde_json::from_str(line).map_err(|_| malformed(line)));
    let (monotonic_us, unix_us) = match lines.next().transpose()? {
        Some(Event::Clocks { monotonic_us, unix_us }) => (monotonic_us, unix_us),
        // The process was killed before its first event.
        None => return Ok(Vec::new()),
        Some(_) => return Err(malformed("first line")),
    };
    let mut operations: Vec<Operation> = Vec::new();
    let (mut by_number, mut answered) = (HashMap::new(), HashSet::new());
    for event in lines {
        match event? {
            Event::Clocks { .. } => return Err(malformed("clocks")),
            Event::Invoked { at_us, number, call } => {
                if by_number.insert(number, operations.len()).is_some() {
                    return Err(malformed("second call with a number"));
                }
                let attempt = call.request().try_into().map_err(|_| malformed("empty key"))?;
                operations.push(Operation {
                    process: process.to_owned(),
                    number,
                    invoked_us: at_us,
                    returned_us: None,
                    failed_us: None,
                    unix_offset_us: unix_us.saturating_sub(monotonic_us),
                    leases_ms: vec![call.request().lease_ms],
                    jumps: Arc::default(),
                    losses: Arc::default(),
                    call,
                    answer: Answer::Unknown,
                    attempt,
                });
            }
            Event::Returned { at_us, number, answer } => {
                let at = *by_number.get(&number).ok_or_else(|| malformed("answer without a call"))?;
                if !answered.insert(number) || at_us < operations[at].invoked_us {
                    return Err(malformed("second answer to a call, or an answer before its call"));
                }
                operations[at].returned_us = Some(at_us).filter(|_| answer != Answer::Unknown);
                operations[at].answer = answer;
                operations[at].failed_us = Some(at_us).filter(|_| operations[at].is_failed());
            }
        }
    }
    share_leases(&mut operations);
    Ok(operations)
}

/// Adds the leases of the acquires that were made together.
fn share_leases(operations: &mut [Operation]) {
    let acquires: Vec<_> = operations
        .iter()
        .filter(|operation| matches!(operation.call, Call::Acquire { .. }))
        .map(|operation| (operation.invoked_us, operation.ends_us(), operation.call.request().lease_ms))
        .collect();
    for operation in operations.iter_mut() {
        let (from, to, lease_ms) = (operation.invoked_us, operation.ends_us(), operation.call.request().lease_ms);
        let shared = acquires.iter().filter(|(begun, ended, _)| *begun <= to && *ended >= from);
        let longer = shared.map(|(_, _, lease_ms)| *lease_ms);
        operation
            .leases_ms
            .extend(longer.filter(|longer| (1..=SHARED_LEASE_MS).contains(&longer.saturating_sub(lease_ms))));
        operation.leases_ms.sort_unstable();
        operation.leases_ms.dedup();
    }
}

impl Operation {
    /// What the operations of a history are sorted by.
    fn place(&self) -> (u64, &str, u64) {
        (self.invoked_us, &self.process, self.number)
    }

    /// When it was executed at the latest, by the monotonic clock, µs.
    #[must_use]
    pub fn ends_us(&self) -> u64 {
        self.returned_us.unwrap_or(u64::MAX)
    }

    /// Whether the server's clock was set back from this time on, µs by the monotonic clock, and before the operation
    /// ended. Only then may its fence not be its time.
    pub(crate) fn clock_goes_back(&self, since_us: u64) -> bool {
        let ahead_before = iter::once(0).chain(self.jumps.iter().map(|jump| jump.ahead_us));
        let mut goes_back = self.jumps.iter().zip(ahead_before).filter(|(jump, before)| jump.ahead_us < *before);
        goes_back.any(|(jump, _)| (since_us..=self.ends_us()).contains(&jump.at_us))
    }

    /// The server's clock from and until these times of the wall clock, and how far it was ahead: one range for each
    /// time that it was set meanwhile, in order. All in µs.
    pub(crate) fn server_clock(&self, (from_us, until_us): (u64, u64)) -> Vec<(u64, u64, i64)> {
        let jumps = self.jumps.iter().map(|jump| (jump.at_us + self.unix_offset_us, jump.ahead_us));
        let begins: Vec<_> = iter::once((0, 0)).chain(jumps).collect();
        let ends = begins.iter().skip(1).map(|(at_us, _)| *at_us).chain([u64::MAX]);
        let ranges = begins
            .iter()
            .zip(ends)
            .map(|((at_us, ahead_us), end_us)| (from_us.max(*at_us), until_us.min(end_us), *ahead_us));
        let during = ranges.filter(|(from_us, until_us, _)| from_us <= until_us);
        let by_server = |us: u64, ahead_us| us.saturating_add_signed(ahead_us);
        during.map(|(from, until, ahead)| (by_server(from, ahead), by_server(until, ahead), ahead)).collect()
    }

    /// Whether it shows that the work is done: by the record, or because the owner that completes it has done it.
    #[must_use]
    pub fn shows_completion(&self) -> bool {
        let is_complete = matches!(self.call, Call::Complete { .. });
        matches!(self.answer, Answer::Duplicate { .. } | Answer::Lost(LostTo::Completed))
            || is_complete && matches!(self.answer, Answer::Recorded | Answer::Lost(_))
    }

    /// Whether the store returned an error.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        matches!(self.answer, Answer::Unknown | Answer::NotExecuted)
    }

    /// Whether its record shows that a dead letter was sent.
    #[must_use]
    pub fn is_of_dead_letter(&self) -> bool {
        is_of_dead_letter(self.call.key())
    }

    /// The claim that it returned.
    #[must_use]
    pub fn acquired(&self) -> Option<Claim> {
        match (&self.call, &self.answer) {
            (Call::Acquire { request }, Answer::Acquired { fence, attempt, recovery }) => {
                Some(Claim { request: request.clone(), fence: *fence, attempt: *attempt, recovery: *recovery })
            }
            _ => None,
        }
    }

    /// The claim that it settles.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        match &self.call {
            Call::Complete { claim, .. } | Call::Fail { claim, .. } => Some(claim),
            Call::Release { claim, .. } => claim.as_ref(),
            Call::Acquire { .. } => None,
        }
    }
}

/// For example `complete by 0102030405060708 with fence 1700000000000000 → Recorded (from 5 to 9 µs, process 4711)`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = String::from(self.call.request().owner);
        match &self.call {
            Call::Acquire { request } => write!(f, "acquire by {owner}, lease {} ms", request.lease_ms)?,
            Call::Complete { claim, .. } => write!(f, "complete by {owner} with fence {}", claim.fence)?,
            Call::Fail { claim, uncertain, permanent } => {
                let (fence, is, not) = (claim.fence, ["", ", uncertain"], ["", ", permanent"]);
                write!(
                    f,
                    "fail by {owner} with fence {fence}{}{}",
                    is[usize::from(*uncertain)],
                    not[usize::from(*permanent)]
                )?;
            }
            Call::Release { claim: Some(claim), .. } => write!(f, "release by {owner} with fence {}", claim.fence)?,
            Call::Release { claim: None, .. } => write!(f, "release by {owner}, which knows of no claim")?,
        }
        let returned = self.returned_us.map_or("-".to_owned(), |us| us.to_string());
        write!(f, " → {:?} ({} to {returned} µs, process {})", self.answer, self.invoked_us, self.process)
    }
}
