//! Owners that contend for keys, each by the whole core, with a work whose effects are counted.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::torture::faults::Rng;
use harness::{until, with};
use history::{Answer, Effect, FailoverVerdict, History, RecordedStore, monotonic_us};
use idempotent_sqs::idempotency::{Deadline, Fingerprint};
use idempotent_sqs::{
    Claim, Decision, Delivery, Idempotency, Key, Outcome, Policy, RedisSettings, RedisStore, WorkError, work_fn,
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::waiting::WaitingStore;

/// Clients of each side.
const CLIENTS: u64 = 2;
const OWNERS_PER_CLIENT: u64 = 3;

/// How long a key counts as new. Earlier keys are delivered again until the end.
const KEY_LASTS: Duration = Duration::from_millis(40);

/// The clients of both sides, near and far, and what they see.
pub(super) struct Load {
    directory: TempDir,
    pub(super) namespace: String,
    effects: Arc<Mutex<Vec<Effect>>>,
    /// The keys that were acknowledged.
    acknowledged: Arc<Mutex<Vec<String>>>,
    /// Those whose work ran and was recorded, by side.
    completed: [Arc<Mutex<Vec<String>>>; 2],
    over: Arc<AtomicBool>,
    owners: JoinSet<()>,
    seed: u64,
    begun: Instant,
}

impl Load {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            namespace: format!("failover-{:08x}", getrandom::u32().unwrap()),
            effects: Arc::default(),
            acknowledged: Arc::default(),
            completed: Default::default(),
            over: Arc::default(),
            owners: JoinSet::new(),
            seed,
            begun: Instant::now(),
        }
    }

    /// Starts the clients of a side, which use only some keys, on the Redis at `url`. They wait after each write until
    /// `replicas` of these servers have it.
    pub(super) fn start(
        &mut self,
        side: usize,
        (url, cluster): (String, bool),
        (replicas, servers): (u8, Vec<String>),
        uses: impl Fn(&str) -> bool + Clone + Send + 'static,
    ) {
        let directory = self.side(side);
        std::fs::create_dir(&directory).unwrap();
        for client in 0..CLIENTS {
            let settings = RedisSettings::new(url.parse().unwrap(), &*self.namespace);
            let settings = with!(settings, timeout = Duration::from_millis(250), cluster = cluster);
            let store = RedisStore::new(&settings).unwrap();
            let (namespace, servers) = (self.namespace.clone(), servers.clone());
            let store = WaitingStore { store, namespace, replicas, servers, primary: tokio::sync::Mutex::default() };
            let store = RecordedStore::new(store, &directory).unwrap();
            let policy = with!(Policy::default(), lease_grace = Duration::from_millis(100));
            let idempotency = Arc::new(Idempotency::new(store, policy));
            for owner in 0..OWNERS_PER_CLIENT {
                let number = (side as u64 * CLIENTS + client) * OWNERS_PER_CLIENT + owner;
                let rng = Rng::new(self.seed * 1000 + number);
                let (idempotency, over, uses) = (Arc::clone(&idempotency), Arc::clone(&self.over), uses.clone());
                let (effects, acknowledged) = (Arc::clone(&self.effects), Arc::clone(&self.acknowledged));
                let (completed, begun) = (Arc::clone(&self.completed[side]), self.begun);
                self.owners.spawn(async move {
                    let mut owner = Owner { rng, idempotency, effects, acknowledged, completed, begun };
                    while !over.load(Ordering::SeqCst) {
                        let key = owner.key();
                        if uses(&key) {
                            owner.receive(key).await;
                            let pause = owner.rng.millis(0..8);
                            sleep(pause).await;
                        }
                    }
                });
            }
        }
    }

    fn side(&self, side: usize) -> PathBuf {
        self.directory.path().join(["near", "far"][side])
    }

    /// Waits until the clients of each side have completed some more keys of those that the fault affects. These are
    /// more than one for each owner, because a run that goes on may have been recorded earlier.
    pub(super) async fn continues(&self, is_affected: impl Fn(&str) -> bool) {
        let completed = |side: &Mutex<Vec<String>>| side.lock().unwrap().iter().filter(|key| is_affected(key)).count();
        for side in &self.completed {
            let enough = completed(side) + 20;
            until(|| async { completed(side) >= enough }).await;
        }
    }

    /// Ends the load.
    pub(super) async fn end(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        while self.owners.join_next().await.transpose().unwrap().is_some() {}
    }

    pub(super) fn history(&self, side: usize) -> History {
        History::read(&self.side(side)).unwrap()
    }

    /// Whether owners of both sides got the same fence for a key. A fence is the time of its server, µs, so two
    /// primaries can give the same one, and the effects of the two claims cannot be told apart. Then the run is
    /// repeated.
    pub(super) fn has_equal_fences(&self) -> bool {
        let [near, far] = [0, 1].map(|side| {
            let operations = self.history(side).keys.into_values().flatten();
            let claims = operations.filter_map(|operation| match operation.answer {
                Answer::Acquired { fence, .. } => Some((operation.call.key().to_owned(), fence)),
                _ => None,
            });
            claims.collect::<HashSet<_>>()
        });
        !near.is_disjoint(&far)
    }

    pub(super) fn effects(&self) -> Vec<Effect> {
        self.effects.lock().unwrap().clone()
    }

    /// Adds the messages that were deleted without an effect, and keeps the files if anything is wrong.
    pub(super) fn complete(mut self, mut verdict: FailoverVerdict) -> FailoverVerdict {
        let effects = self.effects();
        let acknowledged = self.acknowledged.lock().unwrap().clone().into_iter();
        let without = acknowledged.filter(|key| !effects.iter().any(|effect| effect.key == *key));
        verdict.wrong.extend(without.map(|key| format!("{key}: acknowledged without its effect")));
        if !verdict.wrong.is_empty() {
            self.directory.disable_cleanup(true);
            println!("the history is in {}", self.directory.path().display());
        }
        verdict
    }
}

type Core = Idempotency<RecordedStore<WaitingStore>>;

struct Owner {
    rng: Rng,
    idempotency: Arc<Core>,
    effects: Arc<Mutex<Vec<Effect>>>,
    acknowledged: Arc<Mutex<Vec<String>>>,
    completed: Arc<Mutex<Vec<String>>>,
    begun: Instant,
}

impl Owner {
    /// A key of this period, which other owners deliver too, or an earlier one.
    fn key(&mut self) -> String {
        let now = u64::try_from(self.begun.elapsed().as_millis() / KEY_LASTS.as_millis()).unwrap();
        let period = if self.rng.draw(0..3) > 0 { now } else { self.rng.draw(0..now + 1) };
        format!("k{period}-{}", self.rng.draw(0..3))
    }

    /// One delivery of this key.
    async fn receive(&mut self, key: String) {
        let (takes, fails) = (self.rng.millis(0..30), self.rng.draw(0..25) == 0);
        let effects = Arc::clone(&self.effects);
        let work = work_fn(move |claim: &Claim, (): &()| {
            let (key, fence) = (claim.key().as_str().to_owned(), claim.fence().0);
            effects.lock().unwrap().push(Effect {
                key,
                fence,
                is_recovery: claim.is_recovery(),
                at_us: monotonic_us(),
            });
            async move {
                sleep(takes).await;
                if fails { Err(WorkError::uncertain("no answer")) } else { Ok(Vec::new()) }
            }
        });
        let delivery = Delivery::new(Key::new(&key).unwrap())
            .fingerprint(Fingerprint::of(key.as_bytes()))
            .deadline(Deadline::within(Duration::from_millis(800)));
        let run = self.idempotency.run(&delivery, &work, &());
        // As in a process that is killed.
        let killed_after = if self.rng.draw(0..40) == 0 { self.rng.millis(0..30) } else { Duration::from_secs(60) };
        if let Ok(Ok(report)) = timeout(killed_after, run).await
            && report.decision(1) == Decision::Ack
        {
            if matches!(report.outcome, Outcome::Done { .. }) {
                self.completed.lock().unwrap().push(key.clone());
            }
            self.acknowledged.lock().unwrap().push(key);
        }
    }
}
