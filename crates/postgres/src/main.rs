//! The backfill: copies the rows of the inbox in PostgreSQL to a Redis that has lost its records. Runs as a command,
//! and on Lambda as a function that a schedule invokes.

mod progress;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use idempotent_sqs::idempotency::error_chain;
use idempotent_sqs::{Deadline, RedisStore};
use idempotent_sqs_postgres::BackfillConfig;
use idempotent_sqs_postgres::backfill::{Backfill, BackfillEnd, BackfillProgress, BackfillStart};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time::Instant;

use progress::{HELP, Options, progress_line, summary_json, summary_line};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Logs go to stderr, because stdout has the summary.
    lambda_runtime::tracing::init_default_subscriber_with_writer(|| Stderr);
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
    let Some(Options { start, json }) = Options::parse(std::env::args_os().skip(1))? else {
        return print(HELP.trim_end());
    };
    let backfill = BackfillConfig::from_env()?.backfill()?;
    let mut next = Instant::now();
    let on_progress = |progress: &BackfillProgress| {
        if Instant::now() >= next {
            let _ = writeln!(Stderr, "{}", progress_line(progress));
            next = Instant::now() + PROGRESS_INTERVAL;
        }
    };
    let (progress, end) = backfill.run(start, None, on_progress).await.map_err(|error| error_chain(&error))?;
    if json { print(summary_json(&progress, end)) } else { print(summary_line(&progress, end)) }?;
    if end == BackfillEnd::Superseded {
        return Err("another run has started over at the oldest row: wait until that one is done".into());
    }
    Ok(())
}

/// Prints lines to stdout.
fn print(lines: impl Display) -> Result<(), Error> {
    match writeln!(io::stdout(), "{lines}") {
        // The reader may close the pipe early, as `head` does. That is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to stdout: {error}").into())
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The stderr of this process. A failed write is ignored, so that the run continues.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
