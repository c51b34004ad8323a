//! All records, page by page. Redis serves others between pages, and of a large result only the
//! first bytes are fetched.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;

use futures_util::future::{try_join, try_join_all};
use redis::Value;
use redis::cluster_routing::{Route, SlotAddr};

use super::{Records, RecordsError, View};
use crate::idempotency::Key;

/// Keys that Redis looks at in one SCAN. Redis serves nobody else meanwhile: 0.2 ms for so many, at 1 µs
/// a key on a busy machine (`INFO commandstats`).
const PAGE: u64 = 200;

/// What a scan has met in one step: few or none where most keys are not of the namespace.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records, each with its key, in no order. A key above 200 bytes is the `sha256:…` that stands
    /// for it in Redis, which `inspect` takes as well.
    pub records: Vec<(Key, View)>,
    /// Values in the namespace that are not records.
    pub foreign: u64,
    /// About how many keys Redis has looked at for this, also those of other namespaces.
    pub looked_at: u64,
}

/// A scan of all records of a namespace, on every master of a cluster.
///
/// A record that is there from its start to its end is met once; one that comes or goes meanwhile
/// may be met or not: <https://redis.io/docs/latest/commands/scan/>.
#[derive(Debug)]
pub struct Scan<'a> {
    records: &'a Records,
    pattern: String,
    masters: Masters,
    /// A way to each master that is not scanned yet; the last is being scanned.
    ahead: Vec<Route>,
    /// Opaque but for its start and end, which are zero.
    cursor: Vec<u8>,
    /// Redis may name a key twice when its table shrinks. 64 bits of hash are met twice by chance once in
    /// 37 million scans of a million keys.
    met: HashSet<u64>,
    hasher: RandomState,
    moved: bool,
}

/// The id of each master, and the first of its slots, which leads there.
type Masters = BTreeMap<String, u16>;

impl Records {
    /// Begin to look through all records.
    ///
    /// # Errors
    /// [`RecordsError`].
    pub async fn scan(&self) -> Result<Scan<'_>, RecordsError> {
        let masters = self.masters().await?;
        Ok(Scan {
            records: self,
            pattern: format!("{}:*", literally(&self.namespace)),
            ahead: masters.values().map(|slot| Route::new(*slot, SlotAddr::Master)).collect(),
            masters,
            cursor: START.to_vec(),
            met: HashSet::new(),
            hasher: RandomState::new(),
            moved: false,
        })
    }

    /// How many keys Redis has, of all namespaces.
    ///
    /// # Errors
    /// [`RecordsError`]; [`RecordsError::NotPermitted`] says nothing of other commands.
    pub async fn keys(&self) -> Result<u64, RecordsError> {
        self.ask(&redis::cmd("DBSIZE")).await
    }

    /// One server is the master of all.
    async fn masters(&self) -> Result<Masters, RecordsError> {
        if !self.connection.is_cluster() {
            return match self.server().await {
                Ok(server) if server.is_cluster => Err(RecordsError::OneOfMany),
                Ok(_) | Err(RecordsError::NotPermitted(_)) => Ok(Masters::from([(String::new(), 0)])),
                Err(error @ (RecordsError::Unavailable(_) | RecordsError::OneOfMany)) => Err(error),
            };
        }
        // https://redis.io/docs/latest/commands/cluster-slots/: ranges of (start, end, master, replicas…).
        let ranges: Vec<Vec<Value>> = self.ask(redis::cmd("CLUSTER").arg("SLOTS")).await?;
        let mut masters = Masters::new();
        for range in ranges {
            // A node is (address, port, id, …); which address it has depends on who is asked.
            if let [Value::Int(start), _end, node, ..] = range.as_slice()
                && let Some(id) = node.as_sequence().and_then(|node| redis::from_redis_value_ref(node.get(2)?).ok())
                && let Ok(start) = u16::try_from(*start)
            {
                let first = masters.entry(id).or_insert(start);
                *first = start.min(*first);
            }
        }
        Ok(masters)
    }

    async fn look(&self, key: &[u8], now: u64) -> Result<Look, RecordsError> {
        let head = redis::cmd("GETRANGE").arg(key).arg(0).arg(View::ENOUGH - 1).to_owned();
        let Ok(record) = self.ask_string::<Vec<u8>>(&head).await? else { return Ok(Look::NotARecord) };
        if record.is_empty() {
            return Ok(Look::Gone);
        }
        let key = key.get(self.namespace.len() + 1..).and_then(|key| Key::from_stored(str::from_utf8(key).ok()?).ok());
        Ok(key.zip(View::of(&record, now)).map_or(Look::NotARecord, |(key, view)| Look::Record(key, view)))
    }
}

enum Look {
    Gone,
    NotARecord,
    Record(Key, View),
}

/// Where a cursor starts and, once it comes back, ends.
const START: &[u8] = b"0";

impl Scan<'_> {
    /// The next step, or `None` after the last.
    ///
    /// # Errors
    /// [`RecordsError`]; the same step may be asked for again.
    ///
    /// ## Cancel safety
    /// A step whose future was dropped is taken again.
    pub async fn next(&mut self) -> Result<Option<Page>, RecordsError> {
        let Some(&master) = self.ahead.last() else { return Ok(None) };
        let mut command = redis::cmd("SCAN");
        command.arg(&self.cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(PAGE);
        let step = self.records.ask_at::<(Vec<u8>, HashSet<Vec<u8>>)>(Some(master), &command);
        let ((cursor, mut keys), now) = try_join(step, self.records.now(master)).await?;
        keys.retain(|key| !self.met.contains(&self.hasher.hash_one(key)));
        let looks = try_join_all(keys.iter().map(|key| self.records.look(key, now))).await?;
        if cursor == START {
            self.moved |= self.records.masters().await? != self.masters;
            self.ahead.pop();
        }
        self.cursor = cursor;
        self.met.extend(keys.iter().map(|key| self.hasher.hash_one(key)));
        let mut page = Page { looked_at: PAGE, ..Page::default() };
        for look in looks {
            match look {
                Look::Gone => {}
                Look::NotARecord => page.foreign += 1,
                Look::Record(key, view) => page.records.push((key, view)),
            }
        }
        Ok(Some(page))
    }

    /// Whether the last step was taken.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Whether a cluster's slots lie on other masters than at the start: records that moved may have been
    /// missed, and another scan is due.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.moved
    }
}

/// The text as a pattern of SCAN that matches it alone.
fn literally(text: &str) -> String {
    let escaped = |c: char| ['\\', '*', '?', '[', ']'].contains(&c).then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escaped).collect()
}
