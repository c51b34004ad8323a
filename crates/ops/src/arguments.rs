//! What may be asked.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use idempotent_sqs::idempotency::{EmptyKeyError, Fence, Key};
use idempotent_sqs::stores::redis::records::SeenState;

use super::forget::STATES;

/// A look at the idempotency records in Redis, and their removal.
///
/// It finds Redis by the function's own settings: `REDIS_URL`, and what else is set of `REDIS_…`. It ends
/// with 0 where it found or did what was asked, with 1 where there is no record or it was left alone, and
/// with 2 where the question was wrong or Redis gave no answer.
#[derive(Parser)]
#[command(name = "records", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// The logical consumer [default: `IDEMPOTENCY_NAMESPACE`, else `AWS_LAMBDA_FUNCTION_NAME`]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Answer with one JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the record of a key
    Inspect {
        /// The `idempotency_key` of the log line
        #[arg(value_parser = key)]
        key: Key,
    },
    /// Remove the record of a key, so that its next delivery runs
    Forget {
        /// The `idempotency_key` of the log line
        #[arg(value_parser = key)]
        key: Key,
        /// The fence that `inspect` or `failed` showed
        #[arg(long, value_name = "N", value_parser = fence)]
        fence: Fence,
        /// The state that it showed, and for FAILED the failure: a record that has changed since stays
        #[arg(long, value_parser = state())]
        state: SeenState,
        /// Also while its owner is at work: the work can then run twice at once
        #[arg(long)]
        even_in_work: bool,
    },
    /// List the FAILED records
    Failed {
        /// List no more than so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Look at about so many keys of Redis at most
        #[arg(long, value_name = "N", default_value_t = MOST_KEYS)]
        keys: u64,
    },
    /// Count the records, and look at the server
    Stats {
        /// Look at about so many keys of Redis at most
        #[arg(long, value_name = "N", default_value_t = MOST_KEYS)]
        keys: u64,
    },
}

/// They cost Redis some three seconds in all, in steps that nobody notices, at 1 µs to scan a key and 2 µs to
/// read it (`INFO commandstats`).
const MOST_KEYS: u64 = 1_000_000;

/// The key as the log shows it, or the hash that Redis has for a long one.
fn key(key: &str) -> Result<Key, EmptyKeyError> {
    let is_hash = key
        .strip_prefix("sha256:")
        .is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_hash { Key::from_stored(key) } else { Key::new(key) }
}

fn fence(fence: &str) -> Result<Fence, std::num::ParseIntError> {
    fence.parse().map(Fence)
}

fn state() -> impl TypedValueParser<Value = SeenState> {
    PossibleValuesParser::new(STATES.map(|(name, _)| name))
        .try_map(|asked| STATES.iter().find(|(name, _)| *name == asked).map(|(_, state)| *state).ok_or("not a state"))
}
