//! The rows of the inbox, the effects and the recorded failures: each is of one run, and of one transaction.

use std::collections::BTreeMap;

use history::inbox::Class;

use super::{SLACK_US, Seen};
use crate::inbox::cleanup::{CLEANUP_ONE_IN, HOUSEKEEPER};
use crate::inbox::kind::{Kind, retention};
use crate::inbox::owner::fingerprint;
use crate::inbox::plan::{Case, Ends};
use crate::inbox::tables::{Change, ChangeKind, InboxRow};
use crate::inbox::tally::{Run, Sent, Told};

impl Seen {
    pub(super) fn wrong_rows(&self) -> Vec<String> {
        let mut faults = self.tables.changed_others.clone();
        // The run of each transaction.
        let runs: BTreeMap<i64, (usize, &Run)> = self
            .runs
            .iter()
            .enumerate()
            .filter_map(|(number, run)| Some((run.session.as_ref()?.transaction, (number, run))))
            .collect();
        let changes = |transaction: i64, kind: ChangeKind| {
            self.tables.changes.iter().filter(move |change| (change.transaction, change.kind) == (transaction, kind))
        };
        for change in &self.tables.changes {
            let run = runs.get(&change.transaction).map(|(_, run)| *run);
            let is_right = match change.kind {
                ChangeKind::Insert => {
                    let is_finished = changes(change.transaction, ChangeKind::Update).next().is_some();
                    run.is_some_and(|run| self.is_row_of(&change.row, run) && is_finished != has_committed(self, run))
                }
                ChangeKind::Update => {
                    let result = change.row.result.as_ref();
                    run.is_some_and(|run| {
                        self.is_row_of(&change.row, run)
                            && run.returned.as_ref().and_then(|ok| ok.as_ref().ok()) == result
                    }) && changes(change.transaction, ChangeKind::Update).count() == 1
                        && changes(change.transaction, ChangeKind::Insert).count() == 1
                }
                // `cleanup`
                ChangeKind::Delete => continue,
            };
            if !is_right {
                faults.push(format!("a row is not that of its run: {change:?}, {run:?}"));
            }
        }
        for effect in &self.tables.effects {
            let run = self.runs.get(effect.run);
            let is_right = run.is_some_and(|run| {
                run.session.as_ref().is_some_and(|session| session.transaction == effect.transaction)
                    && changes(effect.transaction, ChangeKind::Insert).count() == 1
                    && (has_committed(self, run) || changes(effect.transaction, ChangeKind::Update).count() == 1)
            });
            if !is_right {
                faults.push(format!("an effect has no row of the same transaction: {effect:?}, {run:?}"));
            }
        }
        for change in self.tables.changes.iter().filter(|change| change.kind == ChangeKind::Update) {
            let effects = self.tables.effects.iter().filter(|effect| effect.transaction == change.transaction).count();
            if effects != 1 {
                faults.push(format!("{effects} effects have this row: {change:?}"));
            }
        }
        faults.extend(self.wrong_final_rows());
        faults.extend(self.wrong_failures());
        faults
    }

    /// Whether the row is of this run, apart from its result.
    fn is_row_of(&self, row: &InboxRow, run: &Run) -> bool {
        let message = &self.sent[run.delivery].message;
        let InboxRow { namespace, key, fingerprint: payload, fence, attempts, .. } = row;
        (namespace.as_str(), key) == (message.namespace, &run.key)
            && payload == fingerprint(message.payload).as_bytes()
            && (*fence, *attempts) == (i64::try_from(run.fence).unwrap(), i16::from(run.attempt))
    }

    /// Each row is as its last change left it.
    fn wrong_final_rows(&self) -> Vec<String> {
        let mut last: BTreeMap<(&str, &str), &Change> = BTreeMap::new();
        for change in &self.tables.changes {
            last.insert((&change.row.namespace, &change.row.key), change);
        }
        let kept = last.values().filter(|change| change.kind != ChangeKind::Delete);
        let (mut kept, mut rows): (Vec<_>, Vec<_>) =
            (kept.map(|change| &change.row).collect(), self.tables.rows.iter().collect());
        let by_key = |row: &&InboxRow| (row.namespace.clone(), row.key.clone());
        kept.sort_by_key(by_key);
        rows.sort_by_key(by_key);
        if kept == rows { Vec::new() } else { vec!["the rows are not as their last changes left them".to_owned()] }
    }

    /// A failure is recorded if it is permanent and no other owner has done the work, and is final only then.
    fn wrong_failures(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for failure in &self.tables.failures {
            let run = self.runs.get(failure.run);
            let is_right = run.is_some_and(|run| {
                run.recordings.iter().any(|recording| {
                    recording.session.as_ref().is_some_and(|session| session.transaction == failure.transaction)
                        && Some(&recording.why) == failure.why.as_ref()
                        && !matches!(recording.returned, Some(Err(_)))
                })
            });
            if !is_right {
                faults.push(format!("a failure is not that of its run: {failure:?}, {run:?}"));
            }
        }
        for (number, run) in self.runs.iter().enumerate() {
            let sent = &self.sent[run.delivery];
            // A session that was ended, or cut off, does not say whether the work has ended its transaction.
            let is_unknown = self.ended_idle.iter().chain(&self.disturbed).any(|span| span.overlaps(sent.span()));
            let is_permanent = (!run.has_ended || is_unknown)
                && match &run.returned {
                    Some(Err(failed)) => failed.class == Class::Permanent,
                    Some(Ok(_)) => {
                        matches!(sent.plan.case, Case::AtCommit(code) if Class::of(code) == Class::Permanent)
                    }
                    None => false,
                };
            if run.recordings.len() > usize::from(is_permanent) {
                faults.push(format!("a failure was recorded that is not permanent, or twice: {run:?}, {sent:?}"));
            }
            let is_recorded = self.tables.failures.iter().any(|failure| failure.run == number);
            if let Some(Told::FailedPermanently { error, .. }) = sent.told()
                && error.class == Class::Permanent
                && (!is_recorded || run.recordings.iter().any(|recording| !error.text.starts_with(&recording.why)))
            {
                faults.push(format!("a failure is final, and not recorded: {run:?}, {sent:?}"));
            }
            // The reply to the statement that reads the row may be late.
            let slack_us = SLACK_US + u64::try_from(crate::inbox::world::LATE.as_micros()).unwrap();
            for recording in &run.recordings {
                let rows = self.done_rows(&sent.message);
                let done = rows.iter().filter(|row| {
                    row.committed_us + slack_us < recording.begun_us
                        && self.is_kept(row, recording.begun_us)
                        && !Self::has_expired(row, recording.begun_us)
                });
                if done.count() > 0 && !self.is_slow(sent.span()) {
                    faults.push(format!("a failure was recorded of work that is done: {run:?}, {sent:?}"));
                }
            }
        }
        faults
    }

    /// Whether the row was there until this time.
    pub(super) fn is_kept(&self, row: &Change, until_us: u64) -> bool {
        let is_deletion = |change: &&Change| {
            change.kind == ChangeKind::Delete
                && (&change.row.namespace, &change.row.key, change.row.fence)
                    == (&row.row.namespace, &row.row.key, row.row.fence)
        };
        !self.tables.changes.iter().filter(is_deletion).any(|change| change.begun_us <= until_us)
    }

    /// Whether the row had expired at this time. It is not expected to be deleted by then.
    pub(super) fn has_expired(row: &Change, at_us: u64) -> bool {
        let retention_us = u64::try_from(retention(&row.row.namespace).as_micros()).unwrap();
        row.row.result.is_some() && row.begun_us + retention_us <= at_us
    }

    /// Whether the transaction that deleted this row has inserted another one.
    fn is_replaced(&self, deleted: &Change) -> bool {
        self.tables.changes.iter().any(|change| {
            change.kind == ChangeKind::Insert
                && (change.transaction, &change.row.key) == (deleted.transaction, &deleted.row.key)
        })
    }

    /// Rows that a cleanup should not have deleted, and those that it should.
    pub(super) fn wrong_deletions(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let deletions: Vec<_> = self.tables.changes.iter().filter(|change| change.kind == ChangeKind::Delete).collect();
        let mut counts: BTreeMap<(i64, &str), u32> = BTreeMap::new();
        for change in &deletions {
            *counts.entry((change.transaction, &change.by)).or_default() += 1;
            // The other owners are too unlikely to clean up.
            let is_own = self.is_replaced(change)
                || Kind::of(&change.by).map_or(change.by == HOUSEKEEPER, |kind| kind.namespace == change.row.namespace);
            let retention_us = retention(&change.row.namespace).as_micros();
            let lived_us = i64::try_from(change.begun_us + self.ahead_us).unwrap() - change.row.done_at_us;
            let is_expired = lived_us + 1 >= i64::try_from(retention_us).unwrap();
            if !is_own || !is_expired || change.row.result.is_none() {
                faults.push(format!("this row was to be kept: {change:?}"));
            }
        }
        let most = |by: &str| 2 * Kind::of(by).map_or(CLEANUP_ONE_IN, |kind| kind.cleanup_one_in);
        let too_many = counts.into_iter().filter(|((_, by), count)| *count > most(by));
        faults.extend(too_many.map(|(cleanup, count)| format!("{count} rows at once: {cleanup:?}")));
        let by_housekeeper = deletions.iter().filter(|change| change.by == HOUSEKEEPER).count();
        if by_housekeeper as u64 != self.deleted.iter().sum::<u64>() || self.deleted.contains(&0) {
            faults.push(format!("the cleanups said that they deleted {:?}, not {by_housekeeper}", self.deleted));
        }
        // One attempt in a few deletes rows, if there are any.
        let is_attempt = |sent: &&Sent| sent.claimed().is_some() && Kind::of(&sent.session()).is_some();
        let attempts = self.sent.iter().filter(is_attempt).filter(|sent| !self.is_disturbed(sent));
        let replaced = deletions.iter().filter(|deleted| self.is_replaced(deleted));
        if by_housekeeper + replaced.count() == deletions.len() && attempts.count() > 80 {
            faults.push("no attempt deleted a row".to_owned());
        }
        faults
    }
}

/// Whether the work of this run has committed its row by itself.
fn has_committed(seen: &Seen, run: &Run) -> bool {
    run.has_ended && matches!(seen.sent[run.delivery].plan.case, Case::End(Ends::Commit, ..))
}
