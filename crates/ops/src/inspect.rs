//! `inspect`: the record of a key.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use idempotent_sqs::idempotency::{Key, StoredResult};
use idempotent_sqs::stores::redis::records::{Inspected, Records, RecordsError, Standing, View};
use serde_json::{Value, json};

use super::report::{self, Report};
use super::show;

pub(crate) async fn run(records: &Records, key: &Key) -> Result<Report, RecordsError> {
    let redis_key = records.redis_key(key);
    let mut json = json!({ "key": key.as_str(), "redis_key": redis_key });
    Ok(match records.inspect(key).await? {
        Inspected::Absent => {
            json["state"] = "ABSENT".into();
            Report { done: false, text: absent(records, key), json }
        }
        Inspected::NotARecord => {
            json["state"] = "NOT_A_RECORD".into();
            Report { done: false, text: foreign(&redis_key), json }
        }
        Inspected::Record { view, result, life } => {
            let text = table(key, &redis_key, &view, &result, life);
            report::join(&mut json, report::json(&view));
            json["life_remains_ms"] = life.map(show::ms).into();
            json["result"] = result_json(&view, &result);
            Report { done: true, text, json }
        }
    })
}

/// What is said of a key that has no record.
pub(crate) fn absent(records: &Records, key: &Key) -> String {
    format!(
        "no record of {}: none was made, or its life has ended; or the namespace is not {}, but another that the \
         function has in IDEMPOTENCY_NAMESPACE\n",
        show::text(key.as_str()),
        show::text(records.namespace()),
    )
}

/// What is said of a value that is not a record.
pub(crate) fn foreign(redis_key: &str) -> String {
    format!("the value under the Redis key {} is not an idempotency record; it is left alone\n", show::text(redis_key))
}

fn table(key: &Key, redis_key: &str, view: &View, result: &[u8], life: Option<Duration>) -> String {
    let mut rows = vec![
        ("key", show::text(key.as_str())),
        ("redis key", show::text(redis_key)),
        ("state", report::state(view.seen().state).to_owned()),
    ];
    match view.standing {
        Standing::Processing { recovery, lease } => {
            rows.push(("recovery", if recovery { "yes" } else { "no" }.to_owned()));
            rows.push(("lease", report::lease(lease)));
        }
        Standing::Completed { result: kept } => rows.push(("result", result_text(kept, result))),
        Standing::Failed(failure) => rows.push(("failure", report::failure(failure).to_owned())),
    }
    rows.extend([
        ("owner", view.owner.to_string()),
        ("fence", view.fence.to_string()),
        ("attempts", view.attempts.to_string()),
        ("age", format!("{} since the claim", show::span(view.age))),
        ("life", life.map_or("has no end".to_owned(), |life| format!("{} remain", show::span(life)))),
        ("fingerprint", show::fingerprint(view.fingerprint).unwrap_or("none".to_owned())),
    ]);
    show::rows(&rows)
}

fn result_text(kept: StoredResult<()>, result: &[u8]) -> String {
    let size = show::bytes(result.len() as u64);
    match (kept, result, printable(result)) {
        (StoredResult::NotKept, _, _) => "not kept".to_owned(),
        (StoredResult::Object(()), place, _) => format!("in {}", show::text(&String::from_utf8_lossy(place))),
        (StoredResult::Inline(()), [], _) => "empty".to_owned(),
        (StoredResult::Inline(()), _, Some(text)) => format!("{} ({size})", show::text(text)),
        (StoredResult::Inline(()), _, None) => format!("{} ({size}, base64)", STANDARD.encode(result)),
    }
}

fn result_json(view: &View, result: &[u8]) -> Value {
    match view.standing {
        Standing::Completed { result: StoredResult::Object(()) } => {
            json!({ "object": String::from_utf8_lossy(result) })
        }
        Standing::Completed { result: StoredResult::Inline(()) } => match printable(result) {
            Some(text) => json!({ "bytes": result.len(), "text": text }),
            None => json!({ "bytes": result.len(), "base64": STANDARD.encode(result) }),
        },
        Standing::Completed { result: StoredResult::NotKept } | Standing::Processing { .. } | Standing::Failed(_) => {
            Value::Null
        }
    }
}

/// The bytes as text, if they are such.
fn printable(bytes: &[u8]) -> Option<&str> {
    let of_a_text = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    str::from_utf8(bytes).ok().filter(|text| text.chars().all(of_a_text))
}
