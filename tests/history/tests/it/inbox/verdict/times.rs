//! When something has to be over. On a slow machine it may take longer.

use super::{Seen, lock_us};
use crate::inbox::kind::{UNREPRESENTABLE, User, Way};
use crate::inbox::plan::{Before, Case};
use crate::inbox::tally::{Failed, Span};

/// How late something may be, µs.
const LATE_US: u64 = 1_500_000;

/// How much later than its cleanup a work may begin, µs.
const BEGINS_US: u64 = 500_000;

/// Longest time of a cleanup in an attempt, µs.
const CLEANUP_US: u64 = 1_000_000;

impl Seen {
    pub(super) fn wrong_times(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for overdue in &self.overdue {
            if self.is_late(overdue.due_us, overdue.due_us + LATE_US, overdue.over_us) {
                faults.push(format!("its transaction is not over: {overdue:?}"));
            }
        }
        for took in &self.took {
            if self.is_late(took.from_us, took.from_us + took.limit_us, took.until_us) {
                faults.push(format!("it took too long: {took:?}"));
            }
        }
        for sent in self.sent.iter().filter(|sent| !matches!(sent.plan.case, Case::Frozen { .. })) {
            if self.is_late(sent.begun_us, sent.end_us + LATE_US, sent.ended_us) {
                faults.push(format!("a delivery did not end in time: {sent:?}"));
            }
        }
        for run in &self.runs {
            let sent = &self.sent[run.delivery];
            let is_alone = sent.kind.tasks == 1 && sent.kind.user == User::App && !self.is_contended(sent);
            let is_undisturbed = sent.plan.before == Before::Nothing && !self.is_disturbed(sent);
            let has_way = sent.kind.redis == Way::Steady && sent.message.namespace != UNREPRESENTABLE;
            let cleanup_us = (run.ends_us.saturating_sub(sent.begun_us) / 10).min(CLEANUP_US);
            let due_us = sent.begun_us + cleanup_us + BEGINS_US;
            if is_alone && is_undisturbed && has_way && self.is_late(sent.begun_us, due_us, run.begun_us) {
                faults.push(format!("a work began late: {run:?}, {sent:?}"));
            }
            if sent.plan.case == Case::LockHeld
                && let Some(Err(Failed { statement: Some(code), took_us, .. })) = &run.returned
                && code == "55P03"
            {
                let (limit_us, begun_us) = (lock_us(sent.kind), run.ended_us.saturating_sub(*took_us));
                let is_early = took_us + 5_000 < limit_us && begun_us + limit_us + LATE_US < run.ends_us;
                if is_early || self.is_late(begun_us, begun_us + limit_us + LATE_US, run.ended_us) {
                    faults.push(format!("it waited otherwise for a lock: {run:?}, {sent:?}"));
                }
            }
        }
        faults
    }

    /// Whether something that began at one time was over too late, and the machine was not slow meanwhile.
    fn is_late(&self, from_us: u64, due_us: u64, over_us: u64) -> bool {
        let span = Span { from_us, until_us: over_us.min(due_us + 10 * LATE_US) };
        let was_down = self.disturbed.iter().any(|disturbed| disturbed.overlaps(span));
        over_us > due_us && !was_down && !self.is_slow(span)
    }
}
