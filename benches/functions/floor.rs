//! The floor: the lowest cost of a check of every message, without any safety. One pipeline asks for each message
//! whether it is new, a second one records the results. A record has no owner and no lease, so a crash blocks its
//! message until the record expires, and a late writer overwrites it.
//!
//! `FLOOR` selects another one: `hash` also parses each body as JSON and hashes it, and `ids` reads nothing of the
//! event but the messageIds. If `WORK_MS` is set, each new message takes that long, `BATCH_CONCURRENCY` of them at a
//! time.

use std::collections::HashMap;
use std::hint::black_box;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use aws_lc_rs::digest::{SHA256, digest};
use benches::work_timer::WorkTimer;
use futures_util::future::try_join_all;
use futures_util::{StreamExt, stream};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use redis::aio::MultiplexedConnection;
use redis::cluster_routing::Slot;
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo, Pipeline, RedisError, RedisResult, cmd};
use serde::Deserialize;
use serde_json::Value;

/// 14 days, the longest retention of an SQS queue.
const RETENTION_MS: u64 = 1_209_600_000;

/// 24 bytes, as in the functions that it is compared with.
const RESULT: &str = "the order was dispatched";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let masters = Masters::connect().await?;
    let timer = WorkTimer::from_env()?;
    let concurrency = std::env::var("BATCH_CONCURRENCY")?.parse()?;
    let process = |ids| process(ids, &masters, timer.as_ref(), concurrency);
    match std::env::var("FLOOR").as_deref() {
        Ok("ids") => {
            let ids = |event: Ids| event.records.into_iter().map(|record| record.message_id).collect();
            lambda_runtime::run(service_fn(|event: LambdaEvent<Ids>| process(ids(event.payload)))).await
        }
        Ok("hash") => {
            let function = async |event: LambdaEvent<SqsEvent>| {
                event.payload.records.iter().try_for_each(hash)?;
                process(ids(event.payload)).await
            };
            lambda_runtime::run(service_fn(function)).await
        }
        _ => lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| process(ids(event.payload)))).await,
    }
}

fn ids(event: SqsEvent) -> Vec<String> {
    event.records.into_iter().filter_map(|message| message.message_id).collect()
}

/// Parses a body as JSON and hashes it.
fn hash(message: &SqsMessage) -> Result<(), Error> {
    let body = message.body.as_deref().unwrap_or_default();
    black_box(serde_json::from_str::<Value>(body)?);
    black_box(digest(&SHA256, body.as_bytes()));
    Ok(())
}

async fn process(
    ids: Vec<String>,
    masters: &Masters,
    timer: Option<&WorkTimer>,
    concurrency: usize,
) -> Result<SqsBatchResponse, Error> {
    let keys: Vec<String> = ids.iter().map(|id| format!("orders:{id}")).collect();
    let acquire = |key: &str| {
        let mut set = cmd("SET");
        set.arg(key).arg("PROCESSING").arg("NX").arg("GET").arg("PX").arg(RETENTION_MS);
        set
    };
    let before: Vec<Option<String>> = masters.send(&keys, acquire).await?;
    let new = keys.into_iter().zip(before).filter_map(|(key, before)| before.is_none().then_some(key));
    let new: Vec<String> = new.collect();
    if new.is_empty() {
        return Ok(SqsBatchResponse::default());
    }
    if let Some(timer) = timer {
        stream::iter(&new).map(|_| timer.wait()).buffer_unordered(concurrency).collect::<()>().await;
    }
    let complete = |key: &str| {
        let mut set = cmd("SET");
        set.arg(key).arg(RESULT).arg("PX").arg(RETENTION_MS);
        set
    };
    let _completed: Vec<()> = masters.send(&new, complete).await?;
    Ok(SqsBatchResponse::default())
}

/// The first and the last slot, and their master: host, port, id and other data.
type Slots = (u16, u16, (String, u16, String, redis::Value));

/// A connection to each server.
struct Masters {
    connections: Vec<MultiplexedConnection>,
    /// The master of each slot. Empty without a cluster.
    by_slot: HashMap<Slot, usize>,
}

impl Masters {
    /// Connects to the server of `REDIS_URL`, or to each master of the cluster of which it is a node.
    async fn connect() -> Result<Self, Error> {
        let tcp = TcpSettings::default().set_nodelay(true);
        let server = std::env::var("REDIS_URL")?.into_connection_info()?.set_tcp_settings(tcp);
        let mut first = Client::open(server.clone())?.get_multiplexed_async_connection().await?;
        let mut masters = Self { connections: Vec::new(), by_slot: HashMap::new() };
        if std::env::var("REDIS_CLUSTER").as_deref() == Ok("true") {
            let ranges: Vec<Slots> = cmd("CLUSTER").arg("SLOTS").query_async(&mut first).await?;
            for (from, to, (host, port, _id, _)) in ranges {
                let master = server.clone().set_addr(ConnectionAddr::Tcp(host, port));
                let index = masters.connections.len();
                masters.connections.push(Client::open(master)?.get_multiplexed_async_connection().await?);
                masters.by_slot.extend((from..=to).filter_map(Slot::new).map(|slot| (slot, index)));
            }
        } else {
            masters.connections.push(first);
        }
        Ok(masters)
    }

    /// Sends a command for each key, in one pipeline to each server, and returns the replies in the order of the keys.
    async fn send<T: FromRedisValue>(&self, keys: &[String], command: impl Fn(&str) -> Cmd) -> RedisResult<Vec<T>> {
        let mut pipelines = vec![Pipeline::new(); self.connections.len()];
        let masters: Vec<usize> = keys.iter().map(|key| self.of(key)).collect();
        for (key, master) in keys.iter().zip(&masters) {
            pipelines[*master].add_command(command(key));
        }
        let replies = self.connections.iter().zip(&pipelines).map(async |(connection, pipeline)| {
            let replies: Vec<T> =
                if pipeline.is_empty() { Vec::new() } else { pipeline.query_async(&mut connection.clone()).await? };
            Ok::<_, RedisError>(replies.into_iter())
        });
        let mut replies = try_join_all(replies).await?;
        Ok(masters.iter().filter_map(|master| replies[*master].next()).collect())
    }

    /// The master of a key.
    fn of(&self, key: &str) -> usize {
        if self.by_slot.is_empty() { 0 } else { self.by_slot[&Slot::for_key(key)] }
    }
}

#[derive(Deserialize)]
struct Ids {
    #[serde(rename = "Records")]
    records: Vec<Id>,
}

#[derive(Deserialize)]
struct Id {
    #[serde(rename = "messageId")]
    message_id: String,
}
