//! The program `records`: shows, counts and removes idempotency records.

mod arguments;
mod failed;
mod forget;
pub(crate) mod inspect;
mod key;
mod scan_progress;
mod stats;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use idempotent_sqs::RedisSettings;
use idempotent_sqs::config::Environment;
use idempotent_sqs::stores::redis::records::{ExpectedRecord, Force, Records};

use crate::output::{self, CommandOutput};
use crate::panics;
use arguments::{Arguments, Command, KeyArguments};

/// Runs the program with the arguments and the environment of this process.
pub async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.json;
    output::print(panics::caught(Box::pin(run(arguments))).await, json)
}

async fn run(arguments: Arguments) -> Result<CommandOutput, Box<dyn Error>> {
    let Arguments { namespace, json: _, command } = arguments;
    let records = connect(namespace)?;
    Ok(match command {
        Command::Inspect { key: KeyArguments { key, stored } } => {
            inspect::run(&records, &key.resolve(&records, stored).await?).await?
        }
        Command::Forget { key: KeyArguments { key, stored }, fence, state, force } => {
            let (key, force) = (key.resolve(&records, stored).await?, if force { Force::Yes } else { Force::No });
            forget::run(&records, &key, ExpectedRecord { state, fence }, force).await?
        }
        Command::Failed { limit, keys } => failed::run(&records, limit, keys).await?,
        Command::Stats { keys } => stats::run(&records, keys).await?,
    })
}

/// Longer than the function's default of 500 ms: an operator may be further from Redis.
const TIMEOUT_MS: &str = "5000";

/// The records of the function with the settings of this process, in this namespace instead of its own if there is one.
pub(crate) fn connect(namespace: Option<String>) -> Result<Records, Box<dyn Error>> {
    let mut environment = Environment::from_process();
    if namespace.is_some() {
        environment = environment.with("IDEMPOTENCY_NAMESPACE", namespace);
    }
    if environment.get("REDIS_TIMEOUT_MS").is_none() {
        environment = environment.with("REDIS_TIMEOUT_MS", Some(TIMEOUT_MS.to_owned()));
    }
    let settings = RedisSettings::read(&mut environment);
    Ok(Records::new(&environment.finish(settings)?)?)
}
