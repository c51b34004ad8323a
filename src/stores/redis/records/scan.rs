//! Scans all records, page by page. Redis serves other clients between the steps of a page, and only the first bytes of
//! a record are fetched.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::BuildHasher;

use futures_util::future::{try_join, try_join_all};
use redis::Value;
use redis::cluster_routing::{Route, SlotAddr};

use super::super::preflight::field;
use super::server::is_of_cluster;
use super::{RecordView, Records, RecordsError};
use crate::idempotency::Key;

/// Number of keys in one SCAN. Redis serves no other client during a command: 0.2 ms for this many, at 1 µs a key on a
/// busy machine (`INFO commandstats`).
const KEYS_PER_SCAN: u64 = 200;

/// The result of one step of a [`Scan`]. It has few or no records if most keys belong to other namespaces.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ScanPage {
    /// The records with their keys, in no order. A key above 200 bytes is returned as `sha256:…`, as it is stored.
    /// [`Records::inspect`] and [`Records::forget`] take it as well.
    pub records: Vec<(Key, RecordView)>,
    /// Number of values in the namespace that are not records.
    pub not_records: u64,
    /// Approximate number of keys that Redis scanned for this page, of all namespaces.
    pub keys_scanned: u64,
}

/// A scan of all records of a namespace, on every master of a cluster.
///
/// A record that exists during the whole scan is returned exactly once, unless
/// [`may_lack_records`](Self::may_lack_records) is `true` in the end. One that is created or removed meanwhile may be
/// missing: <https://redis.io/docs/latest/commands/scan/>.
///
/// It keeps a hash of 8 bytes for each record that it has returned.
#[derive(Debug)]
pub struct Scan<'a> {
    records: &'a Records,
    pattern: String,
    masters: Masters,
    /// The routes to the masters that are not finished. The last one is being scanned.
    remaining: Vec<Route>,
    /// Opaque, except that it is zero at the start and at the end.
    cursor: Vec<u8>,
    /// Hashes of the keys that were returned. Redis can return a key twice when its table shrinks. Two keys have the
    /// same 64-bit hash by chance once in 37 million scans of a million keys.
    returned: HashSet<u64>,
    hasher: RandomState,
    may_lack_records: bool,
}

/// The servers of a scan.
#[derive(Debug, PartialEq, Eq)]
struct Masters {
    /// The ranges of slots, by the first slot and the last one, each with the id of its master.
    slots: BTreeMap<(u16, u16), String>,
    /// The id of each master's process, and of the data set that it replicated before it was a master. A cursor is valid only
    /// in the process that returned it, because each process has its own order of keys, and only while that stays a master.
    /// Empty if the user may not execute INFO.
    processes: BTreeSet<String>,
}

impl Records {
    /// Starts a scan of all records.
    ///
    /// # Errors
    /// [`RecordsError`]; [`RecordsError::ClusterRequired`] if the server is a node of a cluster and
    /// [`RedisSettings::cluster`](crate::stores::RedisSettings::cluster) is off.
    ///
    /// ## Cancel safety
    /// It only reads, so dropping the future changes nothing.
    pub async fn scan(&self) -> Result<Scan<'_>, RecordsError> {
        let masters = self.masters().await?;
        Ok(Scan {
            records: self,
            pattern: format!("{}:*", escape_pattern(&self.namespace)),
            remaining: masters.routes(),
            masters,
            cursor: START.to_vec(),
            returned: HashSet::new(),
            hasher: RandomState::new(),
            may_lack_records: false,
        })
    }

    /// Number of keys in Redis, of all namespaces.
    ///
    /// # Errors
    /// [`RecordsError`]. [`RecordsError::NotPermitted`] concerns only this command: others may be permitted.
    ///
    /// ## Cancel safety
    /// It only reads, so dropping the future changes nothing.
    pub async fn keys(&self) -> Result<u64, RecordsError> {
        self.send(&redis::cmd("DBSIZE")).await
    }

    /// The masters of the cluster. Without a cluster, the server is the only master.
    async fn masters(&self) -> Result<Masters, RecordsError> {
        let nodes = match self.info().await {
            Err(RecordsError::NotPermitted(_)) => Vec::new(),
            outcome => outcome?,
        };
        // https://redis.io/docs/latest/commands/info/
        let process =
            |node: &String| ["run_id", "master_replid2"].map(|name| field(node, name).unwrap_or_default()).join(" ");
        let processes = nodes.iter().map(process).collect();
        if self.connection.is_cluster() {
            return Ok(Masters { slots: self.slots().await?, processes });
        }
        if nodes.iter().any(|node| is_of_cluster(node)) {
            return Err(RecordsError::ClusterRequired);
        }
        Ok(Masters { slots: BTreeMap::from([((0, 0), String::new())]), processes })
    }

    /// The ranges of the cluster's slots, each with the id of its master.
    async fn slots(&self) -> Result<BTreeMap<(u16, u16), String>, RecordsError> {
        // https://redis.io/docs/latest/commands/cluster-slots/: ranges of (first, last, master, replicas…).
        let ranges: Vec<Vec<Value>> = self.send(redis::cmd("CLUSTER").arg("SLOTS")).await?;
        let mut masters = BTreeMap::new();
        for range in ranges {
            // A node is (address, port, id, …). The address depends on the node that replies.
            if let [Value::Int(first), Value::Int(last), node, ..] = range.as_slice()
                && let (Ok(first), Ok(last)) = (u16::try_from(*first), u16::try_from(*last))
                && let Some(id) = node.as_sequence().and_then(|node| redis::from_redis_value_ref(node.get(2)?).ok())
            {
                masters.insert((first, last), id);
            }
        }
        Ok(masters)
    }

    /// Whether the master at this route is moving slots to another one, key by key. Those keys may be on a master that
    /// was scanned before. `false` if the user may not execute CLUSTER NODES.
    async fn is_moving_slots(&self, route: Route) -> Result<bool, RecordsError> {
        if !self.connection.is_cluster() {
            return Ok(false);
        }
        // A line of its reply is a node. In its own line, a node lists such slots as `[slot->-id]`:
        // https://redis.io/docs/latest/commands/cluster-nodes/
        match self.send_to::<String>(Some(route), redis::cmd("CLUSTER").arg("NODES")).await {
            Ok(nodes) => Ok(nodes.contains("->-")),
            Err(RecordsError::NotPermitted(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the first bytes of scanned keys. `now` is Redis's clock, in µs since 1970.
    async fn read_all(&self, keys: &HashSet<Vec<u8>>, now: u64) -> Result<Vec<ScannedKey>, RecordsError> {
        match try_join_all(keys.iter().map(|key| self.read(key, now))).await {
            // While a slot is moved, the client sends ASKING before a command for a key on its new master. It applies to
            // the next command of the connection, which may be for another key if several are sent at the same time.
            Err(RecordsError::Unavailable(_)) if self.connection.is_cluster() => {
                let mut values = Vec::with_capacity(keys.len());
                for key in keys {
                    values.push(self.read(key, now).await?);
                }
                Ok(values)
            }
            outcome => outcome,
        }
    }

    /// Reads the first bytes of a scanned key. `now` is Redis's clock, in µs since 1970.
    async fn read(&self, redis_key: &[u8], now: u64) -> Result<ScannedKey, RecordsError> {
        let prefix = redis::cmd("GETRANGE").arg(redis_key).arg(0).arg(RecordView::PREFIX_LENGTH - 1).to_owned();
        let Ok(mut record) = self.send_for_string::<Vec<u8>>(&prefix).await? else { return Ok(ScannedKey::NotARecord) };
        if record.is_empty() {
            // GETRANGE of a missing key is empty too.
            match self.send_for_string::<Option<Vec<u8>>>(redis::cmd("GET").arg(redis_key)).await? {
                Ok(Some(whole)) => record = whole,
                Ok(None) => return Ok(ScannedKey::Removed),
                Err(_) => return Ok(ScannedKey::NotARecord),
            }
        }
        let key = redis_key.get(self.namespace.len() + 1..);
        let key = key.and_then(|key| Key::from_stored(str::from_utf8(key).ok()?).ok());
        let record = key.zip(RecordView::decode(&record, now));
        Ok(record.map_or(ScannedKey::NotARecord, |(key, view)| ScannedKey::Record(key, view)))
    }
}

impl Masters {
    /// A route to each master: one of its slots.
    fn routes(&self) -> Vec<Route> {
        let mut slots = BTreeMap::new();
        for ((first, _last), id) in &self.slots {
            slots.entry(id).or_insert(*first);
        }
        slots.into_values().map(|slot| Route::new(slot, SlotAddr::Master)).collect()
    }
}

/// The value of a key that SCAN returned.
enum ScannedKey {
    /// The key was removed or has expired since SCAN returned it.
    Removed,
    NotARecord,
    Record(Key, RecordView),
}

/// The cursor at the start of a scan, which SCAN returns again at its end.
const START: &[u8] = b"0";

impl Scan<'_> {
    /// The next page, or `None` after the last one.
    ///
    /// # Errors
    /// [`RecordsError`]. The next call repeats the step, so no record is skipped.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the next call repeats the step, so no record is skipped.
    pub async fn next(&mut self) -> Result<Option<ScanPage>, RecordsError> {
        let Some(&route) = self.remaining.last() else { return Ok(None) };
        let mut command = redis::cmd("SCAN");
        command.arg(&self.cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(KEYS_PER_SCAN);
        let step = self.records.send_to::<(Vec<u8>, HashSet<Vec<u8>>)>(Some(route), &command);
        let ((cursor, mut keys), now) = try_join(step, self.records.now(route)).await?;
        keys.retain(|key| !self.returned.contains(&self.hasher.hash_one(key)));
        let values = self.records.read_all(&keys, now).await?;
        if cursor == START {
            let (masters, is_moving) = try_join(self.records.masters(), self.records.is_moving_slots(route)).await?;
            self.may_lack_records |= is_moving || masters != self.masters;
            self.remaining.pop();
        }
        self.cursor = cursor;
        self.returned.extend(keys.iter().map(|key| self.hasher.hash_one(key)));
        let mut page = ScanPage { keys_scanned: KEYS_PER_SCAN, ..ScanPage::default() };
        for value in values {
            match value {
                ScannedKey::Removed => {}
                ScannedKey::NotARecord => page.not_records += 1,
                ScannedKey::Record(key, view) => page.records.push((key, view)),
            }
        }
        Ok(Some(page))
    }

    /// Whether the last page was returned.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.remaining.is_empty()
    }

    /// Whether a server was restarted or failed over since the start, or slots of the cluster are on other masters than
    /// at the start, or are being moved. Records may then be missing: scan again. Checked at the end of each master.
    /// Restarts and failovers are not noticed if the user may not execute INFO, nor slots that are being moved without
    /// CLUSTER NODES. Also `true` if a server that has failed over before gets its first replica since.
    #[must_use]
    pub fn may_lack_records(&self) -> bool {
        self.may_lack_records
    }
}

/// A pattern of SCAN that matches only this text.
fn escape_pattern(text: &str) -> String {
    let escaped = |c: char| ['\\', '*', '?', '[', ']'].contains(&c).then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escaped).collect()
}
