//! What the sessions of a server share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::locks::Wait;
use super::settings::Settings;
use super::tables::{Tables, Xid};
use super::value::Value;

/// Whether the server accepts this user and password.
pub(super) type Logins = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

pub(super) struct Shared {
    pub(super) tables: Tables,
    /// By their process ids.
    pub(super) sessions: BTreeMap<i64, SessionState>,
    /// By the process ids of the sessions that wait.
    pub(super) waits: BTreeMap<i64, Wait>,
    /// A transaction has ended, or has given up locks.
    pub(super) ended: Arc<Notify>,
    pub(super) version: String,
    pub(super) logins: Option<Logins>,
    pub(super) max_connections: usize,
    pub(super) is_read_only: bool,
    /// Whether clients reach it through a pooler.
    pub(super) is_pooled: bool,
    /// Statements that clients have executed through a pooler a second time without preparing them again.
    pub(super) kept: Vec<String>,
    /// The names of its host.
    pub(super) hosts: Vec<String>,
    /// Statements that fail or hang.
    pub(super) failures: Vec<Failure>,
    /// The server crashes at the next commit of a session of this host: before it takes effect, or after.
    pub(super) crash: Option<(String, Crash)>,
    pub(super) tasks: Vec<AbortHandle>,
    pub(super) opened: Vec<Opened>,
    /// From when until when it was down, or ended all sessions.
    pub(super) outages: Vec<(Instant, Instant)>,
    pub(super) stopped: Option<Instant>,
    last_pid: i64,
    began: (Instant, i64),
}

/// The next statement of a session of this host that begins so fails or hangs.
pub(super) struct Failure {
    pub(super) host: String,
    pub(super) statement: &'static str,
    /// `None` if the statement does not end by itself.
    pub(super) sqlstate: Option<&'static str>,
}

/// A session that was opened.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The name of the server to which the client has connected.
    pub host: String,
    pub at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    BeforeCommit,
    AfterCommit,
}

/// A session, as `pg_stat_activity` shows it.
pub(super) struct SessionState {
    pub(super) user: String,
    pub(super) database: String,
    pub(super) application: String,
    pub(super) transaction_us: Option<i64>,
    pub(super) query: String,
    pub(super) is_running: bool,
    pub(super) opened: Instant,
    pub(super) settings: Settings,
    /// Number of statements that were prepared by SQL.
    pub(super) prepared_by_sql: usize,
    pub(super) advisory_locks: usize,
    pub(super) signals: Arc<Signals>,
}

/// What an operator wants of a session.
#[derive(Default)]
pub(super) struct Signals {
    pub(super) end: Notify,
    pub(super) cancel: Notify,
}

/// For how long a transaction may not be in `pg_stat_activity` yet, µs.
const UNLISTED_US: i64 = 300_000;

/// Longer than any run.
const FOREVER: Duration = Duration::from_hours(1_000_000);

impl Shared {
    pub(super) fn new() -> Self {
        let us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        Self {
            tables: Tables::default(),
            sessions: BTreeMap::new(),
            waits: BTreeMap::new(),
            ended: Arc::default(),
            version: "15.18 (Debian 15.18-0+deb12u1)".to_owned(),
            logins: None,
            max_connections: 100,
            is_read_only: false,
            is_pooled: false,
            kept: Vec::new(),
            hosts: Vec::new(),
            failures: Vec::new(),
            crash: None,
            tasks: Vec::new(),
            opened: Vec::new(),
            outages: Vec::new(),
            stopped: None,
            last_pid: 1000,
            began: (Instant::now(), i64::try_from(us).unwrap_or_default()),
        }
    }

    /// µs since 1970, by the clock of tokio.
    pub(super) fn now_us(&self) -> i64 {
        let (began, us) = self.began;
        us + i64::try_from(began.elapsed().as_micros()).unwrap_or_default()
    }

    /// The time of the clock of tokio for one of [`now_us`](Self::now_us).
    pub(super) fn instant(&self, us: i64) -> Instant {
        let (began, began_us) = self.began;
        let since = Duration::from_micros(us.abs_diff(began_us));
        if us < began_us { began.checked_sub(since).unwrap_or(began) } else { began + since.min(FOREVER) }
    }

    pub(super) fn next_pid(&mut self) -> i64 {
        self.last_pid += 1;
        self.last_pid
    }

    /// The rows of `pg_stat_activity`, with the columns of `ACTIVITY`. A transaction has its time when its first statement
    /// arrives, and is listed later.
    pub(super) fn activity(&self) -> Vec<Vec<Value>> {
        let listed_until = self.now_us() - UNLISTED_US;
        let number = |xid: Xid| Value::Int(i64::try_from(xid).unwrap_or_default());
        let oldest = self.tables.open_transactions().map(|(xid, _)| xid).min();
        let row = |(pid, session): (&i64, &SessionState)| {
            let began = session.transaction_us.filter(|us| *us <= listed_until);
            let own = |(xid, by)| (by == *pid && began.is_some()).then_some(xid);
            let xid = self.tables.open_transactions().find_map(own);
            let state = match (session.is_running, session.transaction_us) {
                (true, _) => "active",
                (false, Some(_)) => "idle in transaction",
                (false, None) => "idle",
            };
            vec![
                Value::text(&session.database),
                Value::Int(*pid),
                Value::Int(10),
                Value::text(&session.user),
                Value::text(&session.application),
                began.map_or(Value::Null, Value::Time),
                Value::text(state),
                xid.map_or(Value::Null, number),
                oldest.filter(|_| session.is_running && began.is_some()).map_or(Value::Null, number),
                Value::text(&session.query),
                Value::text("client backend"),
            ]
        };
        self.sessions.iter().map(row).collect()
    }
}
