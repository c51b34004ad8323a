//! The keys of a server, their expiry, and the commands on them: <https://redis.io/docs/latest/commands/set/>.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use history::Value;

use super::resp::Reply;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "ERR syntax error";
const INVALID_EXPIRY: &str = "ERR invalid expire time in 'set' command";

type Key = Vec<u8>;

/// A value and when it expires, ms since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    value: Value,
    expires_ms: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Keyspace {
    entries: BTreeMap<Key, Entry>,
    /// What each write replaced, and when, by the true time. A replica that lags behind still has it.
    replaced: Vec<(SystemTime, Key, Option<Entry>)>,
    /// How far this server's clock is ahead of the true time, µs.
    pub(super) clock_ahead_us: i64,
}

impl Keyspace {
    /// This server's clock, µs since 1970.
    pub(super) fn now_us(&self) -> u64 {
        let true_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        u64::try_from(true_us).unwrap_or(u64::MAX).saturating_add_signed(self.clock_ahead_us)
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.live(key).is_some()
    }

    fn live(&self, key: &[u8]) -> Option<&Entry> {
        let now_ms = self.now_us() / 1000;
        self.entries.get(key).filter(|entry| entry.expires_ms.is_none_or(|expires_ms| now_ms <= expires_ms))
    }

    fn replace(&mut self, key: &[u8], entry: Option<Entry>) {
        let replaced = match entry {
            Some(entry) => self.entries.insert(key.to_vec(), entry),
            None => self.entries.remove(key),
        };
        self.replaced.push((SystemTime::now(), key.to_vec(), replaced));
    }

    /// Deletes all keys.
    pub(super) fn flush(&mut self) {
        self.entries.clear();
        self.replaced.clear();
    }

    /// Undoes the writes of the last `lag`. Returns their keys, and whether nothing is left under each.
    pub(super) fn lose(&mut self, lag: Duration) -> BTreeMap<Key, bool> {
        let since = SystemTime::now() - lag;
        let kept = self.replaced.partition_point(|(at, ..)| *at < since);
        let mut keys = BTreeMap::new();
        for (_, key, entry) in self.replaced.split_off(kept).into_iter().rev() {
            keys.insert(key.clone(), entry.is_none());
            match entry {
                Some(entry) => self.entries.insert(key, entry),
                None => self.entries.remove(&key),
            };
        }
        keys
    }

    /// The keys that match.
    pub(super) fn keys(&self, matches: impl Fn(&[u8]) -> bool) -> Vec<Key> {
        self.entries.keys().filter(|key| matches(key)).cloned().collect()
    }

    /// The value of a key.
    pub(super) fn value(&self, key: &[u8]) -> Option<Value> {
        self.live(key).map(|entry| entry.value.clone())
    }

    /// Replaces the value of a key, which then does not expire.
    pub(super) fn set_value(&mut self, key: &[u8], value: Value) {
        self.replace(key, Some(Entry { value, expires_ms: None }));
    }

    /// All keys that have not expired.
    pub(super) fn live_keys(&self) -> Vec<Key> {
        self.keys(|key| self.contains(key))
    }

    /// Removes a key, to move it to another server.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<Entry> {
        let entry = self.live(key).cloned();
        self.replace(key, None);
        entry
    }

    /// Adds a key of another server.
    pub(super) fn restore(&mut self, key: &[u8], entry: Entry) {
        self.replace(key, Some(entry));
    }

    /// Whether the command needs memory.
    pub(super) fn needs_memory(command: &[u8]) -> bool {
        matches!(command, b"SET" | b"LPUSH")
    }

    /// Whether the command writes.
    pub(super) fn writes(command: &[u8]) -> bool {
        Self::needs_memory(command) || command == b"DEL"
    }

    /// The keys of a command with these arguments. `None` if there is no such command.
    pub(super) fn keys_of<'a>(name: &[u8], arguments: &'a [Vec<u8>]) -> Option<&'a [Vec<u8>]> {
        match name {
            b"TIME" | b"DBSIZE" => Some(&[]),
            b"GET" | b"GETRANGE" | b"SET" | b"PTTL" | b"LPUSH" => arguments.get(..1),
            b"MGET" | b"DEL" | b"EXISTS" => Some(arguments),
            _ => None,
        }
    }

    /// Executes a command of [`keys_of`](Self::keys_of).
    pub(super) fn execute(&mut self, name: &[u8], arguments: &[Vec<u8>]) -> Reply {
        match (name, arguments) {
            (b"TIME", []) => {
                let now_us = self.now_us();
                let parts = [now_us / 1_000_000, now_us % 1_000_000];
                Reply::Array(parts.iter().map(|part| Reply::bulk(part.to_string())).collect())
            }
            (b"GET", [key]) => self.get(key),
            (b"DBSIZE", []) => Reply::Integer(i64::try_from(self.live_keys().len()).unwrap_or(i64::MAX)),
            (b"GETRANGE", [key, start, end]) => {
                let number = |text: &[u8]| str::from_utf8(text).ok().and_then(|text| text.parse::<usize>().ok());
                match (self.get(key), number(start), number(end)) {
                    (Reply::Bulk(value), Some(start), Some(end)) => {
                        Reply::bulk(value.get(start..value.len().min(end + 1)).unwrap_or_default())
                    }
                    (Reply::Nil, ..) => Reply::bulk(""),
                    (error @ Reply::Error(_), ..) => error,
                    _ => Reply::error("ERR value is not an integer or out of range"),
                }
            }
            (b"MGET", keys) => {
                // Other types count as missing.
                let value = |key: &Vec<u8>| match self.get(key) {
                    Reply::Error(_) => Reply::Nil,
                    reply => reply,
                };
                Reply::Array(keys.iter().map(value).collect())
            }
            (b"SET", [key, value, options @ ..]) => self.set(key, value, options).unwrap_or_else(Reply::error),
            (b"DEL", keys) => {
                let mut deleted = 0;
                for key in keys {
                    deleted += i64::from(self.contains(key));
                    self.replace(key, None);
                }
                Reply::Integer(deleted)
            }
            (b"EXISTS", keys) => Reply::Integer(keys.iter().map(|key| i64::from(self.contains(key))).sum()),
            (b"PTTL", [key]) => Reply::Integer(match self.live(key).map(|entry| entry.expires_ms) {
                None => -2,
                Some(None) => -1,
                Some(Some(expires_ms)) => i64::try_from(expires_ms - self.now_us() / 1000).unwrap_or(i64::MAX),
            }),
            (b"LPUSH", [key, _]) => {
                self.set_value(key, Value::List);
                Reply::Integer(1)
            }
            _ => Reply::error("ERR wrong number of arguments"),
        }
    }

    fn get(&self, key: &[u8]) -> Reply {
        match self.live(key).map(|entry| &entry.value) {
            None => Reply::Nil,
            Some(Value::String(value)) => Reply::bulk(&**value),
            Some(Value::List) => Reply::error(WRONG_TYPE),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], options: &[Vec<u8>]) -> Result<Reply, &'static str> {
        let (mut only_new, mut only_old, mut returns_old, mut keeps_expiry) = (false, false, false, false);
        let (mut expires_ms, now_ms) = (None, self.now_us() / 1000);
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let option = option.to_ascii_uppercase();
            match &*option {
                b"NX" => only_new = true,
                b"XX" => only_old = true,
                b"GET" => returns_old = true,
                b"KEEPTTL" => keeps_expiry = true,
                b"PX" | b"PXAT" | b"EX" | b"EXAT" => {
                    let time = options.next().and_then(|time| std::str::from_utf8(time).ok()?.parse::<i64>().ok());
                    let time = time.ok_or("ERR value is not an integer or out of range")?;
                    let ms = time.checked_mul(if option.starts_with(b"E") { 1000 } else { 1 });
                    let ms = ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0).ok_or(INVALID_EXPIRY)?;
                    let ms = if option.ends_with(b"AT") { Some(ms) } else { now_ms.checked_add(ms) };
                    if expires_ms.replace(ms.ok_or(INVALID_EXPIRY)?).is_some() {
                        return Err(SYNTAX);
                    }
                }
                _ => return Err(SYNTAX),
            }
        }
        if only_new && only_old || keeps_expiry && expires_ms.is_some() {
            return Err(SYNTAX);
        }
        let old = if returns_old { self.get(key) } else { Reply::Nil };
        if let Reply::Error(_) = old {
            return Ok(old);
        }
        let before = self.live(key);
        if only_new && before.is_some() || only_old && before.is_none() {
            return Ok(old);
        }
        if keeps_expiry {
            expires_ms = before.and_then(|entry| entry.expires_ms);
        }
        // A time in the past deletes the key.
        let is_past = !keeps_expiry && expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms);
        self.replace(key, (!is_past).then(|| Entry { value: Value::String(value.to_vec()), expires_ms }));
        Ok(if returns_old { old } else { Reply::ok() })
    }
}
