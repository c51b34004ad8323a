//! The shard of each key of a cluster, so that records of one shard share script calls.
//!
//! Which node serves a slot may be outdated at any time. That costs time, and is never wrong: a node rejects each command
//! on a key that it does not serve, also inside a script, and the record is then sent alone to the node that the cluster
//! client finds by its key.

use std::fmt::Display;
use std::mem;
use std::ops::RangeInclusive;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult, Value};

use super::Connection;
use super::errors::is_reply;
use crate::stores::redis::scripts::{NOT_LOCAL, ScriptCall};

/// How long each record has its own call after a node refused a shared call, or after [`CALLS_IN_VAIN`]. The cluster may
/// hide its shards behind one address, or refuse keys that are not declared.
const PAUSE: Duration = Duration::from_secs(60);

/// How many shared calls in a row may be in vain: they reach a node that does not serve most of their keys. One may be,
/// while a node does not respond, because the client library then sends its calls to another. The other shards go on
/// sharing calls.
const CALLS_IN_VAIN: u32 = 3;

/// What is known of the shards.
#[derive(Default)]
pub(super) struct Sharing {
    /// `None` until they are read, and after a call shows that they have changed.
    shards: Option<Arc<Shards>>,
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

/// The shard of each slot.
#[derive(Debug)]
pub(in crate::stores::redis) struct Shards(Vec<(RangeInclusive<u16>, usize)>);

impl Shards {
    /// Decodes the reply to CLUSTER SLOTS: <https://redis.io/docs/latest/commands/cluster-slots/>
    fn decode<'a>(reply: &'a Value) -> Option<Self> {
        let mut masters: Vec<&'a Value> = Vec::new();
        let range = |range: &'a Value| {
            let [Value::Int(first), Value::Int(last), master, ..] = range.as_sequence()? else { return None };
            let shard = masters.iter().position(|known| *known == master).unwrap_or_else(|| {
                masters.push(master);
                masters.len() - 1
            });
            Some((u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?, shard))
        };
        reply.as_sequence()?.iter().map(range).collect::<Option<_>>().map(Self)
    }

    /// The shard of a key, if a node serves its slot.
    pub(in crate::stores::redis) fn of(&self, key: &str) -> Option<usize> {
        let slot = slot(key);
        self.0.iter().find(|(slots, _)| slots.contains(&slot)).map(|(_, shard)| *shard)
    }
}

/// The slot of a key: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>. The client library
/// does not show its number.
pub(in crate::stores::redis) fn slot(key: &str) -> u16 {
    let key = key.as_bytes();
    let find = |bytes: &[u8], wanted| bytes.iter().position(|byte| *byte == wanted);
    let tag = find(key, b'{').map(|open| &key[open + 1..]).and_then(|rest| Some(&rest[..find(rest, b'}')?]));
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let shift = |crc: u16, _bit| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
    hashed.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, shift)) % 16_384
}

impl Connection {
    /// The shards of the cluster, if its records may share calls.
    pub(in crate::stores::redis) async fn shards(&self) -> RedisResult<Option<Arc<Shards>>> {
        if !self.is_cluster() || self.lock_sharing().paused_until.is_some_and(|end| Instant::now() < end) {
            return Ok(None);
        }
        if let Some(known) = self.lock_sharing().shards.clone() {
            return Ok(Some(known));
        }
        let reply: Value = self.try_send(None, redis::cmd("CLUSTER").arg("SLOTS")).await?;
        let shards = Shards::decode(&reply).map(Arc::new);
        self.lock_sharing().shards.clone_from(&shards);
        Ok(shards)
    }

    /// Notes the replies to a shared call. After `NOT_LOCAL` the shards are read again.
    pub(super) fn note_replies(&self, replies: &[Vec<u8>]) {
        let foreign = replies.iter().filter(|reply| *reply == NOT_LOCAL).count();
        let mut sharing = self.lock_sharing();
        if foreign > 0 {
            sharing.shards = None;
        }
        sharing.in_vain = if foreign > replies.len() / 2 { sharing.in_vain + 1 } else { 0 };
        if sharing.in_vain == CALLS_IN_VAIN {
            sharing.pause("the nodes do not serve most keys of their shards");
        }
    }

    /// Notes that a shared call failed. A call that the node refused does not count as a try of its records.
    pub(super) fn note_failure(&self, call: &mut ScriptCall, error: &RedisError) {
        if is_reply(error) {
            self.lock_sharing().pause(error);
        } else {
            call.tries -= 1;
        }
    }

    fn lock_sharing(&self) -> MutexGuard<'_, Sharing> {
        self.sharing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use redis::cluster_routing::Slot;

    use super::*;
    use crate::stores::redis::RedisSettings;

    #[test]
    fn the_slot_of_a_key_is_that_of_the_client_library() {
        for key in ["", "payments:pay_1", "{user}:1", "a{user}b{c}", "{}:1", "{user", "user}", "}{user}", "a{b{c}d}"] {
            assert_eq!(Slot::new(slot(key)), Some(Slot::for_key(key)), "{key}");
        }
        for n in 0..10_000 {
            let key = format!("payments:{n}");
            assert_eq!(Slot::new(slot(&key)), Some(Slot::for_key(&key)), "{key}");
        }
    }

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
        (0..3).for_each(|_| connection.note_replies(&in_vain));
        assert!(is_paused());
    }

    #[test]
    fn ranges_of_one_master_are_one_shard() {
        let node = |port| Value::Array(vec![Value::BulkString(b"127.0.0.1".to_vec()), Value::Int(port)]);
        let range = |first, last, port| Value::Array(vec![Value::Int(first), Value::Int(last), node(port), node(1)]);
        let reply = Value::Array(vec![range(0, 99, 7000), range(100, 9_999, 7001), range(10_000, 16_383, 7000)]);
        let shards = Shards::decode(&reply).unwrap();
        assert_eq!(shards.0, [(0..=99, 0), (100..=9_999, 1), (10_000..=16_383, 0)]);
        assert!(Shards::decode(&Value::Okay).is_none());
    }
}
