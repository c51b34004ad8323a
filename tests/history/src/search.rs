//! Searches an order of the operations of one key in which the pure state machine gives every answer: Wing and Gong's
//! algorithm, which remembers the states that led nowhere, as Lowe's and Porcupine do.
//!
//! Each answered operation is executed once between its invocation and its return. What else may happen is named:
//! - An operation without an answer is executed once at any time after its invocation, or never.
//! - With [`Allowances::repeats`], a client that got no reply in time has sent a call again, and the first one is
//!   executed too, at any time after the invocation.
//! - With [`Limits::losses`], the record returns to an earlier state, or to none.
//!
//! The server's clock is unknown. It lies between the invocation and the return of each operation, with a
//! [tolerance](Allowances::tolerance_us), and never goes back from one execution to the next, apart from the times when
//! it was set (`Jump`).

mod fences;
mod losses;
mod times;

use std::collections::HashMap;

use idempotent_sqs::idempotency::protocol::Record;

use crate::allowances::Allowances;
use crate::event::{Answer, Call};
use crate::history::Operation;
use crate::machine::{Choice, Shown, choices, execute, found};
pub(crate) use fences::contradiction;
pub use losses::Losses;
pub use times::Times;
pub(crate) use times::{Next, next_answers};
use times::{shown, window};

/// The limits of one search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What may happen beside the answered operations and those without an answer.
    pub allowances: Allowances,
    /// The losses.
    pub losses: Losses,
    /// The times that are tried.
    pub times: Times,
    /// Number of states after which the search ends without a result.
    pub max_states: usize,
}

/// One step of an order that explains the history.
#[derive(Clone, Debug)]
pub enum Step {
    /// An operation was executed.
    Executed {
        /// Its index.
        operation: usize,
        /// Whether its answer is that of the operation. Otherwise the answer is unknown.
        is_answer: bool,
        /// Time and lease.
        choice: Choice,
        /// The time by the wall clock, µs since 1970: apart from when the server's clock was set, that of the choice.
        wall_us: u64,
        /// The live record before.
        before: Option<Record>,
        /// The answer of the state machine.
        answer: Answer,
        /// The record after.
        after: Option<Record>,
    },
    /// The writes of these steps were lost.
    Lost {
        /// Indices of the steps.
        steps: Vec<usize>,
        /// The record after.
        after: Option<Record>,
    },
}

impl Step {
    /// The record after it.
    #[must_use]
    pub fn after(&self) -> Option<&Record> {
        match self {
            Self::Executed { after, .. } | Self::Lost { after, .. } => after.as_ref(),
        }
    }
}

/// Result of a search.
#[derive(Clone, Debug)]
pub enum Found {
    /// The history is linearizable in this order.
    Order(Vec<Step>),
    /// The history is not linearizable. The longest order that was found, which no operation can continue.
    None(Vec<Step>),
    /// The search took too long.
    Undecided,
}

/// Searches an order of these operations of one key, which are sorted by their invocations.
#[must_use]
pub fn search(operations: &[Operation], limits: Limits) -> Found {
    let shown = shown(operations, limits.allowances.tolerance_us, limits.times);
    let (seen, path, longest) = (HashMap::new(), Vec::new(), Vec::new());
    let earlier_equals = (0..operations.len()).map(|at| earlier_equal(operations, at)).collect();
    let mut search = Search { operations, earlier_equals, limits, shown, seen, path, longest, states: 0 };
    let start = State { executed: vec![Executed::default(); operations.len()], record: None, clock_us: 0, losses: 0 };
    if search.finds(&start) {
        Found::Order(search.path)
    } else if search.states >= limits.max_states {
        Found::Undecided
    } else {
        Found::None(search.longest)
    }
}

/// The last earlier operation that has no answer and is otherwise the same as this one, which has none either. What one
/// of them executes, the earlier one can execute.
fn earlier_equal(operations: &[Operation], at: usize) -> Option<usize> {
    let operation = &operations[at];
    let is_equal = |other: &Operation| {
        other.returned_us.is_none()
            && other.unix_offset_us == operation.unix_offset_us
            && (&other.call, &other.leases_ms) == (&operation.call, &operation.leases_ms)
    };
    operation.returned_us.is_none().then(|| operations[..at].iter().rposition(is_equal))?
}

struct Search<'a> {
    operations: &'a [Operation],
    /// For each operation, its [`earlier_equal`].
    earlier_equals: Vec<Option<usize>>,
    limits: Limits,
    shown: Shown,
    /// The states that were visited.
    seen: HashMap<(Vec<Executed>, u8), Vec<Seen>>,
    path: Vec<Step>,
    longest: Vec<Step>,
    states: usize,
}

/// How often an operation was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Executed {
    with_its_answer: bool,
    without: u8,
}

/// What else a visited state is.
struct Seen {
    record: Option<Record>,
    /// The records that a loss would restore.
    earlier: Vec<Option<Record>>,
    clock_us: u64,
}

#[derive(Clone)]
struct State {
    executed: Vec<Executed>,
    record: Option<Record>,
    clock_us: u64,
    losses: u8,
}

impl Search<'_> {
    /// Whether all answered operations that remain can be executed from this state on. If so, `path` is the order.
    fn finds(&mut self, state: &State) -> bool {
        let operations = self.operations;
        let waits = |at: usize| operations[at].returned_us.is_some() && !state.executed[at].with_its_answer;
        let ends = (0..operations.len()).filter(|at| waits(*at)).map(|at| operations[at].ends_us());
        // Operations that were invoked after this return are executed after it.
        let Some(horizon_us) = ends.min() else { return true };
        if self.states >= self.limits.max_states || !self.is_new(state) {
            return false;
        }
        self.states += 1;
        if self.path.len() > self.longest.len() {
            self.longest.clone_from(&self.path);
        }
        let may_begin = || (0..operations.len()).take_while(|at| operations[*at].invoked_us <= horizon_us);
        let answers: Vec<_> = may_begin()
            .filter(|at| waits(*at))
            .flat_map(|at| self.executions(state, at, operations[at].ends_us(), true))
            .collect();
        // An execution that changes neither the record nor the clock can always be the next one, unless it may shorten
        // a lease later.
        let is_next = |(step, next): &&(Step, State)| {
            next.record == state.record && next.clock_us == state.clock_us && !self.may_shorten(step)
        };
        if let Some(next) = answers.iter().find(is_next) {
            return self.follows(next.clone());
        }
        if answers.into_iter().any(|next| self.follows(next)) {
            return true;
        }
        // Outcomes come before claims. An outcome changes only the record of its own claim, so fewer of them can be
        // next.
        let (claims, outcomes): (Vec<_>, Vec<_>) =
            may_begin().partition(|at| matches!(operations[*at].call, Call::Acquire { .. }));
        for at in outcomes.into_iter().chain(claims) {
            let most = self.limits.allowances.repeats + u8::from(operations[at].returned_us.is_none());
            let is_first = self.earlier_equals[at].is_none_or(|earlier| state.executed[earlier].without == most);
            if is_first
                && state.executed[at].without < most
                && self.executions(state, at, horizon_us, false).into_iter().any(|next| self.follows(next))
            {
                return true;
            }
        }
        self.lost(state, horizon_us).into_iter().any(|next| self.follows(next))
    }

    /// Whether the answer of this step is also that of a call that shortens the lease of another owner to the longest
    /// one.
    fn may_shorten(&self, step: &Step) -> bool {
        let Step::Executed { operation, answer: Answer::Conflict { remains_ms }, .. } = step else { return false };
        let operation = &self.operations[*operation];
        let Call::Acquire { request } = &operation.call else { return false };
        operation.leases_ms.iter().any(|lease_ms| *remains_ms == request.longest_lease_ms.max(*lease_ms))
    }

    /// Whether an order continues with this step.
    fn follows(&mut self, (step, next): (Step, State)) -> bool {
        self.path.push(step);
        let found = self.finds(&next);
        if !found {
            self.path.pop();
        }
        found
    }

    /// The choices for an execution between these times of the wall clock, with how far the server's clock is ahead.
    fn choices(
        &self,
        operation: &Operation,
        is_answer: bool,
        record: Option<&Record>,
        times_us: (u64, u64),
    ) -> impl Iterator<Item = (Choice, i64)> {
        let ranges = operation.server_clock(times_us).into_iter();
        ranges.flat_map(move |(from_us, to_us, ahead_us)| {
            let found = choices(operation, is_answer, record, (from_us, to_us), &self.shown);
            found.into_iter().map(move |choice| (choice, ahead_us))
        })
    }

    /// The executions of this operation that make a difference, with the states after them. `until_us` is by the
    /// monotonic clock.
    fn executions(&self, state: &State, at: usize, until_us: u64, is_answer: bool) -> Vec<(Step, State)> {
        let operation = &self.operations[at];
        let (from_us, to_us) = window(operation, until_us, self.limits.allowances.tolerance_us);
        // What is executed later finds what a loss has left.
        let to_us = self.lost_at_us(state).map_or(to_us, |lost_us| to_us.min(lost_us));
        let mut executions: Vec<(Step, State)> = Vec::new();
        for (choice, ahead_us) in
            self.choices(operation, is_answer, state.record.as_ref(), (from_us.max(state.clock_us), to_us))
        {
            for before in found(state.record.as_ref(), choice.now_us) {
                let (answer, changed) = execute(operation, before, choice);
                let record = changed.or_else(|| before.cloned());
                // An execution that changes nothing and whose answer is unknown needs no place in the order. Of two
                // times with the same record after them, the earlier one leaves more for those that follow.
                let counts = if is_answer { answer == operation.answer } else { record.as_ref() != before };
                if !counts || executions.iter().any(|(_, other)| other.record == record) {
                    continue;
                }
                let mut executed = state.executed.clone();
                if is_answer {
                    executed[at].with_its_answer = true;
                } else {
                    executed[at].without += 1;
                }
                let wall_us = choice.now_us.saturating_add_signed(-ahead_us);
                let (before, after) = (before.cloned(), record.clone());
                let step = Step::Executed { operation: at, is_answer, choice, wall_us, before, answer, after };
                let next = State { executed, record, clock_us: wall_us, losses: state.losses };
                executions.push((step, next));
            }
        }
        executions
    }

    /// Remembers the state. Returns whether it is new: an equal one with an earlier clock leaves at least as much for
    /// the operations that follow.
    fn is_new(&mut self, state: &State) -> bool {
        let writes = if self.may_lose(state) { self.writes() } else { Vec::new() };
        let earlier: Vec<_> = writes.into_iter().map(|write| self.before(write)).collect();
        let seen = self.seen.entry((state.executed.clone(), state.losses)).or_default();
        let is_new = !seen
            .iter()
            .any(|other| other.record == state.record && other.earlier == earlier && other.clock_us <= state.clock_us);
        if is_new {
            seen.push(Seen { record: state.record.clone(), earlier, clock_us: state.clock_us });
        }
        is_new
    }
}
