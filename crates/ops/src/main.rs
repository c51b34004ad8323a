//! The operator's tool `records`: shows, counts and removes idempotency records.

mod arguments;
mod failed;
mod forget;
mod format;
mod inspect;
mod output;
mod progress;
mod stats;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use idempotent_sqs::RedisSettings;
use idempotent_sqs::config::Environment;
use idempotent_sqs::idempotency::error_chain;
use idempotent_sqs::stores::redis::records::{ExpectedRecord, Force, Records};

use arguments::{Arguments, Command};
use output::CommandOutput;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.json;
    match run(arguments).await {
        Ok(output) => print(&output, json),
        Err(error) => {
            eprintln!("error: {}", error_chain(&*error));
            ExitCode::from(2)
        }
    }
}

async fn run(arguments: Arguments) -> Result<CommandOutput, Box<dyn std::error::Error>> {
    let Arguments { namespace, json: _, command } = arguments;
    let mut environment = Environment::from_process();
    if namespace.is_some() {
        environment = environment.with("IDEMPOTENCY_NAMESPACE", namespace);
    }
    if environment.get("REDIS_TIMEOUT_MS").is_none() {
        environment = environment.with("REDIS_TIMEOUT_MS", Some(TIMEOUT_MS.to_owned()));
    }
    let settings = RedisSettings::read(&mut environment);
    let records = Records::new(&environment.finish(settings)?)?;
    Ok(match command {
        Command::Inspect { key } => inspect::run(&records, &key).await?,
        Command::Forget { key, fence, state, force } => {
            let force = if force { Force::Yes } else { Force::No };
            forget::run(&records, &key, ExpectedRecord { state, fence }, force).await?
        }
        Command::Failed { limit, keys } => failed::run(&records, limit, keys).await?,
        Command::Stats { keys } => stats::run(&records, keys).await?,
    })
}

/// Longer than the function's default of 500 ms: an operator may be further from Redis.
const TIMEOUT_MS: &str = "5000";

fn print(output: &CommandOutput, json: bool) -> ExitCode {
    let written =
        if json { writeln!(io::stdout(), "{:#}", output.json) } else { write!(io::stdout(), "{}", output.text) };
    match written {
        // The reader may close the pipe early, as `head` does. That is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write to stdout: {error}");
            ExitCode::from(2)
        }
        Ok(()) | Err(_) if output.success => ExitCode::SUCCESS,
        Ok(()) | Err(_) => ExitCode::from(1),
    }
}
