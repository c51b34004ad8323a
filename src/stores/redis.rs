//! Records in Redis or Valkey, on one server or a cluster: ElastiCache, Serverless, MemoryDB.
//!
//! - [`calls`]: each verb's script, its arguments and its answers
//! - [`checkup`]: a look at the server, for the log
//! - [`coalesce`]: what is ready together travels together
//! - [`credentials`]: who the store says it is, by [`iam`] or a secret
//! - [`link`]: the connection, and its repair
//! - `records`: what an operator sees of the records and does to them
//! - [`url`]: where the server is

mod calls;
mod checkup;
mod coalesce;
mod credentials;
mod iam;
mod link;
#[cfg(feature = "records")]
pub mod records;
mod url;

use std::time::Duration;

use crate::record::{Failure, Kept, Key};
use crate::store::{Acquire, Attempt, Claim, Settled, Store, StoreError};

use calls::{Call, FOREIGN};
use coalesce::Coalescer;
use link::Link;

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
    coalescer: Coalescer,
}

impl RedisStore {
    /// The store of these settings. Nothing is connected yet.
    ///
    /// # Errors
    /// A sentence on what is wrong with the URL or the credentials, without the URL.
    pub fn new(settings: &RedisSettings) -> Result<Self, String> {
        let coalescer = Coalescer::new(Link::new(settings)?);
        Ok(Self { namespace: settings.namespace.clone(), coalescer })
    }

    /// How many findings a look at the server had that could cost records. `None` until it was
    /// looked at, which is at the first connection.
    #[must_use]
    pub fn findings(&self) -> Option<u64> {
        self.coalescer.link().findings()
    }

    async fn ask(&self, key: &Key, call: impl FnOnce(String) -> Call) -> Result<Vec<u8>, StoreError> {
        let answer = self.coalescer.send(call(redis_key(&self.namespace, key))).await?;
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
    let _ = calls::acquired(answer, attempt);
    let _ = calls::settled(answer);
    #[cfg(feature = "records")]
    records::decode(answer);
}

impl Store for RedisStore {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        let answer = self.ask(&attempt.key, |key| calls::acquire(key, &attempt)).await?;
        calls::acquired(&answer, attempt)
    }

    async fn complete(&self, claim: &Claim, result: Kept<&[u8]>) -> Result<Settled, StoreError> {
        calls::settled(&self.ask(claim.key(), |key| calls::complete(key, claim, result)).await?)
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        calls::settled(&self.ask(claim.key(), |key| calls::fail(key, claim, failure)).await?)
    }

    async fn release(&self, attempt: &Attempt) -> Result<Settled, StoreError> {
        calls::settled(&self.ask(&attempt.key, |key| calls::release(key, attempt)).await?)
    }
}
