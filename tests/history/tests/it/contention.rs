//! Many owners contend for few keys of a real Redis: short leases, payloads that differ, late and repeated calls, calls
//! that are cut off.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use harness::torture::chaos::{Pair, Rng};
use harness::torture::tally::Tally;
use harness::with;
use history::{History, RecordedStore, Report};
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Fingerprint, Key, MessageIdHash, Store, StoredResult,
};
use idempotent_sqs::{RedisSettings, RedisStore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const CLIENTS: u64 = 4;
const OWNERS_PER_CLIENT: u64 = 3;

/// For how long a key is used. Longer histories take longer to check.
pub(crate) const KEY_LASTS: Duration = Duration::from_millis(100);

/// Contends on the Redis at `url`, and records the calls of each client in a file in this directory.
pub(crate) async fn contend(seed: u64, url: &str, directory: &Path, lasts: Duration) {
    let begun = Instant::now();
    // Each run has its own records.
    let namespace = format!("contention-{:08x}", getrandom::u32().unwrap());
    let mut owners = JoinSet::new();
    for client in 0..CLIENTS {
        let mut settings = RedisSettings::new(url.parse().unwrap(), &*namespace);
        settings.timeout = Duration::from_millis(300);
        let store = RecordedStore::new(RedisStore::new(&settings).unwrap(), directory).unwrap();
        let store = Arc::new(store);
        for owner in 0..OWNERS_PER_CLIENT {
            let (store, mut rng) = (Arc::clone(&store), Rng::new(seed * 100 + client * 10 + owner));
            owners.spawn(async move {
                while begun.elapsed() < lasts {
                    let (period, number) = (begun.elapsed().as_millis() / KEY_LASTS.as_millis(), rng.draw(0..u64::MAX));
                    match rng.draw(0..20) {
                        0 => release_late(&*store, Key::new(&format!("r{number:x}")).unwrap()).await,
                        1..10 => {
                            let kind = one_of(&mut rng, &[0, 1, 3, 3]);
                            take_turns(&mut rng, &*store, Key::new(&format!("t{number:x}-{kind}")).unwrap()).await;
                        }
                        _ => {
                            let kind = one_of(&mut rng, &[0, 0, 0, 1, 1, 1, 2, 2, 3, 3]);
                            attempt(&mut rng, &*store, Key::new(&format!("k{period}-{kind}")).unwrap()).await;
                        }
                    }
                    sleep(rng.millis(0..6)).await;
                }
            });
        }
    }
    while owners.join_next().await.transpose().unwrap().is_some() {}
}

/// One attempt at a key. Its owner breaks rules that the core keeps, such as settling once.
async fn attempt(rng: &mut Rng, store: &impl Store, key: Key) {
    let request = request(rng, key);
    // Some owners give up before the reply.
    let patience = if rng.draw(0..30) == 0 { Duration::from_micros(rng.draw(0..600)) } else { Duration::from_secs(5) };
    let claim = match timeout(patience, store.acquire(request.clone())).await {
        Ok(Ok(Acquire::Acquired(claim) | Acquire::AcquiredStale(claim))) => claim,
        Ok(Ok(_)) => return,
        Ok(Err(_)) | Err(_) => {
            if rng.draw(0..2) == 0 {
                let _ = store.release(&request, None).await;
            }
            return;
        }
    };
    sleep(rng.millis(0..40)).await;
    settle(rng, store, &claim).await;
    // Late calls, when others have acquired and settled.
    while rng.draw(0..2) == 0 {
        sleep(rng.millis(0..40)).await;
        if rng.draw(0..4) == 0 {
            let _ = store.acquire(request.clone()).await;
        } else {
            settle(rng, store, &claim).await;
        }
    }
}

/// A few owners of one key take turns, which leads to rare states: several that fail, release and settle late.
async fn take_turns(rng: &mut Rng, store: &impl Store, key: Key) {
    let mut claims = Vec::new();
    for _ in 0..rng.draw(4..12) {
        if claims.is_empty() || rng.draw(0..3) == 0 {
            let acquired = store.acquire(request(rng, key.clone())).await;
            if let Ok(Acquire::Acquired(claim) | Acquire::AcquiredStale(claim)) = acquired {
                claims.push(claim);
            }
        } else {
            let nth = rng.draw(0..claims.len() as u64);
            settle(rng, store, &claims[usize::try_from(nth).unwrap()]).await;
        }
        sleep(rng.millis(0..12)).await;
    }
    // Shows the state of the record.
    let _ = store.acquire(request(rng, key)).await;
}

/// A recovery is released when its record was lost and another payload has failed. It must leave no doubt about that one.
async fn release_late(store: &impl Store, key: Key) {
    let acquire = async |payload: &[u8]| {
        let (lease, retention) = (Duration::from_millis(5), Duration::from_millis(20));
        let fingerprint = Fingerprint::of(payload);
        let request =
            with!(AcquireRequest::new(key.clone()), fingerprint = fingerprint, lease = lease, retention = retention);
        match store.acquire(request).await {
            Ok(Acquire::Acquired(claim) | Acquire::AcquiredStale(claim)) => Some(claim),
            _ => None,
        }
    };
    let _abandoned = acquire(b"one").await;
    sleep(Duration::from_millis(8)).await;
    let recovery = acquire(b"one").await;
    sleep(Duration::from_millis(30)).await;
    if let (Some(recovery), Some(other)) = (recovery, acquire(b"other").await) {
        let _ = store.fail(&other, Failure { uncertain: false, permanent: false }).await;
        let _ = store.release(recovery.request(), Some(&recovery)).await;
        let _ = acquire(b"other").await;
    }
}

fn one_of(rng: &mut Rng, choices: &[u64]) -> u64 {
    choices[usize::try_from(rng.draw(0..choices.len() as u64)).unwrap()]
}

fn request(rng: &mut Rng, key: Key) -> AcquireRequest {
    // The model knows no payloads without a fingerprint, so only some keys have them. Records of
    // other keys expire soon.
    let (payloads, retentions): (&[u64], &[u64]) = match key.as_str().as_bytes().last() {
        Some(b'0') => (&[0, 1, 2], &[60_000]),
        Some(b'3') => (&[1, 2], &[60_000, 25, 25]),
        _ => (&[1, 1, 2], &[60_000]),
    };
    // Owners that take turns should not wait long for each other.
    let leases: &[u64] = if key.as_str().starts_with('t') { &[5, 10] } else { &[10, 20, 20, 40, 150] };
    let mut one_of = |choices| one_of(rng, choices);
    let fingerprint = match one_of(payloads) {
        0 => Fingerprint::NONE,
        payload => Fingerprint::of(&payload.to_be_bytes()),
    };
    with!(
        AcquireRequest::new(key),
        fingerprint = fingerprint,
        message = MessageIdHash::of(&one_of(&[1, 1, 2]).to_string()),
        lease = Duration::from_millis(one_of(leases)),
        longest_lease = Duration::from_millis(one_of(&[60_000, 60_000, 60_000, 25])),
        retention = Duration::from_millis(one_of(retentions)),
        max_attempts = 3,
        failed_retention = Duration::from_millis(one_of(&[60_000, 60_000, 20])),
    )
}

async fn settle(rng: &mut Rng, store: &impl Store, claim: &Claim) {
    match rng.draw(0..20) {
        // A completed key is of little use.
        0..3 => drop(store.complete(claim, StoredResult::Inline(b"done")).await),
        3..12 => {
            let failure = Failure { uncertain: rng.draw(0..3) == 0, permanent: rng.draw(0..6) == 0 };
            drop(store.fail(claim, failure).await);
        }
        12..17 => drop(store.release(claim.request(), Some(claim)).await),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_of_contending_owners_is_that_of_the_state_machine() {
    let mut pair = Pair::start().await;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("redis://127.0.0.1:{}", pair.front.port);
    let (mut rng, tally) = (Rng::new(1), Tally::default());
    let lasts = Duration::from_secs(3);
    let contended = contend(1, &url, directory.path(), lasts);
    let faults = async {
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            sleep(rng.millis(100..300)).await;
            pair.harm(&mut rng, &tally).await;
        }
    };
    tokio::join!(contended, faults);
    let report = Report::of_calls(&History::read(directory.path()).unwrap(), 1);
    println!("{report}");
    if report.faults().next().is_some() {
        let faults: Vec<_> = report.faults().collect();
        panic!("`check-history {}` repeats the verdict: {faults:#?}", directory.keep().display());
    }
    assert!(report.steps > 300 && report.unanswered > 0, "too little happened");
}
