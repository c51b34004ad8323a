//! Events of SQS, and of services that invoke a function in the same way.

use std::collections::BTreeSet;

use history::Rng;
use idempotent_sqs::sqs::{Disposition, EventError, Message, messages, response};
use serde_json::{Value, json};

/// Whether an event is taken for what it is. An event whose records lack a messageId is of another service if one of
/// them names it.
pub(super) fn wrong_event(rng: &mut Rng) -> Option<String> {
    let records: Vec<_> = (0..rng.draw(1..4)).map(|_| record(rng)).collect();
    let event = json!({ "Records": records }).to_string();
    let read = match messages(&event) {
        Ok(messages) => {
            if let Some(wrong) = wrong_response(&messages, rng) {
                return Some(format!("{wrong}: {event}"));
            }
            Ok(messages.into_iter().map(|message| message.id).collect())
        }
        Err(EventError::NotSqs) => Err(None),
        Err(EventError::NoMessageId { index }) => Err(Some(index)),
        Err(other) => return Some(format!("{other} of {event}")),
    };
    let ids: Vec<_> = records.iter().map(|record| record["messageId"].as_str().unwrap_or_default()).collect();
    let is_foreign = |record: &Value| {
        let source = ["eventSource", "EventSource"].iter().find_map(|name| record[*name].as_str());
        !record["messageId"].is_string() && source.is_some_and(|source| !["", "aws:sqs"].contains(&source))
    };
    let expected = match ids.iter().position(|id| id.is_empty()) {
        None => Ok(ids.iter().map(ToString::to_string).collect::<Vec<_>>()),
        Some(_) if records.iter().any(is_foreign) => Err(None),
        Some(index) => Err(Some(index)),
    };
    (read != expected).then(|| format!("this event is {read:?}, not {expected:?}: {event}"))
}

/// Whether the response does not name each failed message once. Several records may have one messageId.
fn wrong_response(messages: &[Message], rng: &mut Rng) -> Option<String> {
    let dispositions = [Disposition::Done, Disposition::DeadLetter, Disposition::Redeliver { after: None }];
    let reports: Vec<_> = messages.iter().map(|message| (message, *rng.pick(&dispositions))).collect();
    let failures = response(reports.iter().copied()).batch_item_failures;
    let named: Vec<_> = failures.iter().map(|failure| &failure.item_identifier).collect();
    let is_failed = |disposition| matches!(disposition, Disposition::Redeliver { .. });
    let failed: BTreeSet<_> =
        reports.iter().filter(|(_, next)| is_failed(*next)).map(|(message, _)| &message.id).collect();
    let is_right = named.len() == failed.len() && named.iter().copied().collect::<BTreeSet<_>>() == failed;
    (!is_right).then(|| format!("the response names {named:?}, not {failed:?}"))
}

fn record(rng: &mut Rng) -> Value {
    let mut record = json!({ "body": "a payment" });
    match rng.draw(0..8) {
        0 => {}
        1 => record["messageId"] = json!(""),
        2 => record["messageId"] = json!(7),
        number => record["messageId"] = json!(format!("m{number}")),
    }
    let source = *rng.pick(&["aws:sqs", "aws:sqs", "aws:s3", "aws:sns", ""]);
    match rng.draw(0..6) {
        0 => {}
        1 => record["EventSource"] = json!(source),
        2 => record["eventSource"] = json!(7),
        _ => record["eventSource"] = json!(source),
    }
    record
}
