//! What happens to a server: it restarts, loses records or scripts, and refuses calls; its clock is set; and another
//! program writes its values.

use std::collections::BTreeMap;
use std::time::Duration;

use history::Value;

use super::server::Server;
use crate::lock;
use crate::network;
use crate::trace::event;

impl Server {
    /// Stops the server and starts it again after `down`, without its scripts.
    pub async fn restart(&self, down: Duration) {
        event(|| format!("FAULT {} restarts", self.name()));
        network::stop(self.name());
        {
            let mut state = lock(&self.state);
            state.process.restarts += 1;
            let next = state.versions.len().min(1);
            state.versions.rotate_left(next);
        }
        lock(&self.scripts).set_version(lock(&self.state).version());
        tokio::time::sleep(down).await;
        self.listen();
    }

    /// Becomes a replica and a primary again, whose keys have another order.
    pub fn fail_over(&self) {
        event(|| format!("FAULT {} is a replica for a moment", self.name()));
        lock(&self.state).process.promotions += 1;
    }

    /// Deletes all records.
    pub fn flush(&self) {
        event(|| format!("FAULT {} loses all records", self.name()));
        lock(&self.state).keyspace.flush();
    }

    /// Deletes all scripts.
    pub fn flush_scripts(&self) {
        event(|| format!("FAULT {} loses its scripts", self.name()));
        lock(&self.scripts).flush();
    }

    /// Undoes the writes of the last `lag`, which the replica that is promoted does not have. Returns their keys, and
    /// whether nothing is left under each.
    pub fn lose(&self, lag: Duration) -> BTreeMap<Vec<u8>, bool> {
        let keys = lock(&self.state).keyspace.lose(lag);
        event(|| format!("FAULT {} loses the last writes of {} keys", self.name(), keys.len()));
        keys
    }

    /// Sets its clock this far ahead of the true time, or behind.
    pub fn set_clock(&self, ahead_us: i64) {
        event(|| format!("FAULT the clock of {} is {} ms ahead", self.name(), ahead_us / 1000));
        lock(&self.state).keyspace.clock_ahead_us = ahead_us;
    }

    /// Sets whether it is out of memory.
    pub fn set_full(&self, is_full: bool) {
        event(|| format!("FAULT {} is out of memory: {is_full}", self.name()));
        lock(&self.state).is_full = is_full;
    }

    /// Sets whether it accepts no writes.
    pub fn set_replica(&self, is_replica: bool) {
        event(|| format!("FAULT {} is a replica: {is_replica}", self.name()));
        lock(&self.state).is_replica = is_replica;
    }

    /// Sets the error that is the reply to each script.
    pub fn refuse(&self, refusal: Option<&'static str>) {
        event(|| format!("FAULT {} refuses scripts: {refusal:?}", self.name()));
        lock(&self.state).refusal = refusal;
    }

    /// Sets the error that is the reply to each script without declared keys.
    pub fn refuse_shared(&self, refusal: Option<&'static str>) {
        lock(&self.state).shared_refusal = refusal;
    }

    /// Its keys that match.
    pub fn keys(&self, matches: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        lock(&self.state).keyspace.keys(matches)
    }

    /// The value of a key.
    pub(super) fn value(&self, key: &[u8]) -> Option<Value> {
        lock(&self.state).keyspace.value(key)
    }

    /// Replaces the value of a key, as another program does.
    pub(super) fn set_value(&self, key: &[u8], value: Value) {
        event(|| format!("FAULT {} has another value: {value:?}", String::from_utf8_lossy(key)));
        lock(&self.state).keyspace.set_value(key, value);
    }

    /// Moves a key to another server.
    pub(super) fn move_key(&self, key: &[u8], to: &Self) {
        if let Some(entry) = lock(&self.state).keyspace.take(key) {
            lock(&to.state).keyspace.restore(key, entry);
        }
    }
}
