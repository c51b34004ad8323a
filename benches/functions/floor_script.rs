//! The floor in scripts: the commands of the floor, `SET NX GET PX` and `SET PX`, one by one in two scripts that do
//! nothing else. It shows how much of a check is the cost of commands inside scripts.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, FromRedisValue, IntoConnectionInfo, Pipeline, RedisResult, Script, cmd};

const ACQUIRE: &str = "
local answers = {}
for i, key in ipairs(KEYS) do
  answers[i] = redis.call('SET', key, 'PROCESSING', 'NX', 'GET', 'PX', ARGV[1])
end
return answers";

const COMPLETE: &str = "
local answers = {}
for i, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[2], 'PX', ARGV[1])
  answers[i] = 'COMPLETED'
end
return answers";

/// 14 days, the longest retention of an SQS queue.
const RETENTION_MS: u64 = 1_209_600_000;

/// 24 bytes, as in the functions that it is compared with.
const RESULT: &str = "the order was dispatched";

/// As many as the library has in one script run.
const KEYS_PER_RUN: usize = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let tcp = TcpSettings::default().set_nodelay(true);
    let server = std::env::var("REDIS_URL")?.into_connection_info()?.set_tcp_settings(tcp);
    let mut redis = Client::open(server)?.get_multiplexed_async_connection().await?;
    let scripts = [Script::new(ACQUIRE), Script::new(COMPLETE)];
    for script in &scripts {
        script.load_async(&mut redis).await?;
    }
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| process(event.payload, redis.clone(), &scripts)))
        .await
}

async fn process(
    event: SqsEvent,
    mut redis: MultiplexedConnection,
    [acquire, complete]: &[Script; 2],
) -> Result<SqsBatchResponse, Error> {
    let ids = event.records.into_iter().filter_map(|message| message.message_id);
    let keys: Vec<String> = ids.map(|id| format!("orders:{id}")).collect();
    let before: Vec<Option<String>> = run(&mut redis, acquire, &keys).await?;
    let new = keys.into_iter().zip(before).filter_map(|(key, before)| before.is_none().then_some(key));
    let new: Vec<String> = new.collect();
    if !new.is_empty() {
        let _completed: Vec<String> = run(&mut redis, complete, &new).await?;
    }
    Ok(SqsBatchResponse::default())
}

/// Runs a script for these keys, and returns its answers.
async fn run<T: FromRedisValue>(
    redis: &mut MultiplexedConnection,
    script: &Script,
    keys: &[String],
) -> RedisResult<Vec<T>> {
    let mut runs = Pipeline::new();
    for keys in keys.chunks(KEYS_PER_RUN) {
        let mut run = cmd("EVALSHA");
        run.arg(script.get_hash()).arg(keys.len()).arg(keys).arg(RETENTION_MS).arg(RESULT);
        runs.add_command(run);
    }
    let answers: Vec<Vec<T>> = runs.query_async(redis).await?;
    Ok(answers.into_iter().flatten().collect())
}
