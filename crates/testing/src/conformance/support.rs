//! Attempts, claims and assertions that the rows share.

use std::time::Duration;

use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Fingerprint, Key, MessageIdHash, Settled, Store, StoreError,
};
use tokio::time::sleep;

pub(super) const CLEAN: Failure = Failure { uncertain: false, permanent: false };
pub(super) const UNCERTAIN: Failure = Failure { uncertain: true, permanent: false };
pub(super) const PERMANENT: Failure = Failure { uncertain: false, permanent: true };
pub(super) const PARKED: Failure = Failure { uncertain: true, permanent: true };

/// A lease that does not end during a row.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A lease or a retention whose end a row waits for.
pub(super) const SHORT: Duration = Duration::from_millis(20);

/// A value with some fields changed. `AcquireRequest` has no update syntax outside its crate.
macro_rules! with {
    ($base:expr, $($field:ident = $value:expr),+ $(,)?) => {{
        let mut changed = $base;
        $(changed.$field = $value;)+
        changed
    }};
}
pub(super) use with;

/// Asserts that an acquire returns an answer of this pattern.
macro_rules! assert_answer {
    ($store:expr, $request:expr, $answer:pat) => {
        let answer = $store.acquire($request).await.unwrap();
        assert!(matches!(answer, $answer), "{answer:?}");
    };
}
pub(super) use assert_answer;

pub(super) fn key(key: &str) -> Key {
    Key::new(key).unwrap()
}

/// An attempt at the key `pay_1` by a new owner.
pub(super) fn attempt(lease: Duration) -> AcquireRequest {
    with!(
        AcquireRequest::new(key("pay_1")),
        fingerprint = Fingerprint::of(b"12.50 EUR"),
        message = MessageIdHash::of("first"),
        lease = lease,
        longest_lease = Duration::from_secs(901),
        retention = LONG,
        max_attempts = 5,
    )
}

pub(super) fn by_another_message(lease: Duration) -> AcquireRequest {
    with!(attempt(lease), message = MessageIdHash::of("second"))
}

pub(super) fn with_another_payload(lease: Duration) -> AcquireRequest {
    with!(attempt(lease), fingerprint = Fingerprint::of(b"99.00 EUR"))
}

/// The claim of an acquire that must succeed and not be a recovery.
pub(super) async fn acquired(store: &impl Store, request: AcquireRequest) -> Claim {
    match store.acquire(request).await.unwrap() {
        Acquire::Acquired(claim) => {
            assert!(!claim.is_recovery());
            claim
        }
        other => panic!("not acquired: {other:?}"),
    }
}

/// The claim of an acquire that must be a recovery.
pub(super) async fn taken_over(store: &impl Store, request: AcquireRequest) -> Claim {
    match store.acquire(request).await.unwrap() {
        Acquire::AcquiredStale(claim) => {
            assert!(claim.is_recovery());
            claim
        }
        other => panic!("not taken over: {other:?}"),
    }
}

pub(super) async fn assert_settled(settled: impl Future<Output = Result<Settled, StoreError>>, expected: Settled) {
    assert_eq!(settled.await.unwrap(), expected);
}

/// The claim of an owner whose lease ended, and the claim of the owner that took over.
pub(super) async fn overtaken(store: &impl Store) -> (Claim, Claim) {
    let late = acquired(store, attempt(SHORT)).await;
    sleep(SHORT).await;
    let claim = taken_over(store, attempt(LONG)).await;
    (late, claim)
}

/// A claim whose record expired before it was settled, as after an eviction or a failover.
pub(super) async fn lost(store: &impl Store) -> Claim {
    expired(acquired(store, with!(attempt(SHORT), retention = SHORT)).await, LONG).await
}

/// The claim after its record expired. Its settlement creates the record with this retention.
pub(super) async fn expired(claim: Claim, retention: Duration) -> Claim {
    sleep(claim.request().retention.max(claim.request().lease) * 2).await;
    let request = with!(claim.request().clone(), retention = retention);
    match Acquire::claimed(request, claim.fence(), claim.attempt(), claim.is_recovery()) {
        Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => claim,
        other => panic!("{other:?}"),
    }
}
