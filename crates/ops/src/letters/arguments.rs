//! Command-line arguments.

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Args, Parser, Subcommand};

use super::filter::{Filter, age};
use super::letter::outcome_words;

/// Shows, redrives and deletes the messages in a dead-letter queue of the function.
///
/// It signs in to SQS with the environment variables of the AWS SDKs, such as `AWS_REGION`.
///
/// Exit codes: 0 done; 1 no such letter, one was not sent or not deleted, or may be hidden, or interrupted; 2 invalid
/// arguments or settings, not confirmed, no reply from SQS or Redis, a missing permission, or no certificate on this
/// machine; 130 ended at once by a second signal.
#[derive(Parser)]
#[command(name = "letters", version, max_term_width = 100)]
pub struct Arguments {
    /// The dead-letter queue [default: `DEAD_LETTER_QUEUE_URL`]
    #[arg(long, global = true, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) queue_url: Option<String>,
    /// The logical consumer, for records [default: `IDEMPOTENCY_NAMESPACE`, else `AWS_LAMBDA_FUNCTION_NAME`]
    #[arg(long, global = true, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) namespace: Option<String>,
    /// How long letters are hidden from other consumers if this command is killed, in seconds
    // SQS hides a message for 12 hours in total, and the timeout is set again after three fifths of it.
    #[arg(long, global = true, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(5..=26_000))]
    pub(crate) visibility_timeout: u32,
    /// Print one JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the letters
    List {
        #[command(flatten)]
        filter: FilterArguments,
        /// Maximum number of letters to list
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
        /// Show the state of each letter's record in Redis
        #[arg(long)]
        records: bool,
    },
    /// Show one letter, and its record if `REDIS_URL` is set
    Show {
        /// Its messageId in either queue, or its idempotency key
        #[arg(value_name = "ID-or-KEY", allow_hyphen_values = true)]
        wanted: String,
        /// Show the body too
        #[arg(long)]
        body: bool,
    },
    /// Send letters back to their source queues, and delete them here
    Redrive {
        #[command(flatten)]
        filter: FilterArguments,
        #[command(flatten)]
        change: ChangeArguments,
        /// The queue to send to, instead of each letter's source queue
        #[arg(long, value_name = "QUEUE_URL", value_parser = queue_url)]
        to: Option<String>,
        /// Do not add an attribute that keeps the idempotency key or the messageId
        #[arg(long)]
        as_is: bool,
        /// Maximum number of messages to send per second
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rate: u32,
    },
    /// Delete letters
    Delete {
        #[command(flatten)]
        filter: FilterArguments,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

/// Which letters. A letter must match all filters.
#[derive(Args)]
pub(crate) struct FilterArguments {
    /// Letters with this outcome; may be repeated
    #[arg(long, value_parser = PossibleValuesParser::new(outcome_words()))]
    outcome: Vec<String>,
    /// Letters with this idempotency key
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    key: Option<String>,
    /// Letters whose reason contains this text
    // Every reason contains the empty text, so it would be no filter.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    reason: Option<String>,
    /// Letters sent longer ago than this, such as 30min, 2h or 3d
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<std::time::Duration>,
    /// Letters sent more recently than this
    #[arg(long, value_name = "AGE", value_parser = age)]
    newer_than: Option<std::time::Duration>,
    /// The letter with this messageId in either queue; may be repeated
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    id: Vec<String>,
}

/// What `redrive` and `delete` have in common.
#[derive(Args)]
pub(crate) struct ChangeArguments {
    /// Every letter; required without another filter
    #[arg(long)]
    pub(crate) all: bool,
    /// Maximum number of letters
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

impl FilterArguments {
    pub(crate) fn filter(self) -> Filter {
        let Self { outcome, key, reason, older_than, newer_than, id } = self;
        Filter { outcomes: outcome, key, reason, older_than, newer_than, ids: id }
    }
}

/// Rejects what cannot be the URL of a queue, such as the empty value of a variable that a script did not set.
fn queue_url(text: &str) -> Result<String, String> {
    if text.starts_with("https://") || text.starts_with("http://") {
        Ok(text.to_owned())
    } else {
        Err("pass the URL of a queue, such as https://sqs.eu-central-1.amazonaws.com/123456789012/payments".to_owned())
    }
}
