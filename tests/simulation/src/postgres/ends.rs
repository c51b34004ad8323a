//! The ends of transactions: what they have written takes effect, or is undone.

use tokio::time::Instant;

use super::tables::{Changed, Commit, Ctid, Kind, Open, Tables, Write, Xid};
use super::value::Value;

impl Tables {
    /// The number of writes up to now, for a savepoint.
    pub(super) fn mark(&self, xid: Xid) -> usize {
        self.open.get(&xid).map_or(0, |open| open.writes.len())
    }

    /// Undoes what the transaction has written since this mark.
    pub(super) fn undo(&mut self, xid: Xid, mark: usize) {
        let Some(Open { writes, .. }) = self.open.get_mut(&xid) else { return };
        let writes = writes.split_off(mark.min(writes.len()));
        for Write { table, ctid, kind } in writes.into_iter().rev() {
            let versions = &mut self.all[table].versions;
            match (kind, versions.get_mut(&ctid)) {
                (Kind::Insert, _) => _ = versions.remove(&ctid),
                (Kind::Delete, Some(version)) => version.deleted = None,
                (Kind::Lock, Some(version)) => version.locked = None,
                (_, None) => {}
            }
        }
    }

    pub(super) fn abort(&mut self, xid: Xid) {
        self.undo(xid, 0);
        self.open.remove(&xid);
    }

    pub(super) fn commit(&mut self, xid: Xid) {
        self.commits += 1;
        let at = Instant::now();
        self.committed.insert(xid, Commit { number: self.commits, at });
        for Write { table, ctid, kind } in self.open.remove(&xid).map(|open| open.writes).unwrap_or_default() {
            let Some(version) = self.all[table].versions.get(&ctid) else { continue };
            let (old, new) = match kind {
                Kind::Insert if !version.is_update => (None, self.last(table, ctid)),
                Kind::Delete if version.writer != xid => {
                    let next = version.deleted.and_then(|deletion| deletion.next);
                    (Some(version.row.clone()), next.and_then(|next| self.last(table, next)))
                }
                Kind::Insert | Kind::Delete | Kind::Lock => (None, None),
            };
            if old.is_some() || new.is_some() {
                self.changed.push(Changed { table, xid, at, old, new });
            }
            if kind == Kind::Delete {
                self.dead.push((table, ctid));
            }
        }
        if self.running == 0 {
            for (table, ctid) in std::mem::take(&mut self.dead) {
                self.all[table].versions.remove(&ctid);
            }
        }
    }

    /// The version that has replaced this one in the end, unless it was deleted.
    fn last(&self, table: usize, ctid: Ctid) -> Option<Vec<Value>> {
        let version = self.version(table, ctid)?;
        match version.deleted {
            None => Some(version.row.clone()),
            Some(deletion) => self.last(table, deletion.next?),
        }
    }
}
