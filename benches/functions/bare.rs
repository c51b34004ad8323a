//! A function with `lambda_runtime` alone: the baseline for start time and memory.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::tracing::init_default_subscriber();
    lambda_runtime::run(service_fn(respond)).await
}

async fn respond(_event: LambdaEvent<IgnoredAny>) -> Result<Value, Error> {
    Ok(json!({ "batchItemFailures": [] }))
}
