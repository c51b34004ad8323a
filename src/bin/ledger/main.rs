//! The ledger: a function that books payment events on accounts in PostgreSQL, each once. Wiring only.

mod event;
mod ledger;

use std::env;
use std::process::ExitCode;

use idempotent_sqs::config::Config;

use ledger::Ledger;

/// An event is known by its own id. One without it gets as far as its refusal by the message's.
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
    let (config, inbox) = Config::from_lookup_with_inbox(|name| {
        let set = env::var(name).ok().filter(|value| !value.trim().is_empty());
        set.or_else(|| (name == "IDEMPOTENCY_KEY").then(|| KEY.to_owned()))
    })?;
    config.handler_with_inbox(inbox, Ledger)?.serve().await
}
