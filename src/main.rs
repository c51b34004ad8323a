//! The function: delivers each message once to a webhook. Wiring only.

use std::process::ExitCode;
use std::{env, io};

use idempotent_sqs::config::Config;
use idempotent_sqs::traces;
use idempotent_sqs::works::Webhook;
use lambda_runtime::Error;
use tokio::runtime::{Builder, Runtime};

fn main() -> ExitCode {
    traces::init(lambda_runtime::tracing::init_default_subscriber);
    match runtime().map_err(Error::from).and_then(|runtime| runtime.block_on(run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// One invocation at a time is answered sooner by one thread. Where several share the process, as on
/// Lambda Managed Instances, none should have to wait while another computes, and there are at least
/// two processors to use.
fn runtime() -> io::Result<Runtime> {
    let at_once = env::var("AWS_LAMBDA_MAX_CONCURRENCY").ok().and_then(|number| number.parse::<u32>().ok());
    let several = at_once.is_some_and(|number| number > 1);
    let mut builder = if several { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build()
}

async fn run() -> Result<(), Error> {
    let (config, webhook) = Config::from_env_with_webhook()?;
    config.handler(Webhook::new(webhook))?.serve().await
}
