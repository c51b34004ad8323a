//! The floor: the least that a check of every message can cost, and no safety at all. One pipeline
//! asks for each message whether it is new, a second records what is done. A record has no owner
//! and no lease, so a crash blocks its message for good, and a late writer overwrites it.
//!
//! With `WORK_MS` set each new message waits for so long, `BATCH_CONCURRENCY` of them at once.

#[path = "clock.rs"]
mod clock;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use clock::Clock;
use futures_util::{StreamExt, stream};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo, Pipeline};

/// 14 days, as long as SQS can keep a message.
const RETENTION_MS: u64 = 1_209_600_000;

/// As long as what `noop` returns, so that records compare.
const RESULT: &str = "nothing was done, gladly";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let tcp = TcpSettings::default().set_nodelay(true);
    let client = Client::open(std::env::var("REDIS_URL")?.into_connection_info()?.set_tcp_settings(tcp))?;
    let redis = client.get_multiplexed_async_connection().await?;
    let clock = Clock::from_env()?;
    let at_once = std::env::var("BATCH_CONCURRENCY")?.parse()?;
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| {
        answer(event.payload, redis.clone(), clock.as_ref(), at_once)
    }))
    .await
}

async fn answer(
    event: SqsEvent,
    mut redis: MultiplexedConnection,
    clock: Option<&Clock>,
    at_once: usize,
) -> Result<SqsBatchResponse, Error> {
    let keys: Vec<String> = event.records.iter().map(key).collect();
    let mut ask = Pipeline::with_capacity(keys.len());
    for key in &keys {
        ask.cmd("SET").arg(key).arg("PROCESSING").arg("NX").arg("GET").arg("PX").arg(RETENTION_MS);
    }
    let before: Vec<Option<String>> = ask.query_async(&mut redis).await?;
    let new: Vec<&String> =
        keys.iter().zip(before).filter(|(_, before)| before.is_none()).map(|(key, _)| key).collect();
    if new.is_empty() {
        return Ok(SqsBatchResponse::default());
    }
    if let Some(clock) = clock {
        stream::iter(&new).map(|_| clock.work()).buffer_unordered(at_once).collect::<()>().await;
    }
    let mut record = Pipeline::with_capacity(new.len());
    for key in new {
        record.cmd("SET").arg(key).arg(RESULT).arg("PX").arg(RETENTION_MS).ignore();
    }
    let () = record.query_async(&mut redis).await?;
    Ok(SqsBatchResponse::default())
}

fn key(message: &SqsMessage) -> String {
    format!("orders:{}", message.message_id.as_deref().unwrap_or_default())
}
