//! A store whose parts fail separately, as the shards of a cluster do.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Key, Settled, Store, StoreError, StoredResult,
};
use idempotent_sqs::stores::MemoryStore;
use tokio::time::{Instant, sleep};

/// How long a call takes that has no reply: two tries with the default timeout.
pub const NO_REPLY: Duration = Duration::from_secs(1);

/// A store of three parts. A key begins with the name of its own. Until its time, a part executes acquires without a
/// reply, and nothing else.
pub struct Parts {
    pub records: MemoryStore,
    names: [&'static str; 3],
    until: [Instant; 3],
    /// When records of acquires without a reply were released.
    released: Mutex<Vec<Instant>>,
}

impl Parts {
    /// Parts with these names, which reply from these times on.
    pub fn new(names: [&'static str; 3], until: [Instant; 3]) -> Self {
        Self { records: MemoryStore::default(), names, until, released: Mutex::default() }
    }

    pub fn released(&self) -> Vec<Instant> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn reply(&self, key: &Key) -> Result<(), StoreError> {
        if Instant::now() < self.until[self.part(key)] {
            sleep(NO_REPLY).await;
            return Err(StoreError::unavailable("no reply"));
        }
        Ok(())
    }
}

impl Store for Parts {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let key = request.key.clone();
        let answer = self.records.acquire(request).await;
        self.reply(&key).await?;
        answer
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.reply(claim.key()).await?;
        self.records.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.reply(claim.key()).await?;
        self.records.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.reply(&request.key).await?;
        self.released.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        self.records.release(request, claim).await
    }

    fn part(&self, key: &Key) -> usize {
        self.names.iter().position(|name| key.as_str().starts_with(name)).unwrap_or_default()
    }
}
