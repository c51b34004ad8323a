//! The output of a command, as text and as JSON.

use idempotent_sqs::idempotency::{Failure, StoredResult};
use idempotent_sqs::stores::redis::records::{ExpectedRecord, ExpectedState, Lease, RecordStateView, RecordView};
use serde_json::{Value, json};

use super::format;

/// What a command prints, and whether it succeeded.
pub(crate) struct CommandOutput {
    /// Whether the record was found or removed, or the scan done. Otherwise the exit code is 1.
    pub(crate) success: bool,
    /// Complete lines.
    pub(crate) text: String,
    pub(crate) json: Value,
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
