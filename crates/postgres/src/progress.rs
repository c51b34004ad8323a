//! The command line of the backfill, and its output.

use std::ffi::OsString;

use idempotent_sqs_postgres::backfill::{BackfillEnd, BackfillProgress, BackfillStart};
use serde_json::{Value, json};

pub(crate) const HELP: &str = "\
Copies the rows of the inbox in PostgreSQL to a Redis that has lost its records.

Usage: backfill [--from-start] [--json]

Options:
  --from-start   Start at the oldest row instead of where the last run stopped
  --json         Print the summary to stdout as JSON
  -h, --help     Print this help

A run continues where the last one stopped, unless Redis has lost records since. It may be killed at any
point, and may run concurrently with other runs and with the function.

Settings are those of the function (REDIS_URL, DATABASE_URL, IDEMPOTENCY_NAMESPACE, ...) and
BACKFILL_ROWS_PER_SECOND, maximum rows per second sent to Redis (default: 10000).
";

/// The options of the command.
pub(crate) struct Options {
    pub(crate) start: BackfillStart,
    pub(crate) json: bool,
}

impl Options {
    /// Returns `None` for `--help`.
    pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let mut options = Self { start: BackfillStart::Watermark, json: false };
        for argument in arguments {
            match argument.to_str() {
                Some("--help" | "-h") => return Ok(None),
                Some("--from-start") => options.start = BackfillStart::Oldest,
                Some("--json") => options.json = true,
                Some(_) | None => {
                    return Err(format!("unknown option {:?}: see `backfill --help`", argument.to_string_lossy()));
                }
            }
        }
        Ok(Some(options))
    }
}

pub(crate) fn progress_line(progress: &BackfillProgress) -> String {
    let BackfillProgress { copied, already_completed, skipped, not_records, remaining, elapsed, .. } = progress;
    let remaining = remaining.map_or_else(|| "unknown number".to_owned(), |remaining| remaining.to_string());
    format!(
        "{copied} copied, {already_completed} already completed, {skipped} skipped, {not_records} not records, \
         {remaining} remaining; {} rows/s, {:.1} s",
        progress.rows_per_second(),
        elapsed.as_secs_f64(),
    )
}

pub(crate) fn summary_line(progress: &BackfillProgress, end: BackfillEnd) -> String {
    format!("{}; {}", end.as_str(), progress_line(progress))
}

pub(crate) fn summary_json(progress: &BackfillProgress, end: BackfillEnd) -> Value {
    let BackfillProgress { copied, already_completed, skipped, not_records, remaining, elapsed, .. } = progress;
    json!({
        "end": end.as_str(), "copied": copied, "alreadyCompleted": already_completed, "skipped": skipped,
        "notRecords": not_records, "remaining": remaining, "seconds": elapsed.as_secs_f64(),
    })
}
