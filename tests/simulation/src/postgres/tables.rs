//! Versions of rows, and the transactions that have written them.
//!
//! As in PostgreSQL, an update deletes a version of a row and inserts another one, and a statement sees the versions of
//! transactions that committed before it began.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::definitions::{Definition, TABLES};
use super::value::Value;

/// A transaction that writes.
pub type Xid = u64;

/// Where a version is in its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ctid {
    pub(super) partition: usize,
    /// Its place in the partition. Other partitions have the same places.
    pub(super) place: u64,
}

pub(super) struct Table {
    pub(super) definition: &'static Definition,
    pub(super) versions: BTreeMap<Ctid, Version>,
    partitions: usize,
    /// The next place, if there is one partition.
    next: u64,
    serial: i64,
}

impl Table {
    /// Where the next version of this row will be. The primary key decides which partition that is.
    pub(super) fn next_ctid(&self, row: &[Value]) -> Ctid {
        let key = self.definition.key.iter().map(|column| row[*column].to_text());
        let hash = key.flat_map(String::into_bytes).map(usize::from).sum::<usize>();
        let partition = hash % self.partitions;
        let place = if self.partitions == 1 { self.next } else { self.first_free_place(partition) };
        Ctid { partition, place }
    }

    /// As after a vacuum, so that partitions often have rows with the same places.
    fn first_free_place(&self, partition: usize) -> u64 {
        let used = self.versions.range(Ctid { partition, place: 0 }..).map(|(ctid, _)| *ctid);
        let expected = (0..).map(|place| Ctid { partition, place });
        expected.zip(used).take_while(|(expected, used)| expected == used).count() as u64
    }
}

#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) row: Vec<Value>,
    pub(super) writer: Xid,
    /// Its `xmin`: the writer, or the part of it since a savepoint.
    pub(super) xmin: Xid,
    /// The command of the writer.
    command: u32,
    /// Whether it replaces another version.
    pub(super) is_update: bool,
    pub(super) deleted: Option<Deletion>,
    pub(super) locked: Option<Xid>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Deletion {
    by: Xid,
    command: u32,
    /// The version that replaces it.
    pub(super) next: Option<Ctid>,
}

/// Which versions a statement sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) commits: u64,
    pub(super) me: Option<Xid>,
    pub(super) command: u32,
}

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub(super) xid: Xid,
    pub(super) xmin: Xid,
    pub(super) command: u32,
}

/// A change of an open transaction, to undo it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) table: usize,
    pub(super) ctid: Ctid,
    pub(super) kind: Kind,
}

/// An open transaction of a session, and what it has written.
pub(super) struct Open {
    pid: i64,
    pub(super) writes: Vec<Write>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Delete,
    Lock,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Commit {
    pub(super) number: u64,
    pub(super) at: Instant,
}

/// Whether a transaction can change or lock a version.
pub(super) enum Target {
    Free,
    /// This transaction holds it.
    Busy(Xid),
    Deleted,
    Updated(Ctid),
}

/// A row with the same key.
pub(super) enum Conflict {
    None,
    /// Whether there is one depends on this transaction.
    Open(Xid),
    Row(Ctid),
}

/// A committed change of a row.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) table: usize,
    pub(super) xid: Xid,
    pub(super) at: Instant,
    pub(super) old: Option<Vec<Value>>,
    pub(super) new: Option<Vec<Value>>,
}

pub(super) struct Tables {
    pub(super) all: Vec<Table>,
    pub(super) open: BTreeMap<Xid, Open>,
    pub(super) committed: BTreeMap<Xid, Commit>,
    pub(super) changed: Vec<Changed>,
    next_xid: Xid,
    pub(super) commits: u64,
    /// Versions that no later statement sees.
    pub(super) dead: Vec<(usize, Ctid)>,
    /// Number of statements that may still see them.
    pub(super) running: u32,
}

impl Default for Tables {
    fn default() -> Self {
        let table = |definition| Table { definition, versions: BTreeMap::new(), partitions: 1, next: 0, serial: 0 };
        Self {
            all: TABLES.iter().map(table).collect(),
            open: BTreeMap::new(),
            committed: BTreeMap::new(),
            changed: Vec::new(),
            next_xid: 750,
            commits: 0,
            dead: Vec::new(),
            running: 0,
        }
    }
}

impl Tables {
    /// Divides a table, which has no rows yet, into this number of partitions.
    pub(super) fn partition(&mut self, table: usize, partitions: usize) {
        self.all[table].partitions = partitions;
    }

    pub(super) fn snapshot(&self, me: Option<Xid>, command: u32) -> Snapshot {
        Snapshot { commits: self.commits, me, command }
    }

    pub(super) fn begin(&mut self, pid: i64) -> Xid {
        let xid = self.next_xid();
        self.open.insert(xid, Open { pid, writes: Vec::new() });
        xid
    }

    pub(super) fn next_xid(&mut self) -> Xid {
        self.next_xid += 1;
        self.next_xid
    }

    pub(super) fn is_open(&self, xid: Xid) -> bool {
        self.open.contains_key(&xid)
    }

    /// The open transactions that write, and their sessions.
    pub(super) fn open_transactions(&self) -> impl Iterator<Item = (Xid, i64)> {
        self.open.iter().map(|(xid, open)| (*xid, open.pid))
    }

    /// The versions that this statement sees.
    pub(super) fn visible(&self, table: usize, snapshot: Snapshot) -> impl Iterator<Item = (Ctid, &Version)> {
        let versions = self.all[table].versions.iter().map(|(ctid, version)| (*ctid, version));
        versions.filter(move |(_, version)| self.sees(version, snapshot))
    }

    fn sees(&self, version: &Version, snapshot: Snapshot) -> bool {
        let is_past = |xid, command| {
            if Some(xid) == snapshot.me {
                command < snapshot.command
            } else {
                self.committed.get(&xid).is_some_and(|commit| commit.number <= snapshot.commits)
            }
        };
        is_past(version.writer, version.command)
            && !version.deleted.is_some_and(|deletion| is_past(deletion.by, deletion.command))
    }

    pub(super) fn version(&self, table: usize, ctid: Ctid) -> Option<&Version> {
        self.all[table].versions.get(&ctid)
    }

    /// Whether this command of the writer has written the version.
    pub(super) fn is_of_command(version: &Version, writer: Writer) -> bool {
        version.writer == writer.xid && version.command >= writer.command
    }

    pub(super) fn target(&self, table: usize, ctid: Ctid, me: Option<Xid>) -> Target {
        let Some(version) = self.version(table, ctid) else { return Target::Deleted };
        let is_other = |xid: Xid| Some(xid) != me && self.is_open(xid);
        match (version.deleted, version.locked) {
            (Some(deletion), _) if is_other(deletion.by) => Target::Busy(deletion.by),
            (Some(Deletion { next: Some(next), by, .. }), _) if Some(by) != me => Target::Updated(next),
            (Some(_), _) => Target::Deleted,
            (None, Some(by)) if is_other(by) => Target::Busy(by),
            (None, _) => Target::Free,
        }
    }

    /// The row whose primary key is that of this row, committed or not.
    pub(super) fn conflict(&self, table: usize, row: &[Value], me: Option<Xid>) -> Conflict {
        let Table { definition, versions, .. } = &self.all[table];
        if definition.key.is_empty() {
            return Conflict::None;
        }
        let is_other = |xid: Xid| Some(xid) != me && self.is_open(xid);
        for (ctid, version) in versions {
            if definition.key.iter().any(|column| version.row[*column] != row[*column]) {
                continue;
            }
            match version.deleted {
                _ if is_other(version.writer) => return Conflict::Open(version.writer),
                None => return Conflict::Row(*ctid),
                Some(deletion) if is_other(deletion.by) => return Conflict::Open(deletion.by),
                Some(_) => {}
            }
        }
        Conflict::None
    }

    pub(super) fn next_serial(&mut self, table: usize) -> i64 {
        self.all[table].serial += 1;
        self.all[table].serial
    }

    pub(super) fn insert(&mut self, table: usize, row: Vec<Value>, writer: Writer) -> Ctid {
        self.write(table, row, writer, false)
    }

    fn write(&mut self, table: usize, row: Vec<Value>, writer: Writer, is_update: bool) -> Ctid {
        let Writer { xid, xmin, command } = writer;
        let ctid = self.all[table].next_ctid(&row);
        self.all[table].next += 1;
        let version = Version { row, writer: xid, xmin, command, is_update, deleted: None, locked: None };
        self.all[table].versions.insert(ctid, version);
        self.record(xid, table, ctid, Kind::Insert);
        ctid
    }

    pub(super) fn update(&mut self, table: usize, ctid: Ctid, row: Vec<Value>, writer: Writer) -> Ctid {
        let next = self.write(table, row, writer, true);
        self.end(table, ctid, writer, Some(next));
        next
    }

    pub(super) fn delete(&mut self, table: usize, ctid: Ctid, writer: Writer) {
        self.end(table, ctid, writer, None);
    }

    fn end(&mut self, table: usize, ctid: Ctid, Writer { xid: by, command, .. }: Writer, next: Option<Ctid>) {
        if let Some(version) = self.all[table].versions.get_mut(&ctid) {
            version.deleted = Some(Deletion { by, command, next });
            self.record(by, table, ctid, Kind::Delete);
        }
    }

    pub(super) fn lock(&mut self, table: usize, ctid: Ctid, by: Xid) {
        if let Some(version) = self.all[table].versions.get_mut(&ctid)
            && version.locked != Some(by)
        {
            version.locked = Some(by);
            self.record(by, table, ctid, Kind::Lock);
        }
    }

    fn record(&mut self, xid: Xid, table: usize, ctid: Ctid, kind: Kind) {
        if let Some(open) = self.open.get_mut(&xid) {
            open.writes.push(Write { table, ctid, kind });
        }
    }
}
