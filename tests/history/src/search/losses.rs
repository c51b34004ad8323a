//! Losses of the latest writes: at any time, or those that the run knows.

use idempotent_sqs::idempotency::protocol::Record;

use super::{Search, State, Step};
use crate::history::Loss;

/// Which losses are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// This number, at any time, of any of the latest writes.
    Any(u8),
    /// Those of the operations: [`Operation::losses`](crate::Operation::losses).
    Known,
}

impl Search<'_> {
    /// The losses that may be next, with the states after them. No answered operation that remains returned before
    /// `horizon_us`.
    pub(super) fn lost(&self, state: &State, horizon_us: u64) -> Vec<(Step, State)> {
        if !self.may_lose(state) {
            return Vec::new();
        }
        let known = self.next_known(state);
        let clock_us = known.map_or(state.clock_us, |loss| loss.at_us + self.operations[0].unix_offset_us);
        if clock_us < state.clock_us || known.is_some_and(|loss| loss.at_us > horizon_us) {
            return Vec::new();
        }
        let writes = self.writes();
        let of = |first: usize| {
            let record = writes.get(first).map_or_else(|| state.record.clone(), |write| self.before(*write));
            let step = Step::Lost { steps: writes[first..].to_vec(), after: record.clone() };
            (step, State { record, clock_us, losses: state.losses + 1, executed: state.executed.clone() })
        };
        let is_possible =
            |first: &usize| known.is_none_or(|loss| self.is_since(loss, &writes[..*first], &writes[*first..]));
        // A known loss may find nothing to lose.
        let firsts = 0..writes.len() + usize::from(known.is_some());
        firsts.rev().filter(is_possible).map(of).collect()
    }

    /// Whether losses may follow this state.
    pub(super) fn may_lose(&self, state: &State) -> bool {
        match self.limits.losses {
            Losses::Any(most) => state.losses < most,
            Losses::Known => self.next_known(state).is_some(),
        }
    }

    /// When a known loss is next, by the wall clock, µs.
    pub(super) fn lost_at_us(&self, state: &State) -> Option<u64> {
        self.next_known(state).map(|loss| loss.at_us + self.operations[0].unix_offset_us)
    }

    fn next_known(&self, state: &State) -> Option<&Loss> {
        let known = (self.limits.losses == Losses::Known).then(|| self.operations.first())??;
        known.losses.get(usize::from(state.losses))
    }

    /// Whether these steps may have been executed before and since the time from which on writes were lost.
    fn is_since(&self, loss: &Loss, kept: &[usize], undone: &[usize]) -> bool {
        let since_us = loss.since_us + self.operations[0].unix_offset_us;
        // A step has the earliest time at which it could be executed.
        let is_before = |step: &usize| matches!(self.path[*step], Step::Executed { wall_us, .. } if wall_us < since_us);
        let may_be_since = |step: &usize| match self.path[*step] {
            Step::Executed { operation, is_answer, .. } => {
                !is_answer || self.operations[operation].ends_us() >= loss.since_us
            }
            Step::Lost { .. } => false,
        };
        kept.iter().all(is_before) && undone.iter().all(may_be_since)
    }

    /// The steps whose writes the record has, in order.
    pub(super) fn writes(&self) -> Vec<usize> {
        let mut writes = Vec::new();
        for (index, step) in self.path.iter().enumerate() {
            match step {
                Step::Executed { before, after, .. } if before != after => writes.push(index),
                Step::Executed { .. } => {}
                Step::Lost { steps, .. } => writes.retain(|write| !steps.contains(write)),
            }
        }
        writes
    }

    /// The record before this step.
    pub(super) fn before(&self, step: usize) -> Option<Record> {
        match &self.path[step] {
            Step::Executed { before, .. } => before.clone(),
            Step::Lost { after, .. } => after.clone(),
        }
    }
}
