//! The ledger: a Lambda function that books payment events on accounts in PostgreSQL, each event once.

mod event;
mod ledger;

use std::process::ExitCode;

use idempotent_sqs::config::{Config, Environment};
use idempotent_sqs_postgres::InboxConfig;

use ledger::Ledger;

/// The idempotency key is the id of the event. An event without an id is rejected; its key is the
/// messageId.
const KEY: &str = "body:/eventId,messageId";

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
    let mut environment = Environment::from_process();
    if environment.get("IDEMPOTENCY_KEY").is_none() {
        environment = environment.with("IDEMPOTENCY_KEY", Some(KEY.to_owned()));
    }
    let config = Config::read(&mut environment);
    let inbox = InboxConfig::read(&mut environment, config.as_ref());
    let (config, inbox) = environment.finish(config.zip(inbox))?;
    inbox.handler(config, Ledger)?.serve().await
}
