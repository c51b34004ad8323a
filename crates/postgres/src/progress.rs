//! What the backfill is asked, and what it says.

use idempotent_sqs_postgres::backfill::{End, Progress, Start};
use serde_json::{Value, json};

pub(crate) const HELP: &str = "\
Copies to Redis what the inbox in PostgreSQL knows and Redis does not.

    backfill [--from-start] [--json]

  --from-start   from the oldest row on, and not from where the last run was
  --json         the summary, on the standard output, as JSON
  --help

It goes on where the last run was, unless Redis has lost records since. Run it as often as you like, also
beside the function, and end it whenever you like. Settings are those of the function: REDIS_URL,
DATABASE_URL, IDEMPOTENCY_NAMESPACE and so on; and BACKFILL_ROWS_PER_SECOND, the most that it offers to Redis.
";

/// The command line.
pub(crate) struct Asked {
    pub(crate) start: Start,
    pub(crate) json: bool,
}

impl Asked {
    /// `None` where it asks for help.
    pub(crate) fn read(words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut asked = Self { start: Start::Watermark, json: false };
        for word in words {
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--from-start" => asked.start = Start::Oldest,
                "--json" => asked.json = true,
                _ => return Err(format!("{word} is no option; --help lists them")),
            }
        }
        Ok(Some(asked))
    }
}

pub(crate) fn progress(progress: &Progress) -> String {
    let Progress { copied, known, left_alone, foreign, left, elapsed } = progress;
    let left = left.map_or_else(|| "an unknown number".to_owned(), |left| left.to_string());
    format!(
        "{copied} copied, {known} known, {left_alone} left alone, {foreign} foreign, {left} left; {} rows/s for {:.1} s",
        progress.rate(),
        elapsed.as_secs_f64(),
    )
}

pub(crate) fn end(end: End) -> &'static str {
    match end {
        End::Done => "done",
        End::OutOfTime => "out of time: the next run goes on",
        End::Overtaken => "overtaken: another backfill has started over, and goes on",
    }
}

pub(crate) fn summary(progress: &Progress, end: End) -> Value {
    let Progress { copied, known, left_alone, foreign, left, elapsed } = progress;
    let end = match end {
        End::Done => "done",
        End::OutOfTime => "out of time",
        End::Overtaken => "overtaken",
    };
    json!({
        "end": end, "copied": copied, "known": known, "leftAlone": left_alone, "foreign": foreign, "left": left,
        "seconds": elapsed.as_secs_f64(),
    })
}
