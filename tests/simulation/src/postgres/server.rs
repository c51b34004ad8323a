//! One server: listens, stops, and has rows. `faults` has what happens to it.

use std::sync::{Arc, Mutex};

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection::Connection;
use super::definitions::{EFFECTS, INBOX};
use super::session;
use super::shared::{Logins, Shared};
use super::tables::{Changed, Xid};
use super::value::Value;
use crate::lock;
use crate::network::{self, Accepted};
use crate::trace::event;

/// A server. Clones share it.
#[derive(Clone)]
pub struct Server {
    name: String,
    pub(super) shared: Arc<Mutex<Shared>>,
}

/// A committed row of the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    pub namespace: String,
    pub key: String,
    pub fingerprint: Vec<u8>,
    pub fence: i64,
    pub attempts: i64,
    pub result: Option<Vec<u8>>,
    /// µs since 1970, or `i64::MAX` for `infinity`.
    pub done_at_us: i64,
}

/// A committed effect of a work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub id: i64,
    pub consumer: Option<String>,
    pub key: Option<String>,
    pub fence: Option<i64>,
    pub payload: Option<String>,
}

/// A row, and the transaction that has written this version of it.
#[derive(Clone, Debug)]
pub struct Committed<T> {
    pub row: T,
    pub transaction: Xid,
    pub at: Instant,
}

/// A committed change of a row of the inbox. An insert has no old row, and a delete has no new one.
#[derive(Clone, Debug)]
pub struct Change {
    pub old: Option<InboxRow>,
    pub new: Option<InboxRow>,
    pub transaction: Xid,
    pub at: Instant,
}

impl Server {
    /// Starts a server with this name, which accepts each login.
    pub fn start(name: &str) -> Self {
        let server = Self { name: name.to_owned(), shared: Arc::new(Mutex::new(Shared::new())) };
        server.listen();
        server
    }

    /// Sets the version, which users and passwords are accepted, and how many sessions there may be.
    pub fn configure(
        &self,
        version: &str,
        logins: Option<impl Fn(&str, &str) -> bool + Send + Sync + 'static>,
        max_connections: usize,
    ) {
        let mut shared = lock(&self.shared);
        version.clone_into(&mut shared.version);
        shared.logins = logins.map(|accepts| Arc::new(accepts) as Logins);
        shared.max_connections = max_connections;
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Accepts connections from now on, as after [`stop`](Self::stop).
    pub fn listen(&self) {
        let (server, mut streams) = (self.clone(), network::listen(&self.name));
        event(|| format!("{} listens", self.name));
        tokio::spawn(async move {
            while let Some(Accepted { client, stream }) = streams.recv().await {
                let task = tokio::spawn(session::serve(server.clone(), client, Connection::new(Some(stream))));
                lock(&server.shared).tasks.push(task.abort_handle());
                lock(&server.shared).tasks.retain(|task| !task.is_finished());
            }
        });
    }

    /// Crashes: all sessions end, and their transactions are rolled back. Connections are refused until it listens
    /// again.
    pub fn stop(&self) {
        event(|| format!("FAULT {} crashes", self.name));
        network::stop(&self.name);
        let mut shared = lock(&self.shared);
        shared.crash = None;
        shared.tasks.drain(..).for_each(|task: AbortHandle| task.abort());
        let open: Vec<_> = shared.tables.open_transactions().map(|(xid, _)| xid).collect();
        for xid in open {
            shared.tables.abort(xid);
        }
        shared.sessions.clear();
        shared.waits.clear();
        shared.tables.running = 0;
        shared.ended.notify_waiters();
    }

    /// The committed rows of the inbox.
    pub fn rows(&self) -> Vec<Committed<InboxRow>> {
        self.committed(INBOX, inbox_row)
    }

    /// The committed effects, in the order of their ids.
    pub fn effects(&self) -> Vec<Committed<Effect>> {
        self.committed(EFFECTS, |row| Effect {
            id: int(&row[0]),
            consumer: text(&row[1]),
            key: text(&row[2]),
            fence: (!row[3].is_null()).then(|| int(&row[3])),
            payload: text(&row[4]),
        })
    }

    /// All committed changes of the inbox.
    pub fn changes(&self) -> Vec<Change> {
        let shared = lock(&self.shared);
        let of_inbox = shared.tables.changed.iter().filter(|change| change.table == INBOX);
        let change = |Changed { xid, at, old, new, .. }: &Changed| Change {
            old: old.as_deref().map(inbox_row),
            new: new.as_deref().map(inbox_row),
            transaction: *xid,
            at: *at,
        };
        of_inbox.map(change).collect()
    }

    /// How many transactions that have written something are open.
    pub fn open_transactions(&self) -> usize {
        lock(&self.shared).tables.open_transactions().count()
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        lock(&self.shared).sessions.len()
    }

    fn committed<T>(&self, table: usize, row: impl Fn(&[Value]) -> T) -> Vec<Committed<T>> {
        let shared = lock(&self.shared);
        let visible = shared.tables.visible(table, shared.tables.snapshot(None, 0));
        let committed = visible.filter_map(|(_, version)| {
            let at = shared.tables.committed.get(&version.writer)?.at;
            Some(Committed { row: row(&version.row), transaction: version.writer, at })
        });
        committed.collect()
    }
}

fn inbox_row(row: &[Value]) -> InboxRow {
    InboxRow {
        namespace: text(&row[0]).unwrap_or_default(),
        key: text(&row[1]).unwrap_or_default(),
        fingerprint: bytes(&row[2]).unwrap_or_default(),
        fence: int(&row[3]),
        attempts: int(&row[4]),
        result: bytes(&row[5]),
        done_at_us: int(&row[6]),
    }
}

fn text(value: &Value) -> Option<String> {
    if let Value::Text(text) = value { Some(text.clone()) } else { None }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    if let Value::Bytea(bytes) = value { Some(bytes.clone()) } else { None }
}

fn int(value: &Value) -> i64 {
    if let Value::Int(number) | Value::Time(number) = value { *number } else { 0 }
}
