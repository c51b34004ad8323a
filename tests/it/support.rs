pub(crate) mod elasticache;
pub(crate) mod event;
pub(crate) mod front;
pub(crate) mod http;
pub(crate) mod lambda;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "postgres")]
pub(crate) mod rds;
pub(crate) mod redis;
pub(crate) mod s3;
pub(crate) mod secrets;
pub(crate) mod sigv4;
pub(crate) mod tls;
pub(crate) mod work;

use std::future::Future;
use std::time::Duration;

use idempotent_sqs::record::{Fingerprint, Key, MessageTag, Owner};
use idempotent_sqs::store::Attempt;

/// Longest wait for anything that should happen at once. Machines under test may be slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An attempt at this key, whose lease outlives any test.
pub(crate) fn attempt(key: &str) -> Attempt {
    Attempt {
        key: Key::new(key).unwrap(),
        owner: Owner::random(),
        fingerprint: Fingerprint::of(b"payload"),
        message: MessageTag::of("message"),
        lease: Duration::from_secs(60),
        longest_lease: Duration::from_secs(901),
        retention: Duration::from_secs(600),
        max_attempts: 5,
    }
}

/// The outcome of `event`, which has to come.
pub(crate) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event).await.expect("it happens in time")
}

/// Returns once `condition` holds, asked again and again as there is no event to await.
pub(crate) async fn until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    soon(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
