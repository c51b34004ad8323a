//! The open transaction of a session.

use super::settings::Settings;
use super::tables::{Tables, Writer, Xid};

/// A transaction, which has an id as soon as it writes.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) pid: i64,
    pub(super) xid: Option<Xid>,
    /// The number of statements up to now.
    pub(super) command: u32,
    /// When it began, µs since 1970.
    pub(super) began_us: i64,
    pub(super) is_read_only: bool,
    savepoints: Vec<Savepoint>,
    /// The settings before it.
    pub(super) settings: Settings,
}

#[derive(Debug)]
struct Savepoint {
    name: String,
    /// The number of writes before it.
    mark: usize,
    /// Of the rows that are written after it.
    xmin: Option<Xid>,
    settings: Settings,
}

impl Transaction {
    pub(super) fn begin(pid: i64, began_us: i64, is_read_only: bool, settings: Settings) -> Self {
        Self { pid, xid: None, command: 0, began_us, is_read_only, savepoints: Vec::new(), settings }
    }

    /// Its id, which it gets now if it has none.
    pub(super) fn xid(&mut self, tables: &mut Tables) -> Xid {
        *self.xid.get_or_insert_with(|| tables.begin(self.pid))
    }

    pub(super) fn writer(&mut self, tables: &mut Tables) -> Writer {
        let xid = self.xid(tables);
        // Each part since a savepoint has an id of its own.
        let mut xmin = xid;
        for savepoint in &mut self.savepoints {
            xmin = *savepoint.xmin.get_or_insert_with(|| tables.next_xid());
        }
        Writer { xid, xmin, command: self.command }
    }

    /// A statement has failed: what was done since the last savepoint, or all of it, is undone. Returns the settings
    /// before that.
    pub(super) fn fail(&mut self, tables: &mut Tables) -> Settings {
        if let Some(Savepoint { mark, settings, .. }) = self.savepoints.last() {
            if let Some(xid) = self.xid {
                tables.undo(xid, *mark);
            }
            return settings.clone();
        }
        if let Some(xid) = self.xid.take() {
            tables.abort(xid);
        }
        self.settings.clone()
    }

    pub(super) fn savepoint(&mut self, name: String, tables: &Tables, settings: Settings) {
        let mark = self.xid.map_or(0, |xid| tables.mark(xid));
        self.savepoints.push(Savepoint { name, mark, xmin: None, settings });
    }

    /// Undoes what was done after the savepoint. Returns the settings before it. `None` if there is none.
    pub(super) fn roll_back_to(&mut self, name: &str, tables: &mut Tables) -> Option<Settings> {
        let at = self.savepoints.iter().rposition(|savepoint| savepoint.name == name)?;
        self.savepoints.truncate(at + 1);
        let savepoint = self.savepoints.last_mut()?;
        savepoint.xmin = None;
        if let Some(xid) = self.xid {
            tables.undo(xid, savepoint.mark);
        }
        Some(savepoint.settings.clone())
    }

    /// Returns whether there was one.
    pub(super) fn release(&mut self, name: &str) -> bool {
        let at = self.savepoints.iter().rposition(|savepoint| savepoint.name == name);
        if let Some(at) = at {
            self.savepoints.truncate(at);
        }
        at.is_some()
    }
}
