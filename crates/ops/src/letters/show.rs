//! `show`: one letter whole, and its record.

use std::error::Error;

use aws_sdk_sqs::types::MessageAttributeValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use idempotent_sqs::idempotency::error_chain;
use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs::stores::redis::records::Records;
use serde_json::{Map, Value, json};

use super::Session;
use super::letter::{Letter, Origin};
use crate::format;
use crate::output::CommandOutput;
use crate::records::{inspect, key};

pub(crate) async fn run(
    session: &Session,
    wanted: &str,
    with_body: bool,
    records: Option<&Records>,
) -> Result<CommandOutput, Box<dyn Error>> {
    let mut scan = session.scan();
    let is_wanted = |letter: &Letter| letter.has_id(wanted) || letter.key.as_deref() == Some(wanted);
    let found = loop {
        match scan.next().await {
            Ok(Some(letter)) if is_wanted(&letter) => break Ok(Some(letter)),
            Ok(Some(_)) => {}
            Ok(None) => break Ok(None),
            Err(error) => break Err(error),
        }
    };
    let end = scan.end(false).await;
    let Some(letter) = found? else {
        let mut json = json!({ "queue_url": session.queue.url, "outcome": "ABSENT" });
        end.add_to(&mut json);
        let text = format!("no letter has the messageId or key {}\n{}", format::text(wanted), end.note());
        return Ok(CommandOutput { success: false, text, json });
    };
    let mut json = super::fields::json(&letter, session.started);
    json["attributes"] = attributes_json(&letter);
    let body = letter.message.body().unwrap_or_default();
    if with_body {
        json["body"] = body.into();
    }
    let record = record(&letter, records).await;
    json["record"] = record.json;
    let text = format::rows(&rows(&letter, session, with_body)) + &record.text;
    Ok(CommandOutput { success: record.success, text, json })
}

/// The record of the letter's key, or why it is not shown.
async fn record(letter: &Letter, records: Option<&Records>) -> CommandOutput {
    let line = |why: &str| format!("\nrecord: {why}\n");
    let not_read = |why| CommandOutput { success: true, text: line(why), json: Value::Null };
    let Some(Ok(key)) = letter.key.as_deref().map(key) else { return not_read("the letter's key is not known") };
    let Some(records) = records else { return not_read("not read, because REDIS_URL is not set") };
    match inspect::run(records, &key).await {
        Ok(CommandOutput { success: true, text, json }) => {
            CommandOutput { success: true, text: format!("\nrecord\n{text}"), json }
        }
        Ok(absent) => CommandOutput { success: true, text: line(absent.text.trim_end()), json: absent.json },
        Err(error) => CommandOutput { success: false, text: line(&error_chain(&error)), json: Value::Null },
    }
}

fn rows(letter: &Letter, session: &Session, with_body: bool) -> Vec<(&'static str, String)> {
    let optional = |value: Option<&str>| value.map_or("unknown".to_owned(), format::text);
    let mut rows = vec![
        ("message id", format::text(letter.id())),
        ("original id", optional(letter.original_id())),
        ("outcome", letter.outcome().to_owned()),
    ];
    match &letter.origin {
        Origin::Function(described) => {
            rows.push(("reason", format::text(&described.reason)));
            let number = |number: Option<u64>| number.map_or("unknown".to_owned(), |number| number.to_string());
            rows.push(("attempts", number(described.attempts.map(u64::from))));
            rows.push(("fence", number(described.fence)));
            let receives = [&described.first_receive, &described.last_receive].map(|at| optional(at.as_deref()));
            rows.push(("received", receives.join(" to ")));
            let function = [&described.function, &described.version].map(|text| optional(text.as_deref()));
            rows.push(("function", function.join(", version ")));
        }
        Origin::RedrivePolicy(_) => rows.push(("reason", "received too often: moved by the redrive policy".to_owned())),
        Origin::Unparsable(error) => {
            rows.push(("reason", format!("{} cannot be parsed: {}", DeadLetter::ATTRIBUTE, format::text(error))));
        }
        Origin::Unknown => rows.push(("reason", format!("no attribute {}", DeadLetter::ATTRIBUTE))),
    }
    rows.extend([
        ("key", optional(letter.key.as_deref())),
        ("source queue", optional(letter.source_queue_arn())),
        ("group", letter.group().map_or("none".to_owned(), format::text)),
        ("age", letter.age(session.started).map_or("unknown".to_owned(), format::duration)),
    ]);
    let mut attributes: Vec<_> = letter.message.message_attributes().into_iter().flatten().collect();
    attributes.sort_by_key(|(name, _)| *name);
    // Its fields are the rows above.
    attributes.retain(|(name, _)| letter.described().is_none() || *name != DeadLetter::ATTRIBUTE);
    rows.extend(attributes.into_iter().map(|(name, value)| {
        (
            "attribute",
            format!("{} = {} ({})", format::text(name), attribute_text(value), format::text(value.data_type())),
        )
    }));
    let body = letter.message.body().unwrap_or_default();
    let shown = if with_body { format::text(body) } else { format!("{} bytes; --body shows it", body.len()) };
    rows.push(("body", shown));
    rows
}

fn attribute_text(value: &MessageAttributeValue) -> String {
    match (value.string_value(), value.binary_value()) {
        (Some(text), _) => format::text(text),
        (None, Some(bytes)) => STANDARD.encode(bytes),
        (None, None) => String::new(),
    }
}

fn attributes_json(letter: &Letter) -> Value {
    let attributes = letter.message.message_attributes().into_iter().flatten();
    let json = attributes.map(|(name, value)| {
        let mut json = json!({ "data_type": value.data_type() });
        if let Some(text) = value.string_value() {
            json["text"] = text.into();
        }
        if let Some(bytes) = value.binary_value() {
            json["base64"] = STANDARD.encode(bytes).into();
        }
        (name.clone(), json)
    });
    Value::Object(json.collect::<Map<_, _>>())
}
