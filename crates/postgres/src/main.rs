//! The backfill: copies to Redis what the inbox in PostgreSQL knows and Redis does not. Wiring only.
//!
//! A command, and where Lambda runs it a function, for a schedule.

mod progress;

use std::process::ExitCode;
use std::time::Duration;

use idempotent_sqs::idempotency::with_causes;
use idempotent_sqs::{Deadline, RedisStore};
use idempotent_sqs_postgres::BackfillConfig;
use idempotent_sqs_postgres::backfill::{Backfill, Start};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time::Instant;

use progress::{Asked, HELP};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Of a command's output only the summary is anybody's input.
    lambda_runtime::tracing::init_default_subscriber_with_writer(std::io::stderr);
    let ended = if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() { serve().await } else { command().await };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn command() -> Result<(), Error> {
    let Some(Asked { start, json }) = Asked::read(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(());
    };
    let backfill = BackfillConfig::from_env()?.backfill()?;
    let mut next = Instant::now();
    let told = |progress: &_| {
        if Instant::now() >= next {
            eprintln!("{}", progress::progress(progress));
            next = Instant::now() + BETWEEN_LINES;
        }
    };
    let (progress, end) = backfill.run(start, None, told).await.map_err(|error| with_causes(&error))?;
    if json {
        println!("{}", progress::summary(&progress, end));
    } else {
        println!("{}; {}", progress::end(end), progress::progress(&progress));
    }
    Ok(())
}

async fn serve() -> Result<(), Error> {
    let backfill = BackfillConfig::from_env()?.backfill()?;
    lambda_runtime::run(service_fn(|event| invocation(&backfill, event))).await
}

/// Whatever the event says, it is time for a run.
async fn invocation(backfill: &Backfill<RedisStore>, event: LambdaEvent<IgnoredAny>) -> Result<Value, Error> {
    let until = Deadline::at(event.context.deadline()).work;
    let (progress, end) =
        backfill.run(Start::Watermark, Some(until), |_| ()).await.map_err(|error| with_causes(&error))?;
    tracing::info!("{}; {}", progress::end(end), progress::progress(&progress));
    Ok(progress::summary(&progress, end))
}

/// Between two lines of progress.
const BETWEEN_LINES: Duration = Duration::from_secs(1);
