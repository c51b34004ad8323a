//! An operator reads a record, and removes it later. Owners of the key go on meanwhile.

use std::time::Duration;

use history::{Rng, Value};
use idempotent_sqs::Key;
use idempotent_sqs::idempotency::{Failure, Fence, Store};
use idempotent_sqs::stores::redis::records::{ExpectedRecord, ExpectedState, Force, Forgotten, Inspected};
use tokio::time::sleep;

use super::truth::{is_view_of, lease_end, now, record_in, seen};
use super::{LONG, SHORT, Scene};
use crate::network::{self, Trigger};

/// Steps of the owners of a key.
const STEPS: u64 = 6;

impl Scene {
    /// What is wrong with a removal of the record of this key.
    pub(super) async fn remove(&self, key: &Key, rng: &mut Rng) -> Vec<String> {
        let mut wrong = Vec::new();
        let (reads_after, removes_after) = (rng.draw(0..STEPS), rng.draw(0..STEPS));
        let mut read = None;
        let mut claims = Vec::new();
        for step in 0..STEPS {
            if rng.happens(400) && !claims.is_empty() {
                self.settle(rng.pick(&claims), rng).await;
            } else if rng.happens(950) {
                claims.extend(self.acquire(key, rng).await);
            } else {
                let value = if rng.happens(500) { Value::List } else { Value::String(b"P\x02".to_vec()) };
                self.cluster.set_value(self.records.redis_key(key).as_bytes(), value);
            }
            sleep(rng.ms(0..7)).await;
            if step == reads_after.min(removes_after) {
                wrong.extend(self.wrong_inspection(key).await);
                read = self.value(key);
            }
            if step == removes_after {
                wrong.extend(self.wrong_removal(key, read.as_ref(), rng).await);
            }
        }
        wrong
    }

    /// What is wrong with a removal of a failed record, once an earlier owner has marked it as uncertain. Its fence is
    /// still the same.
    pub(super) async fn remove_marked(&self, key: &Key, rng: &mut Rng) -> Option<String> {
        let early = self.acquire_for(key, 0, SHORT).await?;
        sleep(SHORT * 2).await;
        let late = self.acquire_for(key, 0, LONG).await?;
        let permanent = rng.happens(500);
        let fail = async |claim, uncertain| self.store.fail(claim, Failure { uncertain, permanent }).await;
        fail(&late, false).await.expect("nothing fails");
        let read = self.value(key);
        fail(&early, true).await.expect("nothing fails");
        self.wrong_removal(key, read.as_ref(), rng).await
    }

    async fn wrong_inspection(&self, key: &Key) -> Option<String> {
        let (value, from) = (self.value(key), now());
        let inspected = self.records.inspect(key).await;
        let is_right = match (&inspected, record_in(value.as_ref())) {
            (Ok(Inspected::Absent), None) => value.is_none(),
            (Ok(Inspected::NotARecord), None) => value.is_some(),
            (Ok(Inspected::Record { view, result, ttl }), Some(record)) => {
                let kept = if record[0] == b'C' { &record[36..] } else { &[] };
                is_view_of(view, record, from) && result == kept && ttl.is_some()
            }
            _ => false,
        };
        (!is_right).then(|| format!("inspected as {inspected:?}: {value:?}"))
    }

    /// Removes the record if it is still what was read.
    async fn wrong_removal(&self, key: &Key, read: Option<&Value>, rng: &mut Rng) -> Option<String> {
        let never = ExpectedRecord { state: ExpectedState::Processing, fence: Fence(7) };
        let read = record_in(read).map_or(never, seen);
        let force = if rng.happens(300) { Force::Yes } else { Force::No };
        let loses_reply = rng.happens(100);
        if loses_reply {
            self.cluster.servers.iter().for_each(|server| network::arm(server.name(), Trigger::Cut(0)));
        }
        let (value, from) = (self.value(key), now());
        let forgotten = self.records.forget(key, read, force).await;
        self.cluster.servers.iter().for_each(|server| network::disarm_host(server.name()));
        let until = now();
        let left = self.value(key);
        let is_removed =
            matches!(forgotten, Ok(Forgotten::Removed)) || loses_reply && matches!(forgotten, Ok(Forgotten::Absent));
        let is_right = match record_in(value.as_ref()) {
            None if value.is_none() => matches!(forgotten, Ok(Forgotten::Absent)),
            None => matches!(forgotten, Ok(Forgotten::NotARecord)) && left == value,
            Some(record) if seen(record) != read => {
                matches!(forgotten, Ok(Forgotten::Changed { now }) if now == seen(record)) && left == value
            }
            Some(record) => {
                let end = lease_end(record).filter(|_| force == Force::No).unwrap_or_default();
                let is_held = |remains: Duration| {
                    let rounded = Duration::from_millis(1);
                    remains > Duration::ZERO
                        && (end.saturating_sub(until)..end.saturating_sub(from) + rounded).contains(&remains)
                };
                match forgotten {
                    Ok(Forgotten::Held { lease_remains }) => end > from && is_held(lease_remains) && left == value,
                    _ => end <= until && is_removed && left.is_none(),
                }
            }
        };
        (!is_right).then(|| format!("{forgotten:?} of {read:?}, {force:?}: {value:?}, left {left:?}"))
    }
}
