//! Connections that serve one call at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Claim, Failure, Settled, StoreError, StoredResult};
use idempotent_sqs::{RedisSettings, RedisStore, Store};

/// Idle connections. There are as many as there were calls at once.
pub(crate) struct Idle<T>(Mutex<Vec<T>>);

impl<T> Default for Idle<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Idle<T> {
    pub(crate) fn take(&self) -> Option<T> {
        self.lock().pop()
    }

    pub(crate) fn put(&self, connection: T) {
        self.lock().push(connection);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`RedisStore`] for each call that is in flight, so that no two calls share a connection or a script call.
pub(crate) struct StorePool {
    settings: RedisSettings,
    idle: Idle<RedisStore>,
}

impl StorePool {
    pub(crate) fn new(settings: RedisSettings) -> Self {
        Self { settings, idle: Idle::default() }
    }

    async fn with<T>(&self, call: impl AsyncFnOnce(&RedisStore) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let store = match self.idle.take() {
            Some(store) => store,
            None => RedisStore::new(&self.settings).map_err(StoreError::unreachable)?,
        };
        let answer = call(&store).await?;
        self.idle.put(store);
        Ok(answer)
    }
}

impl Store for StorePool {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        self.with(async |store| store.acquire(request).await).await
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.with(async |store| store.complete(claim, result).await).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.with(async |store| store.fail(claim, failure).await).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.with(async |store| store.release(request, claim).await).await
    }
}
