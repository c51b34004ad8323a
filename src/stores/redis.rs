//! Records in Redis or Valkey, on one server or a cluster: ElastiCache, Serverless, MemoryDB.
//!
//! - `batching`: calls that are ready together share a run of a script
//! - `connection`: the connection to a server or a cluster, and its repair
//! - `credentials`: how to sign in, by `iam` or a secret
//! - `preflight`: findings about the server, for the log
//! - `records`: what an operator sees of the records and does to them
//! - `scripts`: each verb's script, its arguments and its answers
//! - `url`: where the server is

mod batching;
mod connection;
mod credentials;
mod iam;
mod preflight;
#[cfg(feature = "records")]
pub mod records;
mod scripts;
mod url;

use std::time::Duration;

use crate::record::{Failure, Kept, Key};
use crate::store::{Acquire, Attempt, Claim, Settled, Store, StoreError};

use batching::Batcher;
use connection::Connection;
use scripts::{Call, FOREIGN};

pub use credentials::RedisCredentials;
pub use iam::{ElastiCacheName, IamSettings};
pub use url::RedisUrl;

/// Where the records are.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// The server; of a cluster any node.
    pub url: RedisUrl,
    /// Whether to speak the cluster protocol. ElastiCache Serverless wants it too.
    pub cluster: bool,
    /// The longest wait for a connection, and for a reply.
    pub timeout: Duration,
    /// The logical consumer: first part of every Redis key.
    pub namespace: String,
    /// Who the store says it is.
    pub credentials: RedisCredentials,
}

/// A [`Store`] in Redis or Valkey. It connects at its first use, and again whenever the connection
/// is in doubt.
#[derive(Clone, Debug)]
pub struct RedisStore {
    namespace: String,
    batcher: Batcher,
}

impl RedisStore {
    /// The store of these settings. Nothing is connected yet.
    ///
    /// # Errors
    /// A sentence on what is wrong with the URL or the credentials, without the URL.
    pub fn new(settings: &RedisSettings) -> Result<Self, String> {
        let batcher = Batcher::new(Connection::new(settings)?);
        Ok(Self { namespace: settings.namespace.clone(), batcher })
    }

    /// How many findings a look at the server had that could cost records. `None` until it was
    /// looked at, which is at the first connection.
    #[must_use]
    pub fn findings(&self) -> Option<u64> {
        self.batcher.connection().findings()
    }

    async fn ask(&self, key: &Key, call: impl FnOnce(String) -> Call) -> Result<Vec<u8>, StoreError> {
        let answer = self.batcher.send(call(redis_key(&self.namespace, key))).await?;
        if answer == FOREIGN { Err(StoreError::Foreign(redis_key(&self.namespace, key))) } else { Ok(answer) }
    }
}

/// `<namespace>:<key>`, which an operator can read.
fn redis_key(namespace: &str, key: &Key) -> String {
    [namespace, ":", &key.stored()].concat()
}

/// Read an answer as each verb would: for whoever tries any bytes.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub fn decode(answer: &[u8]) {
    use crate::record::{Fingerprint, MessageTag, Owner};

    let attempt = Attempt {
        key: Key::new("key").expect("it is not empty"),
        owner: Owner::random(),
        fingerprint: Fingerprint::NONE,
        message: MessageTag::of(""),
        lease: Duration::ZERO,
        longest_lease: Duration::ZERO,
        retention: Duration::ZERO,
        max_attempts: 1,
    };
    let _ = scripts::acquired(answer, attempt);
    let _ = scripts::settled(answer);
    #[cfg(feature = "records")]
    records::decode(answer);
}

impl Store for RedisStore {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        let answer = self.ask(&attempt.key, |key| scripts::acquire(key, &attempt)).await?;
        scripts::acquired(&answer, attempt)
    }

    async fn complete(&self, claim: &Claim, result: Kept<&[u8]>) -> Result<Settled, StoreError> {
        scripts::settled(&self.ask(claim.key(), |key| scripts::complete(key, claim, result)).await?)
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        scripts::settled(&self.ask(claim.key(), |key| scripts::fail(key, claim, failure)).await?)
    }

    async fn release(&self, attempt: &Attempt, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        scripts::settled(&self.ask(&attempt.key, |key| scripts::release(key, attempt, claim)).await?)
    }
}
