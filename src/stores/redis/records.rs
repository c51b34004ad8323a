//! What an operator sees of the records, and does to them: look at one, forget one, look through
//! them all. Nothing here is on a message's way.
//!
//! A look only reads, by plain commands, so a user who may not write can have it. Redis's clock
//! judges leases and ages, as it does for the scripts.

mod scan;
mod server;
mod view;

use std::error::Error;
use std::time::Duration;

use redis::cluster_routing::{Route, SlotAddr};
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind};

use super::connection::{Connection, is_wrong_type};
use super::scripts::{self, FOREIGN, Head};
use super::{RedisSettings, redis_key};
use crate::record::{Fence, Key};
use crate::store::StoreError;

pub use scan::{Page, Scan};
pub use server::Server;
pub use view::{Lease, Standing, View};

const FORGET: &str = include_str!("../../../lua/forget.lua");

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
    Foreign,
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

/// Whether a record may be forgotten while its owner is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvenInWork {
    /// It may: its work can then run twice at once.
    Yes,
    /// It may not, until its lease has ended.
    No,
}

/// Outcome of a forget. Only the first has changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// The record is removed.
    Removed,
    /// There is no record, or no longer.
    Absent,
    /// The record is another one than was seen.
    Changed {
        /// Its fence.
        fence: Fence,
    },
    /// Its owner is at work.
    Held {
        /// How long their lease lasts.
        lease_remains: Duration,
    },
    /// The value under the key is not a record.
    Foreign,
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
    /// A sentence on what is wrong with the settings, without the URL.
    pub fn new(settings: &RedisSettings) -> Result<Self, String> {
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
            return Ok(Inspected::Foreign);
        };
        let Some(record) = record else { return Ok(Inspected::Absent) };
        let life: i64 = self.ask(redis::cmd("PTTL").arg(&key)).await?;
        let Some(view) = View::of(&record, now) else { return Ok(Inspected::Foreign) };
        // -1: no end; -2: it has ended since.
        let life = (life != -1).then(|| Duration::from_millis(u64::try_from(life).unwrap_or(0)));
        Ok(Inspected::Record { result: view.result_in(&record).to_vec(), view, life })
    }

    /// Remove the record of this key, if it still has the fence that was seen: a newer one stays.
    ///
    /// The next delivery of the key then runs its work. An owner who is still at work settles the
    /// record again, as if it had been lost.
    ///
    /// # Errors
    /// [`RecordsError`], with the outcome unknown where Redis is unavailable. Asking again finds out,
    /// and then [`Forgotten::Absent`] may be this very call's doing.
    ///
    /// ## Cancel safety
    /// A dropped future leaves the outcome unknown.
    pub async fn forget(&self, key: &Key, seen: Fence, even: EvenInWork) -> Result<Forgotten, RecordsError> {
        let even_in_work = match even {
            EvenInWork::Yes => 1,
            EvenInWork::No => 0,
        };
        let mut command = redis::cmd("EVAL");
        command.arg(FORGET).arg(1).arg(self.redis_key(key)).arg(even_in_work).arg(&seen.0.to_be_bytes());
        let answers: Vec<Vec<u8>> = self.ask(&command).await?;
        forgotten(answers.first().map_or(&[], Vec::as_slice))
            .ok_or_else(|| self.explained(RedisError::from((ErrorKind::Client, "unexpected reply"))))
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
        self.connection.ask(at, command).await.map_err(|error| self.explained(error))
    }

    /// The reply about a key's string; its error where the value is no string.
    async fn ask_string<T: FromRedisValue>(&self, command: &Cmd) -> Result<RedisResult<T>, RecordsError> {
        match self.connection.ask(None, command).await {
            Err(error) if is_wrong_type(&error) => Ok(Err(error)),
            outcome => outcome.map(Ok).map_err(|error| self.explained(error)),
        }
    }

    fn explained(&self, error: RedisError) -> RecordsError {
        if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
            RecordsError::NotPermitted(error.into())
        } else {
            RecordsError::Unavailable(StoreError::unavailable(self.connection.explained(error)))
        }
    }
}

/// Read any bytes as a record and as an answer.
#[cfg(feature = "testing")]
pub(super) fn decode(bytes: &[u8]) {
    let _ = View::of(bytes, 0).map(|view| view.result_in(bytes));
    let _ = forgotten(bytes);
}

fn forgotten(answer: &[u8]) -> Option<Forgotten> {
    match answer {
        b"FORGOTTEN" => Some(Forgotten::Removed),
        b"ABSENT" => Some(Forgotten::Absent),
        FOREIGN => Some(Forgotten::Foreign),
        _ => {
            if let Some(head) = answer.strip_prefix(b"CHANGED ") {
                return Head::of(head).map(|head| Forgotten::Changed { fence: head.fence });
            }
            let ms = scripts::whole(answer.strip_prefix(b"HELD ")?)?;
            Some(Forgotten::Held { lease_remains: Duration::from_millis(ms) })
        }
    }
}
