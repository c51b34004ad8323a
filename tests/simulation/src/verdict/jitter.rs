//! Whether delays are drawn at random, so that messages that fail together are not delivered again together.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::world::Run;

use super::invocations::is_of;
use super::visibility::{backoff_of, remains};

/// Conflicts of a run whose delays cannot be alike by chance: half of them are rounded up to the same second.
const CONFLICTS: usize = 24;

/// The same of backoffs, which have four or more values.
const BACKOFFS: usize = 8;

/// The least difference of backoffs, as a part of their range.
const LEAST_SPREAD: f64 = 0.125;

/// A delay that was set, and the range that it was drawn from.
#[derive(Debug)]
struct Drawn {
    after: Duration,
    from: RangeInclusive<Duration>,
}

impl Run {
    /// What is wrong with the jitter of delays.
    pub(super) fn wrong_jitter(&self) -> Vec<String> {
        let (mut conflicts, mut backoffs) = (Vec::new(), Vec::new());
        for invoked in &self.invocations {
            let calls = self.calls(invoked);
            for message in &invoked.messages {
                let Some(change) = self.change(invoked, message) else { continue };
                let Some(from) = self.expected_delay(invoked, &calls, message) else { continue };
                let is_conflict = calls.iter().any(|call| is_of(call, message) && remains(call).is_some());
                let is_backoff = from == backoff_of(invoked, message) && length(&from) >= Duration::from_secs(4);
                let drawn = Drawn { after: change.after, from };
                match (is_conflict, is_backoff) {
                    (true, _) => conflicts.push(drawn),
                    (false, true) => backoffs.push(drawn),
                    (false, false) => {}
                }
            }
        }
        let mut wrong = Vec::new();
        if conflicts.len() >= CONFLICTS && spread(&conflicts) == 0.0 {
            wrong.push(format!("the delays after conflicts are alike: {conflicts:?}"));
        }
        if backoffs.len() >= BACKOFFS && spread(&backoffs) < LEAST_SPREAD {
            wrong.push(format!("the delays after failures are alike: {backoffs:?}"));
        }
        wrong
    }
}

/// The difference between the earliest and the latest of these delays, each as a part of its range.
fn spread(drawn: &[Drawn]) -> f64 {
    let parts = drawn
        .iter()
        .map(|Drawn { after, from }| after.saturating_sub(*from.start()).as_secs_f64() / length(from).as_secs_f64());
    let (least, most) = parts.fold((f64::MAX, 0.0_f64), |(least, most), part| (least.min(part), most.max(part)));
    most - least
}

fn length(range: &RangeInclusive<Duration>) -> Duration {
    range.end().saturating_sub(*range.start())
}
