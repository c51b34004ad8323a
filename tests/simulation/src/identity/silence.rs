//! A source of logins to Redis that never returns one.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};
use idempotent_sqs::idempotency::{AcquireRequest, Store as _, error_chain};
use idempotent_sqs::{Key, RedisSettings, RedisStore};
use tokio::time::{Instant, timeout};

use crate::network::address;
use crate::redis::Cluster;

/// How long the store waits for a login, and how often a call does: docs of `CredentialsSource::login`.
const LIMIT: Duration = Duration::from_secs(4);
const TRIES: u32 = 2;

/// How long a call takes besides.
const SLACK: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Silent;

impl CredentialsSource for Silent {
    fn login<'a>(&'a self, _rejected: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(pending())
    }
}

/// What is wrong with a call that waits for a login.
pub async fn wait_for_login() -> Vec<String> {
    let cluster = Cluster::start(&["silent"]);
    let url = format!("redis://{}", address(cluster.servers[0].name(), "waiting")).parse();
    let mut settings = RedisSettings::new(url.expect("this is a valid URL"), "waiting");
    settings.credentials = Some(Arc::new(Silent));
    let store = RedisStore::new(&settings).expect("these settings are valid");
    let begun = Instant::now();
    let most = TRIES * LIMIT + SLACK;
    let acquire = store.acquire(AcquireRequest::new(Key::new("key").expect("it has a text")));
    let Ok(acquired) = timeout(2 * most, acquire).await else { return vec!["no end".to_owned()] };
    let took = begun.elapsed();
    let is_explained = acquired.as_ref().is_err_and(|error| error_chain(error).contains("returned none within 4 s"));
    if is_explained && (LIMIT..=most).contains(&took) {
        Vec::new()
    } else {
        vec![format!("{acquired:?} after {took:?}")]
    }
}
