//! The verdict on the operations of one key, with the least that explains them.

use std::fmt::{self, Write};

use crate::allowances::Allowances;
use crate::history::Operation;
use crate::machine::execute;
use crate::replay::allows_next;
use crate::search::{Found, Limits, Losses, Next, Step, Times, contradiction, next_answers, search};

/// The verdict on one key.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Each answer is explained, by this order.
    Linearizable {
        /// How often calls had to be sent again.
        repeats: u8,
        /// The order.
        order: Vec<Step>,
    },
    /// Each answer is explained if these writes were lost.
    WritesLost {
        /// The writes.
        writes: Vec<LostWrite>,
        /// The order.
        order: Vec<Step>,
    },
    /// No order explains the answers.
    NotLinearizable {
        /// The longest order, and the answers that cannot follow it.
        why: String,
        /// Whether the model of the protocol allows none of these answers either. `None` if it does not cover the
        /// history.
        model_agrees: Option<bool>,
    },
    /// The search took too long.
    Undecided,
}

/// A write that was lost.
#[derive(Clone, Debug)]
pub struct LostWrite {
    /// The call that wrote.
    pub operation: Operation,
    /// Whether its answer is that of this write. If not, the write took place at any time after the call was invoked.
    pub is_acknowledged: bool,
    /// Whether the run lost writes at this time: [`Operation::losses`].
    pub is_known: bool,
}

/// For example `pay-1: acknowledged write lost: complete by …`.
impl fmt::Display for LostWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_acknowledged { "acknowledged" } else { "unanswered" };
        write!(f, "{}: {what} write lost: {}", self.operation.call.key(), self.operation)
    }
}

/// Number of states after which a search ends without a result.
const MAX_STATES: usize = 200_000;

/// The same before a loss is assumed. It takes up to a minute.
const MAX_STATES_WITHOUT_LOSS: usize = 4_000_000;

/// The verdict on the operations of one key.
#[must_use]
pub fn verdict(operations: &[Operation], allowances: Allowances) -> Verdict {
    // Claims that contradict each other have an order only with a loss that the run does not know.
    let contradiction = contradiction(operations);
    let mut longest = None;
    for limits in searches(operations, allowances, contradiction.is_some()) {
        // Only a search that took too long is repeated.
        if limits.max_states == MAX_STATES_WITHOUT_LOSS && longest.is_some() {
            continue;
        }
        match (search(operations, limits), limits) {
            (Found::Order(order), Limits { losses: Losses::Any(0), allowances, .. }) => {
                return Verdict::Linearizable { repeats: allowances.repeats, order };
            }
            (Found::Order(order), Limits { losses, .. }) => {
                return Verdict::WritesLost { writes: lost_writes(operations, &order, losses == Losses::Known), order };
            }
            (Found::None(order), Limits { losses: Losses::Any(0), times: Times::All, .. }) => longest = Some(order),
            (Found::Undecided, Limits { losses: Losses::Any(0), .. }) => longest = None,
            (Found::None(_) | Found::Undecided, _) => {}
        }
    }
    if let Some([first, second]) = contradiction {
        let why = format!("    the fence of {second} is not greater than that of {first}");
        return Verdict::NotLinearizable { why, model_agrees: None };
    }
    let Some(longest) = longest else { return Verdict::Undecided };
    let next = next_answers(operations, &longest, allowances.tolerance_us);
    let model_agrees = allows_next(operations, &longest, &next).map(|allows| !allows);
    Verdict::NotLinearizable { why: explain(operations, &longest, &next), model_agrees }
}

/// The limits of the searches, in turn: with few times before all, with no or a known loss before any.
fn searches(operations: &[Operation], allowances: Allowances, needs_loss: bool) -> Vec<Limits> {
    let with = |repeats, losses, times, max_states| Limits {
        allowances: Allowances { repeats, ..allowances },
        losses,
        times,
        max_states,
    };
    let of = |losses, times, max_states| {
        (0..=allowances.repeats).map(move |repeats| with(repeats, losses, times, max_states))
    };
    let has_known = operations.iter().any(|operation| !operation.losses.is_empty());
    let known = |times| of(Losses::Known, times, MAX_STATES).filter(move |_| has_known);
    let none = |times| of(Losses::Any(0), times, MAX_STATES);
    // An order without a known loss is found at once, if there is one.
    let at_once = if has_known { MAX_STATES / 100 } else { MAX_STATES };
    let without = of(Losses::Any(0), Times::Invocations, at_once)
        .chain(known(Times::Invocations))
        .chain(none(Times::All))
        .chain([with(allowances.repeats, Losses::Any(0), Times::All, MAX_STATES_WITHOUT_LOSS)])
        .chain(known(Times::All));
    let any = (0..=allowances.repeats)
        .flat_map(|repeats| [1, 2].map(|most| with(repeats, Losses::Any(most), Times::All, MAX_STATES / 10)));
    without.filter(|_| !needs_loss).chain(any).collect()
}

/// The writes that this order loses.
fn lost_writes(operations: &[Operation], order: &[Step], is_known: bool) -> Vec<LostWrite> {
    let lost = order.iter().filter_map(|step| match step {
        Step::Lost { steps, .. } => Some(steps),
        Step::Executed { .. } => None,
    });
    lost.flatten()
        .filter_map(|step| match &order[*step] {
            Step::Executed { operation, is_answer, .. } => {
                Some(LostWrite { operation: operations[*operation].clone(), is_acknowledged: *is_answer, is_known })
            }
            Step::Lost { .. } => None,
        })
        .collect()
}

/// The longest order, and what the state machine answers to the operations that could follow.
fn explain(operations: &[Operation], longest: &[Step], next: &Next) -> String {
    let mut text = String::new();
    for step in longest {
        if let Step::Executed { operation, is_answer, .. } = step {
            let what = if *is_answer { "" } else { "without its answer: " };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "    {what}{}", operations[*operation]);
        }
    }
    let record = longest.last().and_then(Step::after);
    let _ = writeln!(text, "  then the record is {record:?}, and none of these answers is possible:");
    for (at, choices) in next {
        let expected = choices.first().map(|choice| execute(&operations[*at], record, *choice).0);
        let _ = writeln!(text, "    {}, where the state machine answers {expected:?}", operations[*at]);
    }
    text
}
