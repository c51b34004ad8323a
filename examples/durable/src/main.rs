//! The dispatcher: a Lambda function that starts a durable execution of another function for each message, once for
//! each key.

mod start;

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use idempotent_sqs::config::{Config, Environment};

use start::Start;

/// Longest time for Lambda to accept an execution.
const TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let mut environment = Environment::from_process();
    let config = Config::read(&mut environment);
    let function = environment.required("DURABLE_FUNCTION", "arn:aws:lambda:REGION:ACCOUNT:function:NAME:ALIAS");
    let (config, function) = environment.finish(config.zip(function))?;
    // The function delivers a message again after its backoff, so a retry here would only prolong its invocation.
    let aws = aws_config::defaults(BehaviorVersion::latest())
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().operation_timeout(TIMEOUT).build());
    let lambda = aws_sdk_lambda::Client::new(&aws.load().await);
    let work = Start::new(lambda, function, config.redis.namespace.clone());
    config.handler(work)?.serve().await
}
