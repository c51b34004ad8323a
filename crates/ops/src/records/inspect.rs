//! `inspect`: shows the record of a key.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use idempotent_sqs::idempotency::{Key, StoredResult};
use idempotent_sqs::stores::redis::records::{Inspected, RecordStateView, RecordView, Records, RecordsError};
use serde_json::{Value, json};

use crate::format;
use crate::output::{self, CommandOutput};

pub(crate) async fn run(records: &Records, key: &Key) -> Result<CommandOutput, RecordsError> {
    let redis_key = records.redis_key(key);
    let mut json = json!({ "key": key.as_str(), "redis_key": redis_key });
    Ok(match records.inspect(key).await? {
        Inspected::Absent => {
            json["state"] = "ABSENT".into();
            CommandOutput::new(false, absent(records, key), json)
        }
        Inspected::NotARecord => {
            json["state"] = "NOT_A_RECORD".into();
            CommandOutput::new(false, not_a_record(&redis_key), json)
        }
        Inspected::Record { view, result, ttl } => {
            let text = table(key, &redis_key, &view, &result, ttl);
            output::extend(&mut json, output::json(&view));
            json["expires_in_ms"] = ttl.map(format::ms).into();
            json["result"] = result_json(&view, &result);
            CommandOutput::new(true, text, json)
        }
        other => CommandOutput::new(false, format!("unknown outcome: {other:?}\n"), json),
    })
}

/// The text for a key without a record.
pub(crate) fn absent(records: &Records, key: &Key) -> String {
    format!(
        "no record of {} in the namespace {}: none was written, or it has expired; if the function has another \
         IDEMPOTENCY_NAMESPACE, pass it with --namespace\n",
        format::text(key.as_str()),
        format::text(records.namespace()),
    )
}

/// The text for a value that is not a record.
pub(crate) fn not_a_record(redis_key: &str) -> String {
    format!("the value of the Redis key {} is not an idempotency record; it was not changed\n", format::text(redis_key))
}

fn table(key: &Key, redis_key: &str, view: &RecordView, result: &[u8], ttl: Option<Duration>) -> String {
    let mut rows = vec![
        ("key", format::text(key.as_str())),
        ("redis key", format::text(redis_key)),
        ("state", output::state(view.seen().state).to_owned()),
    ];
    match view.state {
        RecordStateView::Processing { recovery, lease } => {
            rows.push(("recovery", if recovery { "yes" } else { "no" }.to_owned()));
            rows.push(("lease", output::lease(lease)));
        }
        RecordStateView::Completed { result: location } => rows.push(("result", result_text(location, result))),
        RecordStateView::Failed(failure) => rows.push(("failure", output::failure(failure).to_owned())),
    }
    rows.extend([
        ("owner", view.owner.to_string()),
        ("fence", view.fence.to_string()),
        ("attempts", view.attempts.to_string()),
        ("age", format!("{} since the claim", format::duration(view.age))),
        ("expires", ttl.map_or("never".to_owned(), |ttl| format!("in {}", format::duration(ttl)))),
        ("fingerprint", format::fingerprint(view.fingerprint).unwrap_or("none".to_owned())),
    ]);
    format::rows(&rows)
}

fn result_text(location: StoredResult<()>, result: &[u8]) -> String {
    let size = format::bytes(result.len() as u64);
    match (location, result, printable(result)) {
        (StoredResult::NotKept, _, _) => "not kept".to_owned(),
        (StoredResult::Object(()), object, _) => format!("in {}", format::text(&String::from_utf8_lossy(object))),
        (StoredResult::Inline(()), [], _) => "empty".to_owned(),
        (StoredResult::Inline(()), _, Some(text)) => format!("{} ({size})", format::text(text)),
        (StoredResult::Inline(()), _, None) => format!("{} ({size}, base64)", STANDARD.encode(result)),
    }
}

fn result_json(view: &RecordView, result: &[u8]) -> Value {
    match view.state {
        RecordStateView::Completed { result: StoredResult::Object(()) } => {
            json!({ "object": String::from_utf8_lossy(result) })
        }
        RecordStateView::Completed { result: StoredResult::Inline(()) } => match printable(result) {
            Some(text) => json!({ "bytes": result.len(), "text": text }),
            None => json!({ "bytes": result.len(), "base64": STANDARD.encode(result) }),
        },
        RecordStateView::Completed { result: StoredResult::NotKept }
        | RecordStateView::Processing { .. }
        | RecordStateView::Failed(_) => Value::Null,
    }
}

/// The bytes as text, if they are UTF-8 without control characters other than line ends and tabs.
fn printable(bytes: &[u8]) -> Option<&str> {
    let is_printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    str::from_utf8(bytes).ok().filter(|text| text.chars().all(is_printable))
}
