//! What an operator sees of the records, and does to them: look at one, forget one, look through
//! them all. Nothing here is on a message's way.
//!
//! A look only reads, by plain commands, so a user who may not write can have it. Redis's clock
//! judges leases and ages, as it does for the scripts.

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

pub use forget::{EvenInWork, Forgotten, Seen, SeenState};
pub use scan::{Page, Scan};
pub use server::Server;
pub use view::{Lease, Standing, View};

/// The records of one namespace. It connects at its first use.
#[derive(Debug)]
pub struct Records {
    namespace: String,
    connection: Connection,
}

/// What is under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// Nothing: there was none, or its life has ended.
    Absent,
    /// A value that is not a record.
    NotARecord,
    /// A record.
    Record {
        /// All of it but its result.
        view: View,
        /// What the work returned. Empty unless COMPLETED, and where the result was not kept.
        result: Vec<u8>,
        /// How long Redis keeps the record yet; `None` where that has no end.
        life: Option<Duration>,
    },
}

/// Why an operator got no answer.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The Redis user lacks the right to a command or a key.
    #[error("the Redis user may not do this; docs/records.md lists the rights that an operator needs")]
    NotPermitted(#[source] Box<dyn Error + Send + Sync>),
    /// Redis is out of reach, refuses, or answers in a way nobody understands.
    #[error(
        "Redis gave no answer: see that this machine reaches it (VPN, security group), that REDIS_URL says rediss:// \
         where it wants TLS, and that REDIS_CLUSTER and REDIS_TIMEOUT_MS suit it"
    )]
    Unavailable(#[source] StoreError),
    /// Without the cluster protocol only the records of one node would be seen.
    #[error("the server is one node of a cluster; set REDIS_CLUSTER=true, to look through all of them")]
    OneOfMany,
}

impl Records {
    /// The records of these settings. Nothing is connected yet.
    ///
    /// # Errors
    /// [`RedisSettingsError`] if the client library rejects the URL.
    pub fn new(settings: &RedisSettings) -> Result<Self, RedisSettingsError> {
        Ok(Self { namespace: settings.namespace.clone(), connection: Connection::new(settings)? })
    }

    /// The first part of every Redis key.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Where in Redis the record of this key is.
    #[must_use]
    pub fn redis_key(&self, key: &Key) -> String {
        redis_key(&self.namespace, key)
    }

    /// What is under the key now.
    ///
    /// # Errors
    /// [`RecordsError`], with nothing changed.
    ///
    /// ## Cancel safety
    /// It only reads.
    pub async fn inspect(&self, key: &Key) -> Result<Inspected, RecordsError> {
        let key = self.redis_key(key);
        let now = self.now(Route::with_key(&key, SlotAddr::Master)).await?;
        let Ok(record) = self.ask_string::<Option<Vec<u8>>>(redis::cmd("GET").arg(&key)).await? else {
            return Ok(Inspected::NotARecord);
        };
        let Some(record) = record else { return Ok(Inspected::Absent) };
        let life: i64 = self.ask(redis::cmd("PTTL").arg(&key)).await?;
        let Some(view) = View::of(&record, now) else { return Ok(Inspected::NotARecord) };
        // -1: no end; -2: it has ended since.
        let life = (life != -1).then(|| Duration::from_millis(u64::try_from(life).unwrap_or(0)));
        Ok(Inspected::Record { result: view.result_in(&record).to_vec(), view, life })
    }

    /// The memory that the record of this key takes, in bytes, as Redis estimates it. `None` where it
    /// is gone.
    ///
    /// # Errors
    /// [`RecordsError`]; [`RecordsError::NotPermitted`] says nothing of other commands.
    pub async fn memory(&self, key: &Key) -> Result<Option<u64>, RecordsError> {
        self.ask(redis::cmd("MEMORY").arg("USAGE").arg(self.redis_key(key))).await
    }

    /// Redis's clock, in µs, on the node that keeps this slot.
    async fn now(&self, at: Route) -> Result<u64, RecordsError> {
        let (seconds, micros): (u64, u64) = self.ask_at(Some(at), &redis::cmd("TIME")).await?;
        Ok(seconds * 1_000_000 + micros)
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RecordsError> {
        self.ask_at(None, command).await
    }

    async fn ask_at<T: FromRedisValue>(&self, at: Option<Route>, command: &Cmd) -> Result<T, RecordsError> {
        self.connection.send(at, command).await.map_err(|error| self.explained(error))
    }

    /// The reply about a key's string; its error where the value is no string.
    async fn ask_string<T: FromRedisValue>(&self, command: &Cmd) -> Result<RedisResult<T>, RecordsError> {
        match self.connection.send(None, command).await {
            Err(error) if is_wrong_type(&error) => Ok(Err(error)),
            outcome => outcome.map(Ok).map_err(|error| self.explained(error)),
        }
    }

    fn explained(&self, error: RedisError) -> RecordsError {
        if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
            RecordsError::NotPermitted(error.into())
        } else {
            RecordsError::Unavailable(StoreError::unavailable(self.connection.explain(error)))
        }
    }
}

/// Read any bytes as a record and as an answer.
pub(super) fn decode(bytes: &[u8]) {
    let _ = View::of(bytes, 0).map(|view| view.result_in(bytes));
    let _ = Forgotten::of(bytes);
}
