//! The operator's view of the records: scans and removals, while owners change them and servers restart.
//!
//! - `scans`: scans of all records
//! - `removals`: removals of a record that may have changed since it was read
//! - `truth`: what a record is

mod removals;
mod scans;
pub mod truth;

use std::time::Duration;

use history::{Rng, Value};
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Claim, Failure, Store, StoreError, StoredResult};
use idempotent_sqs::stores::redis::records::Records;
use idempotent_sqs::{Fingerprint, Key, RedisSettings, RedisStore};

use crate::network::{self, Conditions, address};
use crate::redis::Cluster;

const TIMEOUT: Duration = Duration::from_millis(300);

/// A lease that ends soon, and one that does not.
const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(60);

/// Namespaces, of which some have characters that are special in patterns of keys.
const NAMESPACES: [&str; 6] = ["viewed", "a*b", "q?", "x[y]", "back\\slash", "{tagged}"];

/// What is wrong with the scans and removals of this seed.
pub async fn view_records(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x0b5e);
    network::set_conditions(Conditions { rng: rng.fork(), delay_ms: 2, lost: 0 });
    let mut wrong = Vec::new();
    for number in 0..4 {
        let scene = Scene::start(number, rng);
        wrong.extend(scene.scan(rng).await.into_iter().map(|fault| format!("scan: {fault}")));
    }
    let scene = Scene::start(4, rng);
    for number in 0..20 {
        let key = Key::new(&format!("pay_{number}")).expect("it has a text");
        wrong.extend(scene.remove(&key, rng).await.into_iter().map(|fault| format!("removal: {fault}")));
    }
    for number in 0..4 {
        let key = Key::new(&format!("marked_{number}")).expect("it has a text");
        wrong.extend(scene.remove_marked(&key, rng).await.map(|fault| format!("removal after a mark: {fault}")));
    }
    network::set_conditions(Conditions { rng: rng.fork(), delay_ms: 1, lost: 0 });
    wrong
}

/// A server, or a cluster of two, with a function and an operator.
struct Scene {
    cluster: Cluster,
    namespace: &'static str,
    /// The host of the operator.
    viewer: String,
    records: Records,
    /// That of the function.
    store: RedisStore,
}

impl Scene {
    fn start(number: usize, rng: &mut Rng) -> Self {
        let names: Vec<_> = (0..rng.draw(1..3)).map(|server| format!("viewed{number}{server}")).collect();
        let cluster = Cluster::start(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let namespace = *rng.pick(&NAMESPACES);
        let settings = |client: &str| {
            let url = format!("redis://{}", address(&names[0], client)).parse().expect("this is a valid URL");
            let mut settings = RedisSettings::new(url, namespace);
            (settings.cluster, settings.timeout) = (names.len() > 1, TIMEOUT);
            settings
        };
        let viewer = format!("viewer{number}");
        let records = Records::new(&settings(&viewer)).expect("these settings are valid");
        let store = RedisStore::new(&settings(&format!("owner{number}"))).expect("these settings are valid");
        Self { cluster, namespace, viewer, records, store }
    }

    /// The value of this key, as it is stored.
    fn value(&self, key: &Key) -> Option<Value> {
        self.cluster.value(self.records.redis_key(key).as_bytes())
    }

    async fn acquire(&self, key: &Key, rng: &mut Rng) -> Option<Claim> {
        self.acquire_for(key, u8::from(rng.happens(150)), *rng.pick(&[SHORT, LONG])).await
    }

    async fn acquire_for(&self, key: &Key, payload: u8, lease: Duration) -> Option<Claim> {
        let mut request = AcquireRequest::new(key.clone());
        request.fingerprint = Fingerprint::of(&[payload]);
        request.lease = lease;
        match self.store.acquire(request).await {
            Ok(Acquire::Acquired(claim) | Acquire::AcquiredStale(claim)) => Some(claim),
            Ok(_) | Err(StoreError::NotARecord(_)) => None,
            Err(error) => unreachable!("nothing fails: {error}"),
        }
    }

    async fn settle(&self, claim: &Claim, rng: &mut Rng) {
        let result: Vec<_> = (0..rng.draw(0..40)).map(|_| rng.byte()).collect();
        let settled = match rng.draw(0..7) {
            0 | 1 => self.store.complete(claim, StoredResult::Inline(&result)).await,
            2 => self.store.complete(claim, StoredResult::NotKept).await,
            3 => self.store.release(claim.request(), Some(claim)).await,
            _ => self.store.fail(claim, Failure { uncertain: rng.happens(500), permanent: rng.happens(300) }).await,
        };
        assert!(matches!(settled, Ok(_) | Err(StoreError::NotARecord(_))), "nothing fails: {settled:?}");
    }
}
