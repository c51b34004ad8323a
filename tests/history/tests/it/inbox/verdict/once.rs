//! Work that is done or at work is not done again.

use std::collections::BTreeMap;

use super::{SLACK_US, Seen};
use crate::inbox::kind::{BRIEF, BRIEFLY};
use crate::inbox::owner::fingerprint;
use crate::inbox::plan::Case;
use crate::inbox::tables::Change;
use crate::inbox::tally::{Message, Run, Sent, Told};

impl Seen {
    pub(super) fn not_once(&self) -> Vec<String> {
        let mut faults = self.repeated_effects();
        for (number, sent) in self.sent.iter().enumerate() {
            let runs: Vec<_> = self.runs_of(number).collect();
            for row in self.rows_before(sent) {
                if !runs.is_empty() {
                    faults.push(format!(
                        "it ran although there was a row: {row:?}, delivery {number}, {sent:?}, {runs:?}"
                    ));
                }
                if let Some(told) = sent.told()
                    && !may_be_told(told, row, sent)
                    && !(self.is_hidden(sent) && [Told::FailedBefore, Told::Mismatch].contains(told))
                {
                    faults.push(format!("it is not told of the row: {row:?}, delivery {number}, {sent:?}"));
                }
            }
        }
        faults.extend(self.side_by_side());
        faults
    }

    /// Keys with several effects.
    fn repeated_effects(&self) -> Vec<String> {
        let mut effects: BTreeMap<(&str, &str), Vec<(u64, i64)>> = BTreeMap::new();
        for effect in &self.tables.effects {
            if let Some(run) = self.runs.get(effect.run) {
                let message = &self.sent[run.delivery].message;
                effects
                    .entry((message.namespace, &run.key))
                    .or_default()
                    .push((effect.committed_us, effect.transaction));
            }
        }
        let begun_us = |transaction: i64| {
            self.tables.changes.iter().find(|change| change.transaction == transaction).map(|change| change.begun_us)
        };
        let mut faults = Vec::new();
        for ((namespace, key), mut effects) in effects {
            effects.sort_unstable();
            for pair in effects.windows(2) {
                // A key that is delivered after its row has expired is new.
                let [first, second] = [pair[0], pair[1]].map(|(_, transaction)| begun_us(transaction));
                let expires_us = first.map(|us| us + u64::try_from(BRIEFLY.as_micros()).unwrap());
                let is_new =
                    namespace == BRIEF && expires_us.zip(second).is_some_and(|(expires_us, us)| expires_us <= us);
                if !is_new {
                    faults.push(format!("{namespace} {key} has these effects: {effects:?}"));
                }
            }
        }
        faults
    }

    /// The rows of its key that were committed before a delivery began, and were there until it had ended, and had not
    /// expired.
    fn rows_before(&self, sent: &Sent) -> Vec<&Change> {
        let rows = self.done_rows(&sent.message).into_iter();
        rows.filter(|row| {
            let is_kept = self.is_kept(row, sent.ended_us) && !Self::has_expired(row, sent.ended_us);
            row.committed_us + SLACK_US < sent.begun_us && is_kept
        })
        .collect()
    }

    /// Whether work of the same payload was surely done before the delivery began.
    pub(super) fn is_surely_done(&self, sent: &Sent) -> bool {
        let fingerprint = fingerprint(sent.message.payload);
        self.rows_before(sent).iter().any(|row| row.row.fingerprint == fingerprint.as_bytes())
    }

    /// Whether the database has no form for the key.
    pub(super) fn is_hidden(&self, sent: &Sent) -> bool {
        sent.message.is_unrepresentable() && !self.has_all_characters
    }

    /// Runs of one key at the same time.
    fn side_by_side(&self) -> Vec<String> {
        let mut keys: BTreeMap<(&str, &str), Vec<&Run>> = BTreeMap::new();
        for run in &self.runs {
            keys.entry((self.sent[run.delivery].message.namespace, &run.key)).or_default().push(run);
        }
        let mut faults = Vec::new();
        for runs in keys.values_mut() {
            runs.sort_by_key(|run| run.begun_us);
            for (at, first) in runs.iter().enumerate() {
                let until_us = self.holds_row_until_us(first);
                let second = runs[at + 1..].iter().find(|second| second.begun_us < until_us);
                if let Some(second) = second {
                    let plan = self.sent[first.delivery].plan;
                    faults.push(format!("two works run at the same time: {plan:?}, {first:?}, {second:?}"));
                }
            }
        }
        faults
    }

    /// Until when the transaction of this run surely holds the row of its key.
    fn holds_row_until_us(&self, run: &Run) -> u64 {
        let sent = &self.sent[run.delivery];
        let ends_otherwise = run.has_ended
            || run.returned.is_none()
            || self.is_disturbed(sent)
            || matches!(sent.plan.case, Case::Cut | Case::CutIgnored { .. } | Case::Terminated | Case::Ignored | Case::End(..))
            // After an error the server releases the locks, before the work returns.
            || matches!(&run.returned, Some(Err(failed)) if failed.statement.is_some());
        if ends_otherwise { run.effect_us.unwrap_or(run.begun_us) } else { run.ended_us }
    }
}

/// Whether a delivery may be told this if there was this row before.
fn may_be_told(told: &Told, row: &Change, sent: &Sent) -> bool {
    let Message { payload, .. } = sent.message;
    let is_same = row.row.fingerprint == fingerprint(payload).as_bytes();
    match told {
        // It could not find out, or another delivery was about to.
        Told::Conflict { .. } | Told::NoStore { .. } | Told::Unavailable(_) | Told::NotStarted | Told::NotARecord => {
            true
        }
        Told::Duplicate { result } => {
            is_same
                && row.row.result.is_some()
                && result.as_ref().is_none_or(|result| Some(result) == row.row.result.as_ref())
        }
        // The row has another payload. The store may know of a failure.
        Told::Mismatch | Told::FailedBefore => !is_same,
        // The time was over while it looked up the row.
        Told::Failed { uncertain: true, .. } | Told::Lost { done: false } | Told::Unsettled
            if sent.ended_us + SLACK_US >= sent.work_us =>
        {
            true
        }
        // Only after a COMMIT of the work.
        Told::Failed { uncertain: true, .. }
        | Told::FailedPermanently { uncertain: true, .. }
        | Told::Lost { done: false }
        | Told::Unsettled => is_same && row.row.result.is_none(),
        _ => false,
    }
}
