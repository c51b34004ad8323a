//! The output of a command, as text and as JSON.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use idempotent_sqs::idempotency::{Failure, StoredResult, error_chain};
use idempotent_sqs::stores::redis::records::{ExpectedRecord, ExpectedState, Lease, RecordStateView, RecordView};
use serde_json::{Value, json};

use super::format;

/// What a command prints, and whether it succeeded.
pub struct CommandOutput {
    /// Whether what was asked for was found or done. Otherwise the exit code is 1.
    pub success: bool,
    /// Complete lines.
    pub text: String,
    /// The document that `--json` prints.
    pub json: Value,
    /// Why the command ended early, or what it could not read. It is printed after the output, and the exit code is 2.
    pub error: Option<Box<dyn Error>>,
}

impl CommandOutput {
    pub(crate) fn new(success: bool, text: String, json: Value) -> Self {
        Self { success, text, json, error: None }
    }

    pub(crate) fn with_error(self, error: Option<impl Error + 'static>) -> Self {
        Self { error: error.map(Into::into), ..self }
    }
}

/// The name of the state, as in logs.
pub(crate) fn state(state: ExpectedState) -> &'static str {
    match state {
        ExpectedState::Processing => "PROCESSING",
        ExpectedState::Completed => "COMPLETED",
        ExpectedState::Failed(_) => "FAILED",
    }
}

/// The failure in words.
pub(crate) fn failure(failure: Failure) -> &'static str {
    match (failure.uncertain, failure.permanent) {
        (false, false) => "clean",
        (false, true) => "permanent",
        (true, false) => "uncertain",
        (true, true) => "uncertain, permanent",
    }
}

pub(crate) fn lease(lease: Lease) -> String {
    match lease {
        Lease::Remains(time) => format!("ends in {}", format::duration(time)),
        Lease::Ended(time) => format!("ended {} ago", format::duration(time)),
    }
}

/// What `forget` compares.
pub(crate) fn seen_json(seen: ExpectedRecord) -> Value {
    let mut json = json!({ "state": state(seen.state), "fence": seen.fence.0 });
    if let ExpectedState::Failed(Failure { uncertain, permanent }) = seen.state {
        json["uncertain"] = uncertain.into();
        json["permanent"] = permanent.into();
    }
    json
}

/// A record without its key and result.
pub(crate) fn json(view: &RecordView) -> Value {
    let mut json = json!({
        "owner": view.owner.to_string(),
        "attempts": view.attempts,
        "fingerprint": format::fingerprint(view.fingerprint),
        "age_ms": format::ms(view.age),
    });
    extend(&mut json, seen_json(view.seen()));
    match view.state {
        RecordStateView::Processing { recovery, lease } => {
            let remains = match lease {
                Lease::Remains(time) => format::ms(time),
                Lease::Ended(_) => 0,
            };
            json["recovery"] = recovery.into();
            json["lease_remains_ms"] = remains.into();
        }
        RecordStateView::Completed { result } => json["result_kept"] = (result != StoredResult::NotKept).into(),
        RecordStateView::Failed(_) => {}
    }
    json
}

/// Adds the fields of another JSON object.
pub(crate) fn extend(json: &mut Value, other: Value) {
    if let (Value::Object(json), Value::Object(other)) = (json, other) {
        json.extend(other);
    }
}

/// Prints the output to stdout, and an error to stderr. Returns the exit code.
pub(crate) fn print(output: Result<CommandOutput, Box<dyn Error>>, json: bool) -> ExitCode {
    let CommandOutput { success, text, json: document, error } = match output {
        Ok(output) => output,
        Err(error) => return failed(&*error),
    };
    let written = if json { writeln!(io::stdout(), "{document:#}") } else { write!(io::stdout(), "{text}") };
    // The reader may close the pipe early, as `head` does. That is not an error.
    let unwritten = written.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
    if let Some(error) = &unwritten {
        note(&format!("error: cannot write to stdout: {error}"));
    }
    match (error, unwritten) {
        (Some(error), _) => failed(&*error),
        (None, Some(_)) => ExitCode::from(2),
        (None, None) if success => ExitCode::SUCCESS,
        (None, None) => ExitCode::from(1),
    }
}

fn failed(error: &dyn Error) -> ExitCode {
    note(&format!("error: {}", error_chain(error)));
    ExitCode::from(2)
}

/// Prints a line to stderr. A failed write is ignored, so that the exit code remains.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
