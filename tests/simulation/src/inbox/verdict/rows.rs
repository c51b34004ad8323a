//! The rows and the effects: each effect commits once, with its row.

use std::time::Duration;

use history::inbox::Class;
use tokio::time::Instant;

use super::Truth;
use crate::inbox::caller::{KINDS, Kind, retention};
use crate::inbox::calls::{Call, Told};
use crate::inbox::operator::FENCE;
use crate::inbox::plan::OnFailure;
use crate::postgres::{Change, Committed, Effect};

impl Truth<'_> {
    /// What is wrong with the effects, and with the rows of their transactions.
    pub(super) fn wrong_effects(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for effect in &self.effects {
            let of_transaction = |change: &&Change| change.transaction == effect.transaction && change.new.is_some();
            let rows: Vec<_> =
                self.changes.iter().filter(of_transaction).filter_map(|change| change.new.as_ref()).collect();
            let call = self.calls.iter().find(|call| is_of(effect, call));
            let (Some(call), [row]) = (call, &*rows) else {
                wrong.push(format!("an effect has not one row: {effect:?}, {rows:?}"));
                continue;
            };
            let has_ended = call.runs.iter().any(|run| run.has_ended);
            let result = call.runs.iter().find_map(|run| run.returned.as_ref()?.as_ref().ok());
            let is_right = row.is_of(call.consumer, &call.key)
                && row.has_payload(call.payload)
                && (row.fence, row.attempts) == (call.fence.try_into().unwrap_or(0), i16::from(call.number))
                && (has_ended && row.result.is_none() || row.result.as_ref() == result)
                && (row.result.is_some() || has_ended)
                && (call.begun..=effect.at).contains(&row.done_at);
            if !is_right {
                wrong.push(format!("an effect has another row: {effect:?}, {row:?}, {call:?}"));
            }
        }
        wrong
    }

    /// What is wrong with changes of rows: one is written with its effect, replaced or deleted only after its retention.
    pub(super) fn wrong_changes(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for change in &self.changes {
            let effects = self.effects.iter().filter(|effect| effect.transaction == change.transaction).count();
            if let Some(new) = &change.new
                && effects != usize::from(new.fence != FENCE)
            {
                wrong.push(format!("a row has {effects} effects: {change:?}"));
            }
            if let Some(old) = &change.old
                && (!old.has_expired(change.at) || old.result.is_none())
            {
                wrong.push(format!("a row is replaced or deleted too early: {change:?}"));
            }
        }
        for deletion in self.changes.iter().filter(|change| change.new.is_none()) {
            let deleted = self.deletions(deletion.transaction);
            let of_consumer = |kind: &&Kind| deletion.old.as_ref().is_some_and(|old| old.namespace == kind.consumer);
            let most = KINDS.iter().filter(of_consumer).map(|kind| 2 * kind.cleanup_one_in as usize).max();
            if Some(deleted) > most {
                wrong.push(format!("{deleted} rows are deleted at once: {deletion:?}"));
            }
        }
        for call in self.calls {
            let during = |change: &&Change| change.at >= call.begun && change.at <= call.ended();
            let deletes = |count: u64| {
                let mut changes = self.changes.iter().filter(during).filter(|change| change.new.is_none());
                changes.any(|change| u64::try_from(self.deletions(change.transaction)) == Ok(count))
            };
            let is_right = match &call.told {
                Told::Deleted(Ok(0)) => {
                    // A row may be locked.
                    self.is_contended_by_any(call)
                        || !self.versions.iter().any(|version| {
                            version.row.namespace == call.consumer
                                && version.row.result.is_some()
                                && version.from < call.begun
                                && version.until.is_none_or(|until| until > call.ended())
                                && version.row.done_at + retention(call.consumer) < call.begun
                        })
                }
                Told::Deleted(Ok(count)) => deletes(*count),
                _ => true,
            };
            if !is_right {
                wrong.push(format!("another number of rows is deleted: {call:?}"));
            }
        }
        wrong
    }

    /// Whether another call of the consumer overlaps.
    fn is_contended_by_any(&self, call: &Call) -> bool {
        let mut others = self.calls.iter().filter(|other| other.consumer == call.consumer && other.fence != call.fence);
        others.any(|other| other.begun <= call.ended() && other.ended().max(other.ends) >= call.begun)
    }

    fn deletions(&self, transaction: u64) -> usize {
        let is_of = |change: &&Change| change.transaction == transaction && change.new.is_none();
        self.changes.iter().filter(is_of).count()
    }

    /// A permanent failure is recorded, and nothing else is.
    pub(super) fn wrong_failures(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for failure in &self.failures {
            let call = self.calls.iter().find(|call| is_of(failure, call));
            let is_right = call.is_some_and(|call| {
                let is_lost =
                    call.plan.on_failure == OnFailure::LostReply || self.is_disturbed(call, &super::expected::ANY);
                matches!(call.told, Told::Failed(Class::Permanent, _)) || is_lost || matches!(call.told, Told::Nothing)
            });
            if !is_right {
                wrong.push(format!("a failure is recorded that is not permanent: {failure:?}, {call:?}"));
            }
        }
        for call in self.calls {
            let is_recorded = self.failures.iter().filter(|failure| is_of(failure, call)).count();
            if matches!(call.told, Told::Failed(Class::Permanent, _)) && is_recorded != 1 {
                wrong.push(format!("a permanent failure is recorded {is_recorded} times: {call:?}"));
            }
            // The reply to the statement that has found no row is this late.
            let late = Duration::from_millis(4);
            let is_done = |at: Instant| {
                let mut rows = self.versions.iter().filter(|version| version.row.is_of(call.consumer, &call.key));
                rows.any(|version| {
                    version.from + late < at
                        && version.until.is_none_or(|until| until > at)
                        && !version.row.has_expired(at)
                })
            };
            if call.runs.iter().flat_map(|run| &run.recordings).any(|recording| is_done(recording.begun)) {
                wrong.push(format!("a failure is recorded although there is a row: {call:?}"));
            }
        }
        wrong
    }
}

/// Whether an effect, or a failure, is that of this call.
pub(super) fn is_of(effect: &Committed<Effect>, call: &Call) -> bool {
    effect.row.fence.is_some_and(|fence| u64::try_from(fence) == Ok(call.fence))
}
