//! An answer, for people and for scripts.

use idempotent_sqs::idempotency::{Failure, StoredResult};
use idempotent_sqs::stores::redis::records::{Lease, Seen, SeenState, Standing, View};
use serde_json::{Value, json};

use super::show;

pub(crate) struct Report {
    /// Whether it was found or done.
    pub(crate) done: bool,
    /// Whole lines.
    pub(crate) text: String,
    pub(crate) json: Value,
}

/// The state, as logs name it.
pub(crate) fn state(state: SeenState) -> &'static str {
    match state {
        SeenState::Processing => "PROCESSING",
        SeenState::Completed => "COMPLETED",
        SeenState::Failed(_) => "FAILED",
    }
}

/// How an attempt failed, in words.
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
        Lease::Remains(time) => format!("{} remain", show::span(time)),
        Lease::Ended(time) => format!("ended {} ago", show::span(time)),
    }
}

/// What `forget` compares.
pub(crate) fn seen_json(seen: Seen) -> Value {
    let mut json = json!({ "state": state(seen.state), "fence": seen.fence.0 });
    if let SeenState::Failed(Failure { uncertain, permanent }) = seen.state {
        json["uncertain"] = uncertain.into();
        json["permanent"] = permanent.into();
    }
    json
}

/// The fields that each state has, and those of its own.
pub(crate) fn json(view: &View) -> Value {
    let mut json = json!({
        "owner": view.owner.to_string(),
        "attempts": view.attempts,
        "fingerprint": show::fingerprint(view.fingerprint),
        "age_ms": show::ms(view.age),
    });
    join(&mut json, seen_json(view.seen()));
    match view.standing {
        Standing::Processing { recovery, lease } => {
            let remains = match lease {
                Lease::Remains(time) => show::ms(time),
                Lease::Ended(_) => 0,
            };
            json["recovery"] = recovery.into();
            json["lease_remains_ms"] = remains.into();
        }
        Standing::Completed { result } => json["result_kept"] = (result != StoredResult::NotKept).into(),
        Standing::Failed(_) => {}
    }
    json
}

/// Add the fields of another object.
pub(crate) fn join(json: &mut Value, more: Value) {
    if let (Value::Object(json), Value::Object(more)) = (json, more) {
        json.extend(more);
    }
}
