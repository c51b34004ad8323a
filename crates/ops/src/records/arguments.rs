//! Command-line arguments.

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use idempotent_sqs::idempotency::Fence;
use idempotent_sqs::stores::redis::records::ExpectedState;

use super::forget::STATES;
use super::key::KeyArgument;

/// Shows and removes the idempotency records in Redis.
///
/// It connects with the settings of the function: `REDIS_URL` and the other `REDIS_…` variables.
///
/// Exit codes: 0 found or done; 1 no such record, or not removed; 2 invalid arguments or settings, no
/// usable reply from Redis, a missing permission, or no certificate on this machine.
#[derive(Parser)]
#[command(name = "records", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// The logical consumer [default: `IDEMPOTENCY_NAMESPACE`, else `AWS_LAMBDA_FUNCTION_NAME`]
    #[arg(long, global = true, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) namespace: Option<String>,
    /// Print one JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the record of a key
    Inspect {
        #[command(flatten)]
        key: KeyArguments,
    },
    /// Remove the record of a key, so that its next delivery runs the work
    Forget {
        #[command(flatten)]
        key: KeyArguments,
        /// The fence that `inspect` or `failed` showed
        #[arg(long, value_name = "N", value_parser = fence)]
        fence: Fence,
        /// The state that it showed, and for FAILED the failure; a record that has changed since is kept
        #[arg(long, value_parser = state())]
        state: ExpectedState,
        /// Remove the record even while its owner holds the lease: the work can then run twice concurrently
        #[arg(long)]
        force: bool,
    },
    /// List the FAILED records
    Failed {
        /// Maximum number of records to list
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Approximate maximum number of Redis keys to scan, of all namespaces
        #[arg(long, value_name = "N", default_value_t = MAX_KEYS)]
        keys: u64,
    },
    /// Count the records, and show the server's memory and settings
    Stats {
        /// Approximate maximum number of Redis keys to scan, of all namespaces
        #[arg(long, value_name = "N", default_value_t = MAX_KEYS)]
        keys: u64,
    },
}

/// Which record.
#[derive(Args)]
pub(crate) struct KeyArguments {
    /// The `idempotency_key` of the log line (`idempotency.record_key` of HTTP), or the key that `failed` or `stats`
    /// shows
    #[arg(value_parser = KeyArgument::parse, allow_hyphen_values = true)]
    pub(crate) key: KeyArgument,
    /// KEY is the stored form, also if it is the key of another record
    #[arg(long)]
    pub(crate) stored: bool,
}

/// This many keys take about 3 s of Redis's time in all, in steps of less than 1 ms: 1 µs to scan a key and 2 µs to
/// read its record (`INFO commandstats`).
const MAX_KEYS: u64 = 1_000_000;

fn fence(fence: &str) -> Result<Fence, std::num::ParseIntError> {
    fence.parse().map(Fence)
}

fn state() -> impl TypedValueParser<Value = ExpectedState> {
    PossibleValuesParser::new(STATES.map(|(name, _)| name))
        .try_map(|value| STATES.iter().find(|(name, _)| *name == value).map(|(_, state)| *state).ok_or("not a state"))
}
