//! Scans of all records. Steps of a scan are given up and fail, owners go on, and servers restart, fail over and move
//! slots.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use futures_util::future::join_all;
use history::{Rng, Value};
use idempotent_sqs::stores::redis::records::{Scan, ScanPage};
use idempotent_sqs::{Claim, Key};
use tokio::time::{sleep, timeout};

use super::truth::{is_view_of, now, record_in};
use super::{NAMESPACES, Scene, TIMEOUT};
use crate::connections::connections;
use crate::network::{self, address};
use crate::redis::slot;

/// What happened to the servers during a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Restart,
    Failover,
    /// Slots move to another server.
    Move,
    /// Slots are being moved: a key of each is on another server.
    Begin,
    /// Slots of the server that is scanned are being moved. The move is taken back while another server is scanned.
    TakeBack,
}

impl Scene {
    /// What is wrong with a scan of many records.
    pub(super) async fn scan(&self, rng: &mut Rng) -> Vec<String> {
        let change = match rng.draw(0..8) {
            0 => Some(Change::Restart),
            1 => Some(Change::Failover),
            2 | 3 if self.cluster.servers.len() > 1 => Some(Change::Move),
            4 if self.cluster.servers.len() > 1 => Some(Change::Begin),
            5 | 6 if self.cluster.servers.len() > 1 => Some(Change::TakeBack),
            _ => None,
        };
        // A move is taken back if the scan of its server takes several steps.
        let takes_back = change == Some(Change::TakeBack);
        let mut held = self.fill(if takes_back { 450..600 } else { 1..600 }, rng).await;
        let (others, expected) = (self.put_others(), self.stored());
        let mut wrong = Vec::new();
        let stored: usize = self.cluster.servers.iter().map(|server| server.keys(|_| true).len()).sum();
        let keys = self.records.keys().await;
        if keys.as_ref().ok() != Some(&(stored as u64)) {
            wrong.push(format!("{keys:?} keys, not {stored}"));
        }
        let mut scan = match self.records.scan().await {
            Ok(scan) => scan,
            Err(error) => return vec![format!("not begun: {error}")],
        };
        let (mut found, mut not_records) = (BTreeSet::new(), 0);
        let (changes_after, mut has_changed) = (if takes_back { 1 } else { rng.draw(0..4) }, false);
        for step in 0.. {
            if step == changes_after
                && !scan.is_finished()
                && let Some(change) = change
            {
                has_changed = self.change(change, rng).await;
            }
            if takes_back && has_changed {
                let scanned = self.scanned();
                self.cluster.take_back_moves(|from| scanned != Some(from));
            }
            let from = now();
            let page = match self.next(&mut scan, rng).await {
                Ok(None) => break,
                Ok(Some(page)) => page,
                Err(fault) => {
                    wrong.push(fault);
                    break;
                }
            };
            not_records += page.not_records;
            for (key, view) in page.records {
                let value = self.value(&key);
                if !record_in(value.as_ref()).is_some_and(|record| is_view_of(&view, record, from)) {
                    wrong.push(format!("{key} is found as {view:?}: {value:?}"));
                }
                if !found.insert(key.to_string()) {
                    wrong.push(format!("{key} is found twice"));
                }
            }
            if scan.is_finished() {
                continue;
            }
            if let Some(claim) = held.pop() {
                self.settle(&claim, rng).await;
            }
            let new = Key::new(&format!("new_{step}")).expect("it has a text");
            self.acquire(&new, rng).await;
        }
        let may_lack = scan.may_lack_records();
        let missing: Vec<_> = expected.iter().filter(|key| !found.contains(*key) && self.is_stored(key)).collect();
        if !may_lack && (!missing.is_empty() || not_records != others) {
            wrong.push(format!("{change:?}: {} records are missing: {missing:?}, {not_records} others", missing.len()));
        }
        if may_lack && !has_changed {
            wrong.push("records may be missing although nothing has happened".to_owned());
        }
        if let Some(change) = change
            && has_changed
            && ![Change::Begin, Change::TakeBack].contains(&change)
            && !may_lack
        {
            wrong.push(format!("no record may be missing after {change:?}"));
        }
        wrong
    }

    /// Writes records. Returns the claims of some that are still held.
    async fn fill(&self, count: Range<u64>, rng: &mut Rng) -> Vec<Claim> {
        let count = rng.draw(count);
        let mut fills: Vec<_> = (0..count).map(|number| (number, rng.fork())).collect();
        let claims = join_all(fills.iter_mut().map(async |(number, rng)| {
            let name = if rng.happens(20) { "long".repeat(60) + &number.to_string() } else { format!("pay_{number}") };
            let claim = self.acquire(&Key::new(&name).expect("it has a text"), rng).await?;
            if rng.happens(800) {
                self.settle(&claim, rng).await;
                return None;
            }
            Some(claim)
        }));
        claims.await.into_iter().flatten().collect()
    }

    /// Writes values that are not records, and keys of other namespaces. Returns the number of the first.
    fn put_others(&self) -> u64 {
        let strings = [
            Vec::new(),
            b"no record".to_vec(),
            b"P\x02".repeat(26),
            // Two bytes more than a record has.
            b"P\x01".repeat(27),
            b"F\x01".repeat(27),
        ];
        let values: Vec<_> = strings.into_iter().map(Value::String).chain([Value::List]).collect();
        for (number, value) in values.iter().enumerate() {
            self.cluster.set_value(format!("{}:other_{number}", self.namespace).as_bytes(), value.clone());
        }
        let namespaces = NAMESPACES.iter().filter(|namespace| **namespace != self.namespace);
        for namespace in namespaces.copied().chain(["aXb", "qq", "xy", "viewed2", "backslash"]) {
            self.cluster.set_value(format!("{namespace}:pay_1").as_bytes(), Value::List);
        }
        values.len() as u64
    }

    /// The keys of the records that exist.
    fn stored(&self) -> BTreeSet<String> {
        let prefix = format!("{}:", self.namespace);
        let keys = self.cluster.servers.iter().flat_map(|server| server.keys(|key| key.starts_with(prefix.as_bytes())));
        let keys = keys.filter(|key| record_in(self.cluster.value(key).as_ref()).is_some());
        keys.map(|key| String::from_utf8_lossy(&key[prefix.len()..]).into_owned()).collect()
    }

    fn is_stored(&self, key: &str) -> bool {
        self.cluster.value(format!("{}:{key}", self.namespace).as_bytes()).is_some()
    }

    /// Makes a step, which may have to be repeated.
    async fn next(&self, scan: &mut Scan<'_>, rng: &mut Rng) -> Result<Option<ScanPage>, String> {
        let given_up = rng.happens(400).then(|| rng.ms(0..12));
        if let Some(after) = given_up
            && let Ok(Ok(page)) = timeout(after, scan.next()).await
        {
            return Ok(page);
        }
        if !rng.happens(150) {
            return scan.next().await.map_err(|error| format!("a step failed: {error:?}"));
        }
        // For longer than both tries take, with their connections.
        let (after, unreachable) = (rng.ms(0..12), 3 * TIMEOUT);
        let (servers, viewer) = (self.cluster.servers.clone(), self.viewer.clone());
        let partition = tokio::spawn(async move {
            sleep(after).await;
            for server in &servers {
                network::partition(&viewer, server.name(), unreachable);
            }
            sleep(unreachable).await;
        });
        let first = scan.next().await;
        partition.await.expect("it does not panic");
        let page = if first.is_err() { scan.next().await } else { first };
        page.map_err(|error| format!("a repeated step failed: {error:?}"))
    }

    /// The number of the server that the last step scanned.
    fn scanned(&self) -> Option<usize> {
        let own = connections().into_iter().filter(|made| made.client == self.viewer);
        let last = own.filter_map(|made| {
            let scans = made.exchanges.iter().filter(|sent| sent.command == "SCAN");
            Some((scans.map(|sent| sent.sent_us).max()?, made.host()?.to_owned()))
        });
        let (_, host) = last.max()?;
        self.cluster.servers.iter().position(|server| address(server.name(), &self.viewer) == host)
    }

    /// Returns whether something has happened.
    async fn change(&self, change: Change, rng: &mut Rng) -> bool {
        match change {
            Change::Restart => rng.pick(&self.cluster.servers).restart(Duration::from_millis(1)).await,
            Change::Failover => rng.pick(&self.cluster.servers).fail_over(),
            Change::Move | Change::Begin | Change::TakeBack => {
                let other = usize::from(rng.happens(500));
                let from = self.scanned().filter(|_| change == Change::TakeBack).unwrap_or(other);
                let slots = self.stored().into_iter().map(|key| slot(format!("{}:{key}", self.namespace).as_bytes()));
                let slots: BTreeSet<_> = slots.filter(|slot| self.cluster.owner(*slot) == from).collect();
                // Few of many keys that come back have not been scanned.
                let share = if change == Change::TakeBack { 600 } else { 100 };
                let moved: Vec<_> = slots.into_iter().filter(|_| rng.happens(share)).collect();
                for slot in &moved {
                    self.cluster.begin_move(*slot, 1 - from);
                    while self.cluster.step_move(*slot) && change == Change::Move {}
                }
                return !moved.is_empty();
            }
        }
        true
    }
}
