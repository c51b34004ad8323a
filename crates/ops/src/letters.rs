//! The program `letters`: shows, redrives and deletes the messages in a dead-letter queue.

mod arguments;
mod confirm;
mod delete;
mod destinations;
mod error;
mod fields;
mod filter;
mod hidden;
mod interrupt;
mod key;
mod letter;
mod list;
mod queue;
mod redrive;
mod report;
mod resend;
mod scan;
mod sent;
mod show;
mod tries;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use aws_config::{BehaviorVersion, SdkConfig};
pub use clap::Parser;
use idempotent_sqs::config::Environment;
use idempotent_sqs::stores::redis::records::Records;

use crate::output;
pub use crate::output::CommandOutput;
use crate::panics;
use crate::records;
pub use arguments::Arguments;
use arguments::{ChangeArguments, Command, FilterArguments};
use confirm::confirm;
use filter::Filter;
pub use interrupt::Interrupt;
use key::KeyFinder;
use queue::{Counts, DeadLetterQueue};
use redrive::Redrive;
use scan::Scan;

/// What the commands have in common.
struct Session {
    queue: DeadLetterQueue,
    keys: KeyFinder,
    /// When the command started, by this machine's clock.
    started: SystemTime,
    /// Numbers of messages at the start.
    counts: Counts,
    interrupt: Interrupt,
}

/// Runs the program with the arguments and the environment of this process.
pub async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.json;
    let aws = aws_config::defaults(BehaviorVersion::latest()).load();
    let command = run(arguments, Environment::from_process(), aws, Interrupt::on_signal);
    output::print(panics::caught(Box::pin(command)).await, json)
}

/// Runs a command. `aws` is awaited once the settings are valid. `interrupt` is called after the first call to SQS, and
/// after the operator's confirmation if the command asks for one.
///
/// # Errors
/// If the arguments or the environment are invalid, or the first call to SQS or Redis fails: exit code 2. What was done
/// before a later failure is in the output.
pub async fn run(
    arguments: Arguments,
    mut environment: Environment,
    aws: impl Future<Output = SdkConfig>,
    interrupt: impl FnOnce() -> Interrupt,
) -> Result<CommandOutput, Box<dyn Error>> {
    let Arguments { queue_url, namespace, visibility_timeout, json: _, command } = arguments;
    let visibility_timeout = Duration::from_secs(visibility_timeout.into());
    if queue_url.is_some() {
        environment = environment.with("DEAD_LETTER_QUEUE_URL", queue_url);
    }
    let has_redis = environment.get("REDIS_URL").is_some();
    let url =
        environment.required("DEAD_LETTER_QUEUE_URL", "the URL of the dead-letter queue, or pass it with --queue-url");
    let keys = KeyFinder::read(&mut environment);
    let (url, keys) = environment.finish(url.map(|url| (url, keys)))?;
    let queue = DeadLetterQueue::new(&url, visibility_timeout, &aws.await);
    match command {
        Command::List { filter, limit, records } => {
            let records = if records { Some(records::connect(namespace)?) } else { None };
            let session = Session::start(queue, keys, interrupt).await?;
            list::run(&session, &filter.filter(), limit, records.as_ref()).await
        }
        Command::Show { wanted, body } => {
            let records: Option<Records> = if has_redis { Some(records::connect(namespace)?) } else { None };
            show::run(&Session::start(queue, keys, interrupt).await?, &wanted, body, records.as_ref()).await
        }
        Command::Redrive { filter, change, to, as_is, rate } => {
            let filter = checked(filter, &change)?;
            let session = Session::confirmed(queue, keys, "Redrive", &change, interrupt).await?;
            redrive::run(&session, &filter, &change, Redrive { to, as_is, rate }).await
        }
        Command::Delete { filter, change } => {
            let filter = checked(filter, &change)?;
            let session = Session::confirmed(queue, keys, "Delete", &change, interrupt).await?;
            delete::run(&session, &filter, &change).await
        }
    }
}

/// The filter, if there is one or `--all`.
fn checked(filter: FilterArguments, change: &ChangeArguments) -> Result<Filter, Box<dyn Error>> {
    let filter = filter.filter();
    match (filter.matches_all(), change.all) {
        (true, false) => Err("no filter: pass --all to concern every letter, or a filter such as --outcome".into()),
        (false, true) => Err("--all concerns every letter: leave it out, or leave out the filters".into()),
        (true, true) | (false, false) => Ok(filter),
    }
}

impl Session {
    async fn start(
        queue: DeadLetterQueue,
        keys: KeyFinder,
        interrupt: impl FnOnce() -> Interrupt,
    ) -> Result<Self, Box<dyn Error>> {
        let (started, counts) = (SystemTime::now(), queue.counts().await?);
        Ok(Self { queue, keys, started, counts, interrupt: interrupt() })
    }

    /// Asks for confirmation first, except for a dry run.
    async fn confirmed(
        queue: DeadLetterQueue,
        keys: KeyFinder,
        verb: &str,
        change: &ChangeArguments,
        interrupt: impl FnOnce() -> Interrupt,
    ) -> Result<Self, Box<dyn Error>> {
        let counts = queue.counts().await?;
        if !change.dry_run && !change.yes {
            confirm(verb, &queue.url, counts, change.all)?;
        }
        Ok(Self { queue, keys, started: SystemTime::now(), counts, interrupt: interrupt() })
    }

    fn scan(&self) -> Scan<'_> {
        Scan::new(&self.queue, &self.keys, self.interrupt.clone(), self.counts)
    }
}
