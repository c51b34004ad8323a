//! Records in Redis or Valkey, on one server or a cluster: ElastiCache, ElastiCache Serverless, MemoryDB, or your own,
//! also by Sentinel.
//!
//! - `batching`: calls that are made together share a script call
//! - `connection`: the connection to a server or a cluster
//! - `credentials`: authenticates connections
//! - `preflight`: checks the server's configuration
//! - [`records`]: the operator's view of the records
//! - `script_call`: a call of a script, which records share
//! - `scripts`: the scripts' arguments and replies
//! - `url`: the address of the server

mod batching;
mod connection;
mod credentials;
mod preflight;
pub mod records;
mod script_call;
mod scripts;
mod url;

use std::sync::Arc;
use std::time::Duration;

use crate::credentials::CredentialsSource;
use crate::idempotency::{Acquire, AcquireRequest, Claim, Failure, Key, Settled, Store, StoreError, StoredResult};

use batching::Batcher;
use connection::Connection;
use script_call::Request;
use scripts::NOT_A_RECORD;

#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use connection::simulation;
pub use url::{RedisUrl, RedisUrlError};

/// Settings of a [`RedisStore`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisSettings {
    /// The server, the sentinels that name it, or any node of a cluster.
    pub url: RedisUrl,
    /// Whether to use the cluster protocol. ElastiCache Serverless requires it, and Sentinel excludes it. Default:
    /// `false`.
    pub cluster: bool,
    /// Timeout for opening a connection, and for a reply. Connecting to a cluster or by Sentinel takes up to twice
    /// this time, and a call is tried at most twice. Default: 500 ms.
    pub timeout: Duration,
    /// Name of the logical consumer, the first part of every Redis key. It must not contain a colon.
    pub namespace: String,
    /// Source of the login. Default: `None`, the user and password of the URL.
    pub credentials: Option<Arc<dyn CredentialsSource>>,
}

impl RedisSettings {
    /// Default settings for this server and consumer.
    #[must_use]
    pub fn new(url: RedisUrl, namespace: impl Into<String>) -> Self {
        let timeout = Duration::from_millis(500);
        Self { url, cluster: false, timeout, namespace: namespace.into(), credentials: None }
    }
}

/// The client library rejected the settings, or they exclude each other. The message does not contain the URL.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RedisSettingsError(#[from] redis::RedisError);

/// A [`Store`] in Redis or Valkey. It connects at its first use, and again after a failed call. By Sentinel, it asks
/// the sentinels each time and connects only to a primary.
///
/// Use a store in one Tokio runtime that keeps running. If several runtimes share a store, one of them may send the
/// calls of the others: the runtime that made the first of several concurrent calls sends all of them. The runtime that
/// opened the connection reads the replies. While such a runtime does not run, for example a current-thread runtime
/// outside of `block_on`, calls of other runtimes may wait without a limit. When it ends, all calls that it has sent
/// and that are in flight fail.
#[derive(Clone, Debug)]
pub struct RedisStore {
    namespace: Arc<str>,
    batcher: Batcher,
}

impl RedisStore {
    /// Creates the store. No connection is opened yet. If the URL has TLS and the process has no default
    /// [provider of cryptography](https://docs.rs/rustls/latest/rustls/crypto/struct.CryptoProvider.html), aws-lc-rs
    /// becomes the default.
    ///
    /// # Errors
    /// [`RedisSettingsError`] if the client library rejects the URL, or if it has sentinels and
    /// [`RedisSettings::cluster`] is set.
    pub fn new(settings: &RedisSettings) -> Result<Self, RedisSettingsError> {
        let batcher = Batcher::new(Connection::new(settings)?);
        Ok(Self { namespace: settings.namespace.as_str().into(), batcher })
    }

    /// Number of settings of the server that could lose records, such as an eviction policy. They are logged as
    /// warnings. `None` until the first connection was opened and the check is done.
    #[must_use]
    pub fn findings(&self) -> Option<u64> {
        self.batcher.connection().findings()
    }

    async fn call(&self, key: &Key, request: impl FnOnce(String) -> Request) -> Result<Vec<u8>, StoreError> {
        let reply = self.batcher.send(request(redis_key(&self.namespace, key))).await?;
        if reply == NOT_A_RECORD { Err(StoreError::NotARecord(redis_key(&self.namespace, key))) } else { Ok(reply) }
    }
}

impl Store for RedisStore {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let reply = self.call(&request.key, |key| scripts::acquire(key, &request)).await?;
        scripts::acquired(&reply, request)
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        scripts::settled(&self.call(claim.key(), |key| scripts::complete(key, claim, result)).await?)
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        scripts::settled(&self.call(claim.key(), |key| scripts::fail(key, claim, failure)).await?)
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        scripts::settled(&self.call(&request.key, |key| scripts::release(key, request, claim)).await?)
    }

    /// The shard of a cluster, as the store last read it. 0 until then, and on a server.
    fn part(&self, key: &Key) -> usize {
        self.batcher.connection().part(&redis_key(&self.namespace, key))
    }
}

/// `<namespace>:<key>`, readable by an operator.
fn redis_key(namespace: &str, key: &Key) -> String {
    [namespace, ":", &key.stored()].concat()
}

/// Decodes a reply as each call would, for fuzzing.
#[doc(hidden)]
pub fn decode(reply: &[u8]) {
    let request = AcquireRequest::new(Key::new("key").expect("it is not empty"));
    let _ = scripts::acquired(reply, request);
    let _ = scripts::settled(reply);
    records::decode(reply);
}
