//! The operator's tool: a look at the idempotency records, and their removal. Wiring only.

mod arguments;
mod failed;
mod forget;
mod inspect;
mod progress;
mod report;
mod show;
mod stats;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use idempotent_sqs::RedisSettings;
use idempotent_sqs::config::Environment;
use idempotent_sqs::idempotency::with_causes;
use idempotent_sqs::stores::redis::records::{Records, Seen};

use arguments::{Arguments, Command};
use report::Report;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.json;
    match run(arguments).await {
        Ok(report) => show(&report, json),
        Err(error) => {
            eprintln!("error: {}", with_causes(&*error));
            ExitCode::from(2)
        }
    }
}

async fn run(arguments: Arguments) -> Result<Report, Box<dyn std::error::Error>> {
    let Arguments { namespace, json: _, command } = arguments;
    let mut environment = Environment::of_process();
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
        Command::Forget { key, fence, state, even_in_work } => {
            forget::run(&records, &key, Seen { state, fence }, even_in_work).await?
        }
        Command::Failed { limit, keys } => failed::run(&records, limit, keys).await?,
        Command::Stats { keys } => stats::run(&records, keys).await?,
    })
}

/// People may be further from Redis than the function is, and have more patience.
const TIMEOUT_MS: &str = "5000";

fn show(report: &Report, json: bool) -> ExitCode {
    let written =
        if json { writeln!(io::stdout(), "{:#}", report.json) } else { write!(io::stdout(), "{}", report.text) };
    match written {
        // Whoever reads may have read enough, as `head` has.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
        Ok(()) | Err(_) if report.done => ExitCode::SUCCESS,
        Ok(()) | Err(_) => ExitCode::from(1),
    }
}
