//! Whether the records are those of the rows: docs/backfill.md.

use std::collections::BTreeSet;
use std::time::Duration;

use history::Value;
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Fence, Store, StoredResult};
use idempotent_sqs::{Fingerprint, Key};
use tokio::time::{Instant, sleep};

use super::faults::What;
use super::rows::{Row, Special};
use super::{CONSUMER, MAX_BYTES, RETENTION, World};
use crate::lock;

/// How much later something may happen than it has to: delays of the network.
pub(super) const SLACK: Duration = Duration::from_millis(200);

/// How much longer a record lives than its row: its lifetime is rounded up to a minute.
const ROUNDED: Duration = Duration::from_mins(1);

const PROBES: &str = "copied:loss-probe:";

pub(super) type Specials = [(String, Special, Value)];

impl Row {
    /// When it expires. `None` if it had expired before it was inserted.
    fn expires(&self) -> Option<Instant> {
        let Some(age) = self.age else { return Some(self.begun + 1000 * RETENTION) };
        RETENTION.checked_sub(age).map(|left| self.begun + left)
    }

    /// Whether it has to be copied.
    fn is_copied(&self) -> bool {
        self.consumer == CONSUMER
            && self.result.is_some()
            && self.expires().is_some_and(|expires| expires > Instant::now() + SLACK)
    }

    /// When it was done, after this time. Earlier times are negative.
    pub(super) fn done_s(&self, since: Instant) -> f64 {
        let seconds = |later: Instant, earlier: Instant| later.saturating_duration_since(earlier).as_secs_f64();
        let begun = seconds(self.begun, since) - seconds(since, self.begun);
        self.age.map_or(f64::INFINITY, |age| begun - age.as_secs_f64())
    }

    fn record(&self) -> Vec<u8> {
        format!("{CONSUMER}:{}", self.key).into_bytes()
    }
}

impl World {
    /// The committed rows that have to be copied.
    pub(super) fn copied(&self) -> Vec<Row> {
        let keys: BTreeSet<_> = self.database.rows().into_iter().map(|row| (row.row.namespace, row.row.key)).collect();
        let is_committed = |row: &&Row| keys.contains(&(row.consumer.to_owned(), row.key.clone()));
        lock(&self.rows).iter().filter(is_committed).filter(|row| row.is_copied()).cloned().collect()
    }

    pub(super) fn was_flushed(&self) -> bool {
        lock(&self.faults).iter().any(|fault| fault.what == What::Flushed)
    }

    /// Records that are missing, and those that no row has.
    pub(super) fn wrong_records(&self, specials: &Specials, when: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let copied = self.copied();
        for row in &copied {
            if self.redis.value(&row.record()).is_none() {
                wrong.push(format!("{when}: this row was not copied: {row:?}"));
            }
        }
        let known: BTreeSet<_> = copied.iter().map(Row::record).collect();
        for record in
            self.redis.servers.iter().flat_map(|server| server.keys(|key| !key.starts_with(PROBES.as_bytes())))
        {
            if !known.contains(&record) {
                wrong.push(format!("{when}: this record has no row: {}", String::from_utf8_lossy(&record)));
            }
        }
        for (key, special, before) in specials.iter().filter(|_| !self.was_flushed()) {
            let now = self.redis.value(format!("{CONSUMER}:{key}").as_bytes());
            if (now.as_ref() == Some(before)) == (*special == Special::Failed) {
                wrong.push(format!("{when}: the record of {key} was {before:?}, and is {now:?}"));
            }
        }
        wrong
    }

    /// Records with other contents than their rows.
    pub(super) async fn wrong_contents(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for row in self.copied() {
            let fingerprint = row.fingerprint.as_slice().try_into().map(Fingerprint::from_bytes);
            let fingerprint = fingerprint.unwrap_or(Fingerprint::of(b""));
            let result = row.result.clone().filter(|result| result.len() <= MAX_BYTES);
            let expected = Acquire::Duplicate {
                fence: Fence(u64::try_from(row.fence).unwrap_or(0)),
                attempts: u8::try_from(row.attempts).unwrap_or(u8::MAX),
                result: result.map_or(StoredResult::NotKept, StoredResult::Inline),
            };
            let same = self.acquire(&row.key, fingerprint).await;
            if format!("{same:?}") != format!("{:?}", Some(&expected)) {
                wrong.push(format!("a record is {same:?}, not that of {row:?}"));
            }
            let other = self.acquire(&row.key, Fingerprint::of(b"another payload")).await;
            if !matches!(other, Some(Acquire::Mismatch)) {
                wrong.push(format!("a record is {other:?} for another payload than that of {row:?}"));
            }
        }
        // Records of a probe that was lost do not count as work that died.
        for probe in self.probes() {
            let key = String::from_utf8_lossy(&probe[CONSUMER.len() + 1..]).into_owned();
            let acquired = self.acquire(&key, Fingerprint::NONE).await;
            let is_right = match &acquired {
                Some(Acquire::Duplicate { .. }) => true,
                Some(Acquire::Acquired(claim)) => claim.attempt() == 1,
                _ => false,
            };
            if !is_right {
                wrong.push(format!("a record of a probe is {acquired:?}"));
            }
        }
        wrong
    }

    /// The records of probes, also those that have expired.
    fn probes(&self) -> Vec<Vec<u8>> {
        let of_probes = |key: &[u8]| key.starts_with(PROBES.as_bytes());
        self.redis.servers.iter().flat_map(|server| server.keys(of_probes)).collect()
    }

    async fn acquire(&self, stored: &str, fingerprint: Fingerprint) -> Option<Acquire> {
        let mut request = AcquireRequest::new(Key::from_stored(stored).ok()?);
        (request.fingerprint, request.retention) = (fingerprint, RETENTION);
        self.store.acquire(request).await.ok()
    }

    /// Records that live for another time than their rows.
    pub(super) async fn wrong_lifetimes(&self) -> Vec<String> {
        let (rows, begun) = (self.copied(), Instant::now());
        let mut wrong = Vec::new();
        while begun.elapsed() < RETENTION + 2 * ROUNDED && wrong.is_empty() {
            for row in &rows {
                let Some(expires) = row.expires() else { continue };
                let (now, is_there) = (Instant::now(), self.redis.value(&row.record()).is_some());
                if !is_there && now + SLACK < expires {
                    wrong.push(format!("a record expired {:?} before its row: {row:?}", expires - now));
                }
                // It was written in a run of some seconds, and counts from then.
                if is_there && now > expires + ROUNDED + SLACK {
                    wrong.push(format!("a record lives for {:?} longer than its row: {row:?}", now - expires));
                }
            }
            sleep(Duration::from_secs(15)).await;
        }
        let mut probes = self.probes().into_iter();
        wrong.extend(
            probes.find(|probe| self.redis.value(probe).is_some()).map(|_| "a probe lives for too long".to_owned()),
        );
        wrong
    }
}
