//! Operator access to the records: inspect one, remove one, scan all. Messages are processed without this module.
//!
//! Inspecting and scanning send only commands that read, so a Redis user without write access is enough. Leases and
//! ages are computed by Redis's clock, as in the scripts.
//!
//! - `forget`: removes a record that has not changed since it was read
//! - `scan`: reads all records, page by page
//! - `server`: the server's memory and settings
//! - `view`: decodes a record

mod forget;
mod scan;
mod server;
mod view;

use std::error::Error;
use std::time::Duration;

use redis::cluster_routing::{Route, SlotAddr};
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind};

use super::connection::{Connection, is_wrong_type};
use super::{RedisSettings, RedisSettingsError, redis_key};
use crate::idempotency::{Key, StoreError};

pub use forget::{ExpectedRecord, ExpectedState, Force, Forgotten};
pub use scan::{Scan, ScanPage};
pub use server::ServerInfo;
pub use view::{Lease, RecordStateView, RecordView};

/// The records of one namespace. It connects at its first use, and again after a failed command.
///
/// A command takes at most twice [`RedisSettings::timeout`], and longer if a connection has to be opened.
#[derive(Debug)]
pub struct Records {
    namespace: String,
    connection: Connection,
}

/// Outcome of [`Records::inspect`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Inspected {
    /// There is no record: none was written, or it has expired.
    Absent,
    /// The value of the key is not a record.
    NotARecord,
    /// There is a record.
    Record {
        /// The record without its result.
        view: RecordView,
        /// What the work returned, or the location of the object that contains it. Empty if the record is not COMPLETED
        /// or its result was not kept.
        result: Vec<u8>,
        /// Time until the record expires; `None` if it never does.
        ttl: Option<Duration>,
    },
}

/// An operation on [`Records`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordsError {
    /// The Redis user lacks the permission for a command or a key.
    #[error(
        "the Redis user lacks the permission for a command or a key; grant the permissions that docs/records.md lists"
    )]
    NotPermitted(#[source] Box<dyn Error + Send + Sync>),
    /// Redis cannot be reached, rejects the login or the command, or sends an unexpected reply.
    #[error(
        "no usable reply from Redis; check that this machine can reach it (VPN, security group), that REDIS_URL starts \
         with rediss:// if the server requires TLS, and that REDIS_CLUSTER and REDIS_TIMEOUT_MS fit the server"
    )]
    Unavailable(#[source] StoreError),
    /// The server is a node of a cluster, but [`RedisSettings::cluster`] is off. A scan would find only the records of
    /// this node.
    #[error("the server is one node of a cluster, and a scan would find only its records; set REDIS_CLUSTER=true")]
    ClusterRequired,
}

impl Records {
    /// Creates the view of the records with these settings. No connection is opened yet.
    ///
    /// # Errors
    /// [`RedisSettingsError`] if the client library rejects the URL, or if it has sentinels and
    /// [`RedisSettings::cluster`] is set.
    pub fn new(settings: &RedisSettings) -> Result<Self, RedisSettingsError> {
        Ok(Self { namespace: settings.namespace.clone(), connection: Connection::new(settings)? })
    }

    /// The namespace, which is the first part of every Redis key.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The Redis key of the record: `<namespace>:<key>`, with `sha256:…` for a key above 200 bytes.
    #[must_use]
    pub fn redis_key(&self, key: &Key) -> String {
        redis_key(&self.namespace, key)
    }

    /// Reads the record of the key, with its result.
    ///
    /// # Errors
    /// [`RecordsError`].
    ///
    /// ## Cancel safety
    /// It only reads, so dropping the future changes nothing.
    pub async fn inspect(&self, key: &Key) -> Result<Inspected, RecordsError> {
        let key = self.redis_key(key);
        let now = self.now(Route::with_key(&key, SlotAddr::Master)).await?;
        let Ok(record) = self.send_for_string::<Option<Vec<u8>>>(redis::cmd("GET").arg(&key)).await? else {
            return Ok(Inspected::NotARecord);
        };
        let Some(record) = record else { return Ok(Inspected::Absent) };
        let ttl: i64 = self.send(redis::cmd("PTTL").arg(&key)).await?;
        let Some(view) = RecordView::decode(&record, now) else { return Ok(Inspected::NotARecord) };
        // -1: the key does not expire; -2: it has expired since GET.
        let ttl = (ttl != -1).then(|| Duration::from_millis(u64::try_from(ttl).unwrap_or(0)));
        Ok(Inspected::Record { result: view.result_in(&record).to_vec(), view, ttl })
    }

    /// Memory of the record of this key, in bytes, as estimated by `MEMORY USAGE`. `None` if the key does not exist.
    ///
    /// # Errors
    /// [`RecordsError`]. [`RecordsError::NotPermitted`] concerns only this command: others may be permitted.
    ///
    /// ## Cancel safety
    /// It only reads, so dropping the future changes nothing.
    pub async fn memory(&self, key: &Key) -> Result<Option<u64>, RecordsError> {
        self.send(redis::cmd("MEMORY").arg("USAGE").arg(self.redis_key(key))).await
    }

    /// Redis's clock, in µs since 1970, on the node at this route.
    async fn now(&self, route: Route) -> Result<u64, RecordsError> {
        let (seconds, micros): (u64, u64) = self.send_to(Some(route), &redis::cmd("TIME")).await?;
        Ok(seconds * 1_000_000 + micros)
    }

    async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RecordsError> {
        self.send_to(None, command).await
    }

    async fn send_to<T: FromRedisValue>(&self, route: Option<Route>, command: &Cmd) -> Result<T, RecordsError> {
        self.connection.send(route, command).await.map_err(|error| self.records_error(error))
    }

    /// The reply to a command on a string, or an inner error if the value has another type.
    async fn send_for_string<T: FromRedisValue>(&self, command: &Cmd) -> Result<RedisResult<T>, RecordsError> {
        match self.connection.send(None, command).await {
            Err(error) if is_wrong_type(&error) => Ok(Err(error)),
            outcome => outcome.map(Ok).map_err(|error| self.records_error(error)),
        }
    }

    fn records_error(&self, error: RedisError) -> RecordsError {
        if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
            RecordsError::NotPermitted(error.into())
        } else {
            RecordsError::Unavailable(StoreError::unavailable(self.connection.explain(error)))
        }
    }
}

/// Decodes any bytes as a record and as a reply of `forget.lua`, for fuzzing.
pub(super) fn decode(bytes: &[u8]) {
    let _ = RecordView::decode(bytes, 0).map(|view| view.result_in(bytes));
    let _ = Forgotten::decode(bytes);
}
