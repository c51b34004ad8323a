//! Servers for the tests of this workspace, and replacements for what only AWS has. All listen on loopback, on free
//! ports, and end with their test.
//!
//! - `redis`, `postgres`: real servers; `cluster`: a small Redis Cluster; `sentinel`: a primary, a replica and
//!   sentinels
//! - `network`: services and clusters whose links can be cut
//! - `lambda`: a function's process under a Lambda Runtime API
//! - `http`: an HTTP server for webhooks and AWS APIs; `s3`, `secrets`: two of these APIs
//! - `sqs`: the API of SQS on simulated queues
//! - `collector`: an OpenTelemetry collector
//! - `elasticache`, `rds`: TLS proxies that check IAM tokens as AWS does, with `sigv4` and `tls`
//! - `front`: a TCP proxy that breaks connections
//! - `event`: SQS events
//! - `lines`: the log as fields
//! - `parts`: a store whose parts fail separately
//! - `work`: a work that follows a plan and records its runs, and one with a record of its own
//! - `torture`: processes, faults and counts for the torture tests

#![allow(missing_docs, reason = "used only by the tests of this workspace")]
#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::must_use_candidate, reason = "as above")]
#![allow(clippy::return_self_not_must_use, reason = "as above")]
#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

pub mod cluster;
pub mod collector;
pub mod elasticache;
pub mod event;
pub mod front;
pub mod http;
pub mod lambda;
pub mod lines;
pub mod network;
pub mod parts;
pub mod postgres;
pub mod rds;
pub mod redis;
pub mod s3;
pub mod secrets;
pub mod sentinel;
pub mod sigv4;
#[cfg(feature = "lambda")]
pub mod sqs;
pub mod tls;
#[cfg(feature = "lambda")]
pub mod torture;
pub mod work;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for an event that should occur at once. Test machines may be slow.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A value with some fields changed: `with!(Policy::default(), max_attempts = 3)`. Structs that may grow have no update
/// syntax outside their crate.
#[macro_export]
macro_rules! with {
    ($base:expr, $($field:ident = $value:expr),+ $(,)?) => {{
        let mut changed = $base;
        $(changed.$field = $value;)+
        changed
    }};
}

/// A path in the workspace.
pub fn workspace(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

/// The outcome of `event`, which must occur within [`TIMEOUT`].
pub async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, event).await.expect("the event occurs in time")
}

/// Returns once `condition` holds. Polls, for conditions without an event to await.
pub async fn until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    soon(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
