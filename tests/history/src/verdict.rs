//! The verdict on the operations of one key, with the least that explains them.

use std::fmt::Write;

use crate::allowances::Allowances;
use crate::history::Operation;
use crate::machine::execute;
use crate::replay::allows_next;
use crate::search::{Found, Limits, Next, Step, next_answers, search};

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
        /// The writes, one line each, with or without an answer.
        writes: Vec<String>,
        /// The order.
        order: Vec<Step>,
    },
    /// No order explains the answers.
    NotLinearizable {
        /// The longest order, and the answers that cannot follow it.
        why: String,
        /// Whether the model of the protocol allows none of these answers either. `None` if it does not cover the history.
        model_agrees: Option<bool>,
    },
    /// The search took too long.
    Undecided,
}

/// Number of states after which a search ends without a result.
const MAX_STATES: usize = 200_000;

/// The same before a loss is assumed. It takes up to a minute.
const MAX_STATES_WITHOUT_LOSS: usize = 4_000_000;

/// The verdict on the operations of one key.
#[must_use]
pub fn verdict(operations: &[Operation], allowances: Allowances) -> Verdict {
    let mut longest = None;
    let repeats = 0..=allowances.repeats;
    let with = |repeats| Allowances { repeats, ..allowances };
    let sizes = repeats.clone().map(|repeats| (repeats, MAX_STATES));
    for (repeats, max_states) in sizes.chain([(allowances.repeats, MAX_STATES_WITHOUT_LOSS)]) {
        // Only a search that took too long is repeated.
        if max_states > MAX_STATES && longest.is_some() {
            break;
        }
        match search(operations, Limits { allowances: with(repeats), losses: 0, max_states }) {
            Found::Order(order) => return Verdict::Linearizable { repeats, order },
            Found::None(order) => longest = Some(order),
            Found::Undecided => longest = None,
        }
    }
    for (repeats, losses) in repeats.flat_map(|repeats| [(repeats, 1), (repeats, 2)]) {
        let limits = Limits { allowances: with(repeats), losses, max_states: MAX_STATES / 10 };
        if let Found::Order(order) = search(operations, limits) {
            return Verdict::WritesLost { writes: lost_writes(operations, &order), order };
        }
    }
    let Some(longest) = longest else { return Verdict::Undecided };
    let next = next_answers(operations, &longest, allowances.tolerance_us);
    let model_agrees = allows_next(operations, &longest, &next).map(|allows| !allows);
    Verdict::NotLinearizable { why: explain(operations, &longest, &next), model_agrees }
}

/// The writes that this order loses.
fn lost_writes(operations: &[Operation], order: &[Step]) -> Vec<String> {
    let lost = order.iter().filter_map(|step| match step {
        Step::Lost { steps, .. } => Some(steps),
        Step::Executed { .. } => None,
    });
    lost.flatten()
        .filter_map(|step| match &order[*step] {
            Step::Executed { operation, is_answer, .. } => Some((&operations[*operation], is_answer)),
            Step::Lost { .. } => None,
        })
        .map(|(operation, is_answer)| {
            format!("{} write lost: {operation}", if *is_answer { "acknowledged" } else { "unanswered" })
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
