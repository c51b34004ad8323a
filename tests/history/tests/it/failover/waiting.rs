//! A store that acknowledges a write only when replicas have it.

use std::time::Duration;

use idempotent_sqs::RedisStore;
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Claim, Failure, Settled, Store, StoreError, StoredResult};
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Longest wait for replicas.
const LIMIT: Duration = Duration::from_millis(200);

/// Waits after each write for this number of replicas. `WAIT` counts the writes of its own connection, so it follows a
/// write of its own, which replicas get after that of the store. The server must be the one that has the record.
pub(super) struct WaitingStore {
    pub(super) store: RedisStore,
    pub(super) namespace: String,
    pub(super) replicas: u8,
    /// The addresses of all servers.
    pub(super) servers: Vec<String>,
    pub(super) primary: Mutex<Option<MultiplexedConnection>>,
}

impl WaitingStore {
    /// The answer, once enough replicas have its write.
    async fn replicated<T>(
        &self,
        answer: Result<T, StoreError>,
        wrote: Option<&AcquireRequest>,
    ) -> Result<T, StoreError> {
        let Some(request) = wrote.filter(|_| self.replicas > 0) else { return answer };
        match timeout(LIMIT * 3, self.wait(request)).await {
            Ok(Ok(())) => answer,
            Ok(Err(error)) => Err(StoreError::unavailable(error)),
            Err(elapsed) => Err(StoreError::unavailable(elapsed)),
        }
    }

    async fn settled(
        &self,
        answer: Result<Settled, StoreError>,
        request: &AcquireRequest,
    ) -> Result<Settled, StoreError> {
        let wrote = matches!(answer, Ok(Settled::Recorded));
        self.replicated(answer, wrote.then_some(request)).await
    }

    async fn wait(&self, request: &AcquireRequest) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut primary = self.primary.lock().await;
        let mut connection = match primary.take() {
            Some(connection) => connection,
            None => self.connect().await.ok_or("no primary")?,
        };
        let mut written = redis::pipe();
        written.cmd("SET").arg("waited").arg(1).ignore();
        let key = format!("{}:{}", self.namespace, request.key.as_str());
        written.cmd("GETRANGE").arg(key).arg(12).arg(19);
        written.cmd("WAIT").arg(self.replicas).arg(u64::try_from(LIMIT.as_millis())?);
        let (owner, replicas): (Vec<u8>, u8) = written.query_async(&mut connection).await?;
        *primary = Some(connection);
        let is_replicated = owner == request.owner.as_bytes() && replicas >= self.replicas;
        if is_replicated { Ok(()) } else { Err("too few replicas have the write".into()) }
    }

    /// A connection to a server that accepts writes.
    async fn connect(&self) -> Option<MultiplexedConnection> {
        for url in &self.servers {
            let client = redis::Client::open(&**url).ok()?;
            let Ok(Ok(mut connection)) = timeout(LIMIT / 2, client.get_multiplexed_async_connection()).await else {
                continue;
            };
            let written = timeout(LIMIT / 2, redis::cmd("SET").arg(&["waited", "1"]).exec_async(&mut connection)).await;
            if matches!(written, Ok(Ok(()))) {
                return Some(connection);
            }
        }
        None
    }
}

impl Store for WaitingStore {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let answer = self.store.acquire(request.clone()).await;
        let wrote = matches!(answer, Ok(Acquire::Acquired(_) | Acquire::AcquiredStale(_)));
        self.replicated(answer, wrote.then_some(&request)).await
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let answer = self.store.complete(claim, result).await;
        self.settled(answer, claim.request()).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        let answer = self.store.fail(claim, failure).await;
        self.settled(answer, claim.request()).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        let answer = self.store.release(request, claim).await;
        self.settled(answer, request).await
    }
}
