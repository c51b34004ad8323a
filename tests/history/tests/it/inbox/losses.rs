//! Records that Redis loses, at times that are known exactly: by a script, which nothing else is executed during.

use std::collections::BTreeMap;
use std::sync::Mutex;

use harness::redis::Redis;
use harness::torture::tally::lock;
use history::{History, Loss};
use redis::aio::MultiplexedConnection;
use tokio::sync::RwLock;

use super::messages::{FOREIGN_KEYS, FOREIGN_VALUE};

/// What was lost, by the clock of Redis, µs since 1970.
#[derive(Debug)]
pub(crate) struct Losses {
    lost: Mutex<Vec<Lost>>,
    /// Written while the server is restarted.
    redis: RwLock<MultiplexedConnection>,
}

#[derive(Clone, Debug)]
struct Lost {
    unix_us: u64,
    /// `NAMESPACE:KEY`. `None` if all records were lost.
    record: Option<String>,
}

const DELETE: &str = "local time = redis.call('TIME') redis.call('DEL', KEYS[1]) return time";

/// The values that are not records stay.
const FLUSH: &str = "local time = redis.call('TIME') redis.call('FLUSHDB') \
     for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end return time";

impl Losses {
    pub(crate) async fn of_server(server: &Redis) -> Self {
        Self { lost: Mutex::default(), redis: RwLock::new(server.connection().await) }
    }

    /// Kills and starts the server, which loses nothing. No loss is under way meanwhile.
    pub(crate) async fn restart(&self, server: &mut Redis) {
        let mut redis = self.redis.write().await;
        server.kill();
        server.restart().await;
        *redis = server.connection().await;
    }

    /// Deletes the record of this key, in its stored form. A value that is not a record stays.
    pub(crate) async fn delete(&self, namespace: &str, key: &str) {
        let record = format!("{namespace}:{key}");
        if FOREIGN_KEYS.contains(&record.as_str()) {
            return;
        }
        let mut command = redis::cmd("EVAL");
        command.arg(DELETE).arg(1).arg(&record);
        self.lose(command, Some(record)).await;
    }

    /// Deletes all records.
    pub(crate) async fn flush(&self) {
        let mut command = redis::cmd("EVAL");
        command.arg(FLUSH).arg(FOREIGN_KEYS.len()).arg(&FOREIGN_KEYS).arg(FOREIGN_VALUE);
        self.lose(command, None).await;
    }

    async fn lose(&self, command: redis::Cmd, record: Option<String>) {
        let redis = self.redis.read().await;
        let [seconds, us]: [u64; 2] = command.query_async(&mut redis.clone()).await.unwrap();
        lock(&self.lost).push(Lost { unix_us: seconds * 1_000_000 + us, record });
    }

    /// The history of a namespace with its losses.
    pub(crate) fn of(&self, namespace: &str, history: History) -> History {
        let mut lost = lock(&self.lost).clone();
        lost.sort_by_key(|lost| lost.unix_us);
        let losses: BTreeMap<_, _> = history
            .keys
            .iter()
            .filter_map(|(key, operations)| {
                let offset_us = operations.first()?.unix_offset_us;
                let record = format!("{namespace}:{key}");
                let of_key = lost.iter().filter(|lost| lost.record.as_ref().is_none_or(|lost| *lost == record));
                let losses = of_key.map(|lost| Loss { at_us: lost.unix_us.saturating_sub(offset_us), since_us: 0 });
                Some((key.clone(), losses.collect()))
            })
            .collect();
        history.with_losses(&losses)
    }
}
