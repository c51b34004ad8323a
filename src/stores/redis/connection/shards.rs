//! The shard of each key of a cluster, so that records of one shard share script calls.
//!
//! Which node serves a slot may be outdated at any time. That costs time, and is never wrong: a node rejects each
//! command on a key that it does not serve, also inside a script, and the record is then sent alone to the node that
//! the cluster client finds by its key.

use std::collections::HashMap;
use std::fmt::Display;
use std::mem;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::cluster_routing::Slot;
use redis::{RedisError, RedisResult, Value};

use super::Connection;
use super::errors::{is_about_state, is_reply};
use crate::stores::redis::script_call::{NOT_LOCAL, ScriptCall};

/// How long each record has its own call after a node refused a shared call, or after [`CALLS_IN_VAIN`]. The cluster
/// may hide its shards behind one address, or refuse keys that are not declared.
const PAUSE: Duration = Duration::from_secs(60);

/// Number of shared calls in a row after which sharing pauses, if each reached a node that does not serve most of its
/// keys. One such call is normal while a node does not respond, because the client library then sends its calls to
/// another node. The other shards continue to share calls, unless this many calls in a row are for the node that does
/// not respond.
const CALLS_IN_VAIN: u32 = 3;

/// What is known of the shards.
#[derive(Default)]
pub(super) struct Sharing {
    /// As they were last read.
    shards: Option<Arc<Shards>>,
    /// Whether a call has shown since that they have changed.
    is_outdated: bool,
    /// Number of the last calls that were in vain.
    in_vain: u32,
    paused_until: Option<Instant>,
    warned: bool,
}

impl Sharing {
    fn pause(&mut self, reason: impl Display) {
        self.in_vain = 0;
        self.paused_until = Some(Instant::now() + PAUSE);
        if !mem::replace(&mut self.warned, true) {
            tracing::warn!(%reason, "the records of a shard cannot share script calls for now: each has its own call");
        }
    }
}

/// The shard of each slot. Its number is the first slot of its master, which a failover does not change.
#[derive(Debug)]
pub(in crate::stores::redis) struct Shards(HashMap<Slot, usize>);

impl Shards {
    /// Decodes the reply to CLUSTER SLOTS: <https://redis.io/docs/latest/commands/cluster-slots/>
    fn decode<'a>(reply: &'a Value) -> Option<Self> {
        let mut masters: Vec<(&'a Value, usize)> = Vec::new();
        let mut shards = HashMap::new();
        for range in reply.as_sequence()? {
            let [Value::Int(first), Value::Int(last), master, ..] = range.as_sequence()? else { return None };
            let known = masters.iter().find(|(known, _)| *known == master);
            let shard = if let Some((_, shard)) = known {
                *shard
            } else {
                let shard = usize::try_from(*first).ok()?;
                masters.push((master, shard));
                shard
            };
            let slots = u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?;
            shards.extend(slots.filter_map(Slot::new).map(|slot| (slot, shard)));
        }
        Some(Self(shards))
    }

    /// The shard of a key, if a node serves its slot.
    pub(in crate::stores::redis) fn of(&self, key: &str) -> Option<usize> {
        self.0.get(&Slot::for_key(key)).copied()
    }
}

impl Connection {
    /// The shards of the cluster, if its records may share calls.
    pub(in crate::stores::redis) async fn shards(&self) -> RedisResult<Option<Arc<Shards>>> {
        if !self.is_cluster() || self.lock_sharing().paused_until.is_some_and(|end| Instant::now() < end) {
            return Ok(None);
        }
        let known = {
            let sharing = self.lock_sharing();
            sharing.shards.clone().filter(|_| !sharing.is_outdated)
        };
        if known.is_some() {
            return Ok(known);
        }
        let reply: Value = self.try_send(None, redis::cmd("CLUSTER").arg("SLOTS"), false).await?;
        let shards = Shards::decode(&reply).map(Arc::new);
        let mut sharing = self.lock_sharing();
        (sharing.shards, sharing.is_outdated) = (shards.clone(), false);
        drop(sharing);
        Ok(shards)
    }

    /// The part of the cluster that has this key: its shard as it was last read, also while its records may not share
    /// calls. 0 if no shard is known.
    pub(in crate::stores::redis) fn part(&self, key: &str) -> usize {
        let shards = self.lock_sharing().shards.clone();
        shards.and_then(|shards| shards.of(key)).map_or(0, |shard| shard + 1)
    }

    /// Notes the replies to a shared call. After `NOT_LOCAL` the shards are read again.
    pub(super) fn note_replies(&self, replies: &[Vec<u8>]) {
        let foreign = replies.iter().filter(|reply| *reply == NOT_LOCAL).count();
        let mut sharing = self.lock_sharing();
        if foreign > 0 {
            sharing.is_outdated = true;
        }
        sharing.in_vain = if foreign > replies.len() / 2 { sharing.in_vain + 1 } else { 0 };
        if sharing.in_vain == CALLS_IN_VAIN {
            sharing.pause("the nodes do not serve most keys of their shards");
        }
    }

    /// Notes that a shared call failed. A call that the node refused does not count as a try of its records. A node
    /// that refuses every call for now does not end the sharing of calls with the others.
    pub(super) fn note_failure(&self, call: &mut ScriptCall, error: &RedisError) {
        if !is_reply(error) {
            call.tries -= 1;
        } else if !is_about_state(error) {
            self.lock_sharing().pause(error);
        }
    }

    fn lock_sharing(&self) -> MutexGuard<'_, Sharing> {
        self.sharing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::redis::RedisSettings;

    #[test]
    fn sharing_pauses_after_three_calls_in_a_row_that_were_in_vain() {
        let url = "redis://127.0.0.1".parse().unwrap();
        let settings = RedisSettings { cluster: true, ..RedisSettings::new(url, "payments") };
        let connection = Connection::new(&settings).unwrap();
        let is_paused = || connection.lock_sharing().paused_until.is_some();
        let (foreign, local) = (NOT_LOCAL.to_vec(), b"COMPLETED".to_vec());
        let in_vain = [foreign.clone(), foreign.clone(), local.clone()];
        for _ in 0..3 {
            connection.note_replies(&in_vain);
            connection.note_replies(&in_vain);
            connection.note_replies(&[foreign.clone(), local.clone()]);
        }
        assert!(!is_paused());
        for _ in 0..2 {
            (0..3).for_each(|_| connection.note_replies(&in_vain));
            assert!(is_paused());
            connection.lock_sharing().paused_until = None;
        }
    }

    #[test]
    fn ranges_of_one_master_are_one_shard() {
        let node = |port| Value::Array(vec![Value::BulkString(b"127.0.0.1".to_vec()), Value::Int(port)]);
        let range = |first, last, port| Value::Array(vec![Value::Int(first), Value::Int(last), node(port), node(1)]);
        let reply = Value::Array(vec![range(0, 99, 7000), range(100, 9_999, 7001), range(10_000, 16_383, 7000)]);
        let shards = Shards::decode(&reply).unwrap();
        let of = |slot| shards.0.get(&Slot::new(slot).unwrap()).copied();
        assert_eq!([0, 99, 100, 9_999, 10_000, 16_383].map(of), [0, 0, 100, 100, 0, 0].map(Some));
        assert!(Shards::decode(&Value::Okay).is_none());
    }
}
