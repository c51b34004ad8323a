//! Whether an hour less is asked for as long as SQS refuses a visibility timeout, and nothing else.

use std::time::Duration;

use crate::plan::Fault;
use crate::sqs::{VisibilityChange, is_too_long};
use crate::world::Run;

use super::invocations::is_during;

const HOUR: Duration = Duration::from_secs(3600);

/// Longest time of all changes, µs: docs/failures.md.
const LONGEST_US: u64 = 3_000_000;

/// Longest time of a reply on a slow network that loses nothing, µs.
const REPLY_US: u64 = 700_000;

impl Run {
    /// What is wrong with the changes that follow one.
    pub(super) fn wrong_reductions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let has_time = self.plan.lost == 0 && !self.plan.has(Fault::Freeze);
        for invoked in &self.invocations {
            let handles = invoked.messages.iter().map(|message| &message.receipt_handle);
            for handle in handles {
                let is_own =
                    |change: &&VisibilityChange| change.receipt_handle == *handle && is_during(change.at_us, invoked);
                let changes: Vec<_> = self.changes.iter().filter(is_own).collect();
                let follows = |one: &VisibilityChange, next: &VisibilityChange| {
                    // The SDK repeats a call that failed.
                    let is_less = self.plan.has_rare && is_too_long(one) && next.after + HOUR == one.after;
                    is_less || next.after == one.after
                };
                if changes.windows(2).any(|two| !follows(two[0], two[1])) {
                    wrong.push(format!("these visibility timeouts do not follow each other: {changes:?}"));
                }
                let Some(first) = changes.first() else { continue };
                let ends_us = (first.at_us + LONGEST_US).min(self.settling_ends_us(invoked));
                let refused = self.refused.iter().filter(is_own).max_by_key(|change| change.at_us);
                let is_due = |refused: &&VisibilityChange| refused.after > HOUR && refused.at_us + REPLY_US < ends_us;
                if let Some(refused) = refused.filter(is_due).filter(|_| has_time)
                    && changes.iter().all(|change| change.at_us <= refused.at_us)
                {
                    wrong.push(format!("an hour less was not asked for after {refused:?}: {changes:?}"));
                }
            }
        }
        wrong
    }
}
