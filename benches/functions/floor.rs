//! The floor: the lowest cost of a check of every message, without any safety. One pipeline asks for each message
//! whether it is new, a second one records the results. A record has no owner and no lease, so a crash blocks its
//! message until the record expires, and a late writer overwrites it.
//!
//! If `WORK_MS` is set, each new message takes that long, `BATCH_CONCURRENCY` of them at a time.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use benches::work_timer::WorkTimer;
use futures_util::{StreamExt, stream};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo, Pipeline};

/// 14 days, the longest retention of an SQS queue.
const RETENTION_MS: u64 = 1_209_600_000;

/// 24 bytes, as in the functions that it is compared with.
const RESULT: &str = "the order was dispatched";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let tcp = TcpSettings::default().set_nodelay(true);
    let client = Client::open(std::env::var("REDIS_URL")?.into_connection_info()?.set_tcp_settings(tcp))?;
    let redis = client.get_multiplexed_async_connection().await?;
    let timer = WorkTimer::from_env()?;
    let concurrency = std::env::var("BATCH_CONCURRENCY")?.parse()?;
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| {
        process(event.payload, redis.clone(), timer.as_ref(), concurrency)
    }))
    .await
}

async fn process(
    event: SqsEvent,
    mut redis: MultiplexedConnection,
    timer: Option<&WorkTimer>,
    concurrency: usize,
) -> Result<SqsBatchResponse, Error> {
    let keys: Vec<String> = event.records.iter().map(key).collect();
    let mut acquire = Pipeline::with_capacity(keys.len());
    for key in &keys {
        acquire.cmd("SET").arg(key).arg("PROCESSING").arg("NX").arg("GET").arg("PX").arg(RETENTION_MS);
    }
    let before: Vec<Option<String>> = acquire.query_async(&mut redis).await?;
    let new: Vec<&String> =
        keys.iter().zip(before).filter(|(_, before)| before.is_none()).map(|(key, _)| key).collect();
    if new.is_empty() {
        return Ok(SqsBatchResponse::default());
    }
    if let Some(timer) = timer {
        stream::iter(&new).map(|_| timer.wait()).buffer_unordered(concurrency).collect::<()>().await;
    }
    let mut complete = Pipeline::with_capacity(new.len());
    for key in new {
        complete.cmd("SET").arg(key).arg(RESULT).arg("PX").arg(RETENTION_MS).ignore();
    }
    let () = complete.query_async(&mut redis).await?;
    Ok(SqsBatchResponse::default())
}

fn key(message: &SqsMessage) -> String {
    format!("orders:{}", message.message_id.as_deref().unwrap_or_default())
}
