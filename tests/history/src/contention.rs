//! Owners that contend for few keys: short leases, payloads that differ, late and repeated calls, and calls that are
//! cancelled. They break rules that the core keeps, such as settling once, so they reach every branch of the scripts.

use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Fingerprint, Key, MessageIdHash, Store, StoredResult,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::rng::Rng;

const OWNERS_PER_CLIENT: u64 = 3;

/// For how long a key is used. Longer histories take longer to check.
pub const KEY_LASTS: Duration = Duration::from_millis(100);

/// Contends with a few owners on each of these stores, which are clients of one Redis.
///
/// # Panics
/// If an owner panics.
pub async fn contend<S: Store + 'static>(mut rng: Rng, clients: Vec<S>, lasts: Duration) {
    let begun = Instant::now();
    let mut owners = JoinSet::new();
    for client in clients.into_iter().map(Arc::new) {
        for _ in 0..OWNERS_PER_CLIENT {
            let (client, mut rng) = (Arc::clone(&client), rng.fork());
            owners.spawn(async move {
                while begun.elapsed() < lasts {
                    let (period, number) = (begun.elapsed().as_millis() / KEY_LASTS.as_millis(), rng.draw(0..u64::MAX));
                    match rng.draw(0..20) {
                        0 | 3 => settle_late(&mut rng, &*client, key(&format!("r{number:x}"))).await,
                        1 => shorten(&*client, key(&format!("s{number:x}"))).await,
                        2 => settle_earlier_claim(&mut rng, &*client, key(&format!("e{number:x}"))).await,
                        4..10 => {
                            let kind = *rng.pick(&[0, 1, 3, 3]);
                            take_turns(&mut rng, &*client, key(&format!("t{number:x}-{kind}"))).await;
                        }
                        _ => {
                            let kind = *rng.pick(&[0, 0, 0, 1, 1, 1, 2, 2, 3, 3]);
                            attempt(&mut rng, &*client, key(&format!("k{period}-{kind}"))).await;
                        }
                    }
                    sleep(rng.ms(0..6)).await;
                }
            });
        }
    }
    while let Some(owner) = owners.join_next().await {
        owner.expect("no owner panics");
    }
}

fn key(text: &str) -> Key {
    Key::new(text).expect("this text is a key")
}

/// One attempt at a key. Its owner breaks rules that the core keeps, such as settling once.
async fn attempt(rng: &mut Rng, store: &impl Store, key: Key) {
    let request = request(rng, key);
    // Some owners give up before the reply.
    let limit = if rng.draw(0..30) == 0 { Duration::from_micros(rng.draw(0..600)) } else { Duration::from_secs(5) };
    let claim = match timeout(limit, store.acquire(request.clone())).await {
        Ok(Ok(Acquire::Acquired(claim) | Acquire::AcquiredStale(claim))) => claim,
        Ok(Ok(_)) => return,
        Ok(Err(_)) | Err(_) => {
            if rng.draw(0..2) == 0 {
                let _ = store.release(&request, None).await;
            }
            return;
        }
    };
    sleep(rng.ms(0..40)).await;
    settle(rng, store, &claim).await;
    // Late calls, when others have acquired and settled.
    while rng.draw(0..2) == 0 {
        sleep(rng.ms(0..40)).await;
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
            let claim = rng.pick(&claims);
            settle(rng, store, claim).await;
        }
        sleep(rng.ms(0..12)).await;
    }
    // Shows the state of the record.
    let _ = store.acquire(request(rng, key)).await;
}

/// A claim is settled after its record was lost, and maybe another owner has failed. The claim may be a recovery, and
/// have the payload of the other owner, another one, or none.
async fn settle_late(rng: &mut Rng, store: &impl Store, key: Key) {
    let payloads = [Fingerprint::of(b"one"), Fingerprint::of(b"other"), Fingerprint::NONE];
    let [payload, other_payload] = *rng.pick(&[[0, 0], [0, 0], [0, 1], [0, 2], [2, 0], [2, 2]]);
    let acquire = async |payload: usize| match store.acquire(short_request(&key, payloads[payload], 5, 20)).await {
        Ok(Acquire::Acquired(claim) | Acquire::AcquiredStale(claim)) => Some(claim),
        _ => None,
    };
    if rng.draw(0..4) > 0 {
        let _abandoned = acquire(payload).await;
        sleep(Duration::from_millis(8)).await;
    }
    let late = acquire(payload).await;
    sleep(Duration::from_millis(30)).await;
    let Some(late) = late else { return };
    let other = if rng.draw(0..4) > 0 { acquire(other_payload).await } else { None };
    if let Some(other) = &other {
        let failure = Failure { uncertain: rng.draw(0..3) == 0, permanent: rng.draw(0..2) == 0 };
        let _ = store.fail(other, failure).await;
    }
    for _ in 0..rng.draw(1..3) {
        settle(rng, store, &late).await;
    }
    // Shows the state of the record, and then whether it has expired.
    if other.is_some() {
        let _ = acquire(other_payload).await;
    }
    sleep(Duration::from_millis(30)).await;
    let _ = acquire(payload).await;
}

/// A record whose lease was shortened is completed. It must still expire.
async fn shorten(store: &impl Store, key: Key) {
    let request = |lease_ms, longest_ms| {
        let mut request = short_request(&key, Fingerprint::of(b"one"), lease_ms, 20);
        request.longest_lease = Duration::from_millis(longest_ms);
        request
    };
    if let Ok(Acquire::Acquired(claim)) = store.acquire(request(40, 60_000)).await {
        let _ = store.acquire(request(10, 10)).await;
        let _ = store.complete(&claim, StoredResult::Inline(b"done")).await;
        sleep(Duration::from_millis(50)).await;
        let _ = store.acquire(request(10, 10)).await;
    }
}

/// An owner whose record expired acquires again, and its earlier claim is settled, which applies from the later claim.
async fn settle_earlier_claim(rng: &mut Rng, store: &impl Store, key: Key) {
    let request = || {
        let mut request = short_request(&key, Fingerprint::of(b"one"), 5, 40);
        request.failed_retention = Duration::from_millis(60);
        request
    };
    let (request, other) = (request(), request());
    if let Ok(Acquire::Acquired(earlier)) = store.acquire(request.clone()).await {
        sleep(Duration::from_millis(45)).await;
        let _ = store.acquire(request).await;
        if rng.draw(0..2) == 0 {
            let _ = store.complete(&earlier, StoredResult::Inline(b"done")).await;
        } else {
            let _ = store.fail(&earlier, Failure { uncertain: false, permanent: true }).await;
            sleep(Duration::from_millis(27)).await;
        }
        let _ = store.acquire(other).await;
    }
}

/// A request of a new owner whose record expires soon.
fn short_request(key: &Key, fingerprint: Fingerprint, lease_ms: u64, retention_ms: u64) -> AcquireRequest {
    let mut request = AcquireRequest::new(key.clone());
    (request.lease, request.retention) = (Duration::from_millis(lease_ms), Duration::from_millis(retention_ms));
    request.fingerprint = fingerprint;
    request
}

fn request(rng: &mut Rng, key: Key) -> AcquireRequest {
    // The model knows no payloads without a fingerprint, so only some keys have them. Records of other keys expire
    // soon.
    let (payloads, retentions): (&[u64], &[u64]) = match key.as_str().as_bytes().last() {
        Some(b'0') => (&[0, 1, 2], &[60_000]),
        Some(b'3') => (&[1, 2], &[60_000, 25, 25]),
        _ => (&[1, 1, 2], &[60_000]),
    };
    // Owners that take turns should not wait long for each other.
    let leases: &[u64] = if key.as_str().starts_with('t') { &[5, 10] } else { &[10, 20, 20, 40, 150] };
    let mut one_of = |choices| *rng.pick(choices);
    let fingerprint = match one_of(payloads) {
        0 => Fingerprint::NONE,
        payload => Fingerprint::of(&payload.to_be_bytes()),
    };
    let mut request = AcquireRequest::new(key);
    request.fingerprint = fingerprint;
    request.message = MessageIdHash::of(&one_of(&[1, 1, 2]).to_string());
    request.lease = Duration::from_millis(one_of(leases));
    request.longest_lease = Duration::from_millis(one_of(&[60_000, 60_000, 60_000, 25]));
    request.retention = Duration::from_millis(one_of(retentions));
    request.max_attempts = u8::try_from(one_of(&[3, 3, 3, 2])).unwrap_or(3);
    request.failed_retention = Duration::from_millis(one_of(&[60_000, 60_000, 20]));
    request
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
