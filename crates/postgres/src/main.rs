//! The backfill: copies the rows of the inbox in PostgreSQL to a Redis that has lost its records. Runs as a command,
//! and on Lambda as a function that a schedule invokes.

mod progress;

use std::process::ExitCode;
use std::time::Duration;

use idempotent_sqs::idempotency::error_chain;
use idempotent_sqs::{Deadline, RedisStore};
use idempotent_sqs_postgres::BackfillConfig;
use idempotent_sqs_postgres::backfill::{Backfill, BackfillProgress, BackfillStart};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time::Instant;

use progress::{HELP, Options, progress_line, summary_json, summary_line};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Logs go to stderr, because stdout has the summary.
    lambda_runtime::tracing::init_default_subscriber_with_writer(std::io::stderr);
    let outcome = if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() { serve().await } else { command().await };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn command() -> Result<(), Error> {
    let Some(Options { start, json }) = Options::parse(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(());
    };
    let backfill = BackfillConfig::from_env()?.backfill()?;
    let mut next = Instant::now();
    let on_progress = |progress: &BackfillProgress| {
        if Instant::now() >= next {
            eprintln!("{}", progress_line(progress));
            next = Instant::now() + PROGRESS_INTERVAL;
        }
    };
    let (progress, end) = backfill.run(start, None, on_progress).await.map_err(|error| error_chain(&error))?;
    if json {
        println!("{}", summary_json(&progress, end));
    } else {
        println!("{}", summary_line(&progress, end));
    }
    Ok(())
}

async fn serve() -> Result<(), Error> {
    let backfill = BackfillConfig::from_env()?.backfill()?;
    lambda_runtime::run(service_fn(|event| invocation(&backfill, event))).await
}

/// Any event starts a run.
async fn invocation(backfill: &Backfill<RedisStore>, event: LambdaEvent<IgnoredAny>) -> Result<Value, Error> {
    let until = Deadline::at(event.context.deadline()).work;
    let (progress, end) =
        backfill.run(BackfillStart::Watermark, Some(until), |_| ()).await.map_err(|error| error_chain(&error))?;
    tracing::info!("{}", summary_line(&progress, end));
    Ok(summary_json(&progress, end))
}

/// Time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
