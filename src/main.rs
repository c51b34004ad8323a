//! The Lambda function: sends each message to a webhook.

use std::io;
use std::process::ExitCode;

use idempotent_sqs::config::{Config, Environment, concurrent_invocations};
use idempotent_sqs::traces;
use idempotent_sqs::webhook::{Webhook, WebhookSettings};
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

/// Uses one thread for one invocation at a time, which is faster. Several invocations that share the process, as on
/// Lambda Managed Instances with at least two processors, use several threads, so that none waits while another
/// computes.
fn runtime() -> io::Result<Runtime> {
    let is_shared = concurrent_invocations(&Environment::from_process()).get() > 1;
    let mut builder = if is_shared { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build()
}

async fn run() -> Result<(), Error> {
    let mut environment = Environment::from_process();
    let config = Config::read(&mut environment);
    let webhook = WebhookSettings::read(&mut environment, config.as_ref());
    let (config, webhook) = environment.finish(config.zip(webhook))?;
    config.handler(Webhook::new(webhook))?.serve().await
}
