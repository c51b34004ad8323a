//! One server: listens, stops, and has rows. `faults` has what happens to it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection::Connection;
use super::definitions::{EFFECTS, FAILURES, INBOX};
use super::session;
use super::shared::{Logins, Opened, SessionState, Shared};
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
    pub attempts: i16,
    pub result: Option<Vec<u8>>,
    pub done_at: Instant,
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

/// What is seen of a session from outside.
#[derive(Clone, Debug)]
pub struct SessionSeen {
    pub user: String,
    pub opened: Instant,
    /// A setting of the work, empty if it is not set.
    pub tenant: String,
    pub time_zone: String,
    /// Number of statements that were prepared by SQL.
    pub prepared_by_sql: usize,
    pub advisory_locks: usize,
    pub lock_timeout: Duration,
    pub statement_timeout: Duration,
    pub idle_timeout: Duration,
    pub check_interval: Duration,
    /// `None` if the server has no such setting.
    pub transaction_timeout: Option<Duration>,
}

impl Server {
    /// Starts a server with this name, which accepts each login.
    pub fn start(name: &str) -> Self {
        let server = Self { name: name.to_owned(), shared: Arc::new(Mutex::new(Shared::new())) };
        server.listen_at(name);
        server
    }

    /// Accepts connections also under this name of its host.
    pub fn listen_at(&self, host: &str) {
        lock(&self.shared).hosts.push(host.to_owned());
        self.accept(host);
    }

    /// Divides the inbox, which has no rows yet, into this number of partitions.
    pub fn partition_inbox(&self, partitions: usize) {
        lock(&self.shared).tables.partition(INBOX, partitions);
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
        event(|| format!("{} listens", self.name));
        let hosts = {
            let mut shared = lock(&self.shared);
            if let Some(stopped) = shared.stopped.take() {
                shared.outages.push((stopped, Instant::now()));
            }
            shared.hosts.clone()
        };
        for host in &hosts {
            self.accept(host);
        }
    }

    fn accept(&self, host: &str) {
        let (server, host, mut streams) = (self.clone(), host.to_owned(), network::listen(host));
        tokio::spawn(async move {
            while let Some(Accepted { client, stream }) = streams.recv().await {
                let session = session::serve(server.clone(), host.clone(), client, Connection::new(Some(stream)));
                let task = tokio::spawn(session);
                lock(&server.shared).tasks.push(task.abort_handle());
                lock(&server.shared).tasks.retain(|task| !task.is_finished());
            }
        });
    }

    /// Crashes: all sessions end, and their transactions are rolled back. Connections are refused until it listens
    /// again.
    pub fn stop(&self) {
        event(|| format!("FAULT {} crashes", self.name));
        let mut shared = lock(&self.shared);
        shared.hosts.iter().for_each(|host| network::stop(host));
        shared.stopped.get_or_insert_with(Instant::now);
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
        self.committed(EFFECTS, |_, row| effect(row))
    }

    /// The committed failures, in the order of their ids.
    pub fn failures(&self) -> Vec<Committed<Effect>> {
        self.committed(FAILURES, |_, row| effect(row))
    }

    /// All committed changes of the inbox.
    pub fn changes(&self) -> Vec<Change> {
        let shared = lock(&self.shared);
        let of_inbox = shared.tables.changed.iter().filter(|change| change.table == INBOX);
        let change = |Changed { xid, at, old, new, .. }: &Changed| Change {
            old: old.as_deref().map(|row| inbox_row(&shared, row)),
            new: new.as_deref().map(|row| inbox_row(&shared, row)),
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

    /// All sessions that were opened.
    pub fn opened(&self) -> Vec<Opened> {
        lock(&self.shared).opened.clone()
    }

    /// From when until when it was down, or ended all sessions.
    pub fn outages(&self) -> Vec<(Instant, Instant)> {
        lock(&self.shared).outages.clone()
    }

    /// The session with this process id, which is executing a statement.
    pub fn session(&self, pid: i32) -> Option<SessionSeen> {
        let shared = lock(&self.shared);
        let SessionState { user, opened, settings, prepared_by_sql, advisory_locks, .. } =
            shared.sessions.get(&pid.into())?;
        let timeout = |name| settings.timeout(name).unwrap_or_default();
        Some(SessionSeen {
            user: user.clone(),
            opened: *opened,
            tenant: settings.get("app.tenant").unwrap_or_default().to_owned(),
            time_zone: settings.get("timezone").unwrap_or_default().to_owned(),
            prepared_by_sql: *prepared_by_sql,
            advisory_locks: *advisory_locks,
            lock_timeout: timeout("lock_timeout"),
            statement_timeout: timeout("statement_timeout"),
            idle_timeout: timeout("idle_in_transaction_session_timeout"),
            check_interval: timeout("client_connection_check_interval"),
            transaction_timeout: settings.get("transaction_timeout").map(|_| timeout("transaction_timeout")),
        })
    }

    fn committed<T>(&self, table: usize, row: impl Fn(&Shared, &[Value]) -> T) -> Vec<Committed<T>> {
        let shared = lock(&self.shared);
        let visible = shared.tables.visible(table, shared.tables.snapshot(None, 0));
        let committed = visible.filter_map(|(_, version)| {
            let at = shared.tables.committed.get(&version.writer)?.at;
            Some(Committed { row: row(&shared, &version.row), transaction: version.writer, at })
        });
        committed.collect()
    }
}

fn effect(row: &[Value]) -> Effect {
    Effect {
        id: int(&row[0]),
        consumer: text(&row[1]),
        key: text(&row[2]),
        fence: (!row[3].is_null()).then(|| int(&row[3])),
        payload: text(&row[4]),
    }
}

fn inbox_row(shared: &Shared, row: &[Value]) -> InboxRow {
    InboxRow {
        namespace: text(&row[0]).unwrap_or_default(),
        key: text(&row[1]).unwrap_or_default(),
        fingerprint: bytes(&row[2]).unwrap_or_default(),
        fence: int(&row[3]),
        attempts: i16::try_from(int(&row[4])).unwrap_or_default(),
        result: bytes(&row[5]),
        done_at: shared.instant(int(&row[6])),
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
