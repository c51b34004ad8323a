//! The function: delivers each message once to a webhook. Wiring only.

use std::process::ExitCode;

use idempotent_sqs::config::Config;
use idempotent_sqs::works::Webhook;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    lambda_runtime::tracing::init_default_subscriber();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), lambda_runtime::Error> {
    let (config, webhook) = Config::from_env_with_webhook()?;
    config.handler(Webhook::new(webhook))?.serve().await
}
