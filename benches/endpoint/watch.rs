//! A store that runs the state machine of [`protocol`] in this process, in transactions of `WATCH`, `MULTI` and `EXEC`.
//!
//! A transaction takes two round trips, and is repeated if another client wrote the key between them. `WATCH` is a
//! state of the connection, so no two transactions can share one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use idempotent_sqs::Store;
use idempotent_sqs::idempotency::protocol::{self, AcquireAnswer, Record, SettleRequest};
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Claim, Failure, Key, Settled, StoreError, StoredResult};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisError, RedisResult, pipe};

use crate::payments::RETRIES;
use crate::pool::Idle;
use crate::{TIMEOUT, record};

pub(crate) struct WatchStore {
    client: Client,
    idle: Idle<Connection>,
}

struct Connection {
    redis: MultiplexedConnection,
    /// Whether it still watches the key of its last transaction, which wrote nothing.
    watches: bool,
}

impl WatchStore {
    pub(crate) fn new(url: &str) -> RedisResult<Self> {
        let tcp = TcpSettings::default().set_nodelay(true);
        let client = Client::open(url.into_connection_info()?.set_tcp_settings(tcp))?;
        Ok(Self { client, idle: Idle::default() })
    }

    /// Applies one function of [`protocol`] to the record of this key, and returns its answer.
    async fn apply<T>(
        &self,
        key: &Key,
        step: impl Fn(Option<&Record>, u64) -> (T, Option<Record>),
    ) -> Result<T, StoreError> {
        let key = format!("payments:{}", key.stored());
        let mut connection = match self.idle.take() {
            Some(connection) => connection,
            None => self.connect().await.map_err(StoreError::unreachable)?,
        };
        let answer = loop {
            let (value, now) = connection.watch(&key).await.map_err(StoreError::unavailable)?;
            let record = match value {
                Some(value) => Some(record::decode(&value).ok_or_else(|| StoreError::NotARecord(key.clone()))?),
                None => None,
            };
            let (answer, changed) = step(record.as_ref(), now);
            let Some(changed) = changed else { break answer };
            if connection.write(&key, &changed).await.map_err(StoreError::unavailable)? {
                break answer;
            }
            RETRIES.fetch_add(1, Ordering::Relaxed);
        };
        self.idle.put(connection);
        Ok(answer)
    }

    async fn connect(&self) -> RedisResult<Connection> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(TIMEOUT)).set_response_timeout(Some(TIMEOUT));
        let redis = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Connection { redis, watches: false })
    }
}

impl Connection {
    /// Watches the key. Returns its value and the server's time in µs since 1970.
    async fn watch(&mut self, key: &str) -> Result<(Option<Vec<u8>>, u64), RedisError> {
        let mut pipe = pipe();
        if self.watches {
            pipe.cmd("UNWATCH").ignore();
        }
        pipe.cmd("WATCH").arg(key).ignore().cmd("GET").arg(key).cmd("TIME");
        let (value, (seconds, us)): (_, (u64, u64)) = pipe.query_async(&mut self.redis).await?;
        self.watches = true;
        Ok((value, seconds * 1_000_000 + us))
    }

    /// Writes the record. `false` if the key was written since it was watched.
    async fn write(&mut self, key: &str, record: &Record) -> RedisResult<bool> {
        let mut pipe = pipe();
        pipe.atomic().cmd("SET").arg(key).arg(record::encode(record)).arg("PXAT").arg(record.expires_ms).ignore();
        let written: Option<()> = pipe.query_async(&mut self.redis).await?;
        self.watches = false;
        Ok(written.is_some())
    }
}

fn settle_request(claim: &Claim) -> SettleRequest<'_> {
    SettleRequest { request: claim.request(), fence: claim.fence(), number: claim.attempt() }
}

impl Store for WatchStore {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let answer = self.apply(&request.key, |record, now| protocol::acquire(record, &request, now)).await?;
        Ok(match answer {
            AcquireAnswer::Acquired { fence, attempts, recovery } => {
                Acquire::claimed(request, fence, attempts, recovery)
            }
            AcquireAnswer::Duplicate { fence, attempts, result } => Acquire::Duplicate { fence, attempts, result },
            AcquireAnswer::Conflict { remains } => {
                // Rounded up to whole milliseconds, as in every store.
                let ms = remains.as_micros().div_ceil(1000);
                Acquire::Conflict { lease_remains: Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)) }
            }
            AcquireAnswer::Mismatch => Acquire::Mismatch,
            AcquireAnswer::Failed => Acquire::Failed,
        })
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let step =
            |record: Option<&Record>, now| protocol::complete(record, settle_request(claim), result.into_owned(), now);
        self.apply(claim.key(), step).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.apply(claim.key(), |record, now| protocol::fail(record, settle_request(claim), failure, now)).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        let recovery = claim.filter(|claim| claim.is_recovery()).map(settle_request);
        self.apply(&request.key, |record, now| protocol::release(record, request, recovery, now)).await
    }
}
