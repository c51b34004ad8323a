//! `show`: one letter whole, and its record.

use std::error::Error;

use aws_sdk_sqs::types::MessageAttributeValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use idempotent_sqs::idempotency::Key;
use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs::stores::redis::records::{Records, RecordsError};
use serde_json::{Map, Value, json};

use super::Session;
use super::letter::{Letter, Origin};
use super::scan::Stop;
use crate::format;
use crate::output::CommandOutput;
use crate::records::inspect;

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
    let stop = match &found {
        Ok(Some(_)) => Stop::Limit,
        Ok(None) => Stop::ScanEnded,
        Err(_) => Stop::Failure,
    };
    let end = scan.end(stop).await;
    let Some(letter) = found.map_err(|error| end.explain(error))? else {
        let mut json = json!({ "queue_url": session.queue.url, "outcome": "ABSENT" });
        end.add_to(&mut json);
        let text = format!("no letter has the messageId or key {}\n{}", format::text(wanted), end.note());
        return Ok(CommandOutput::new(false, text, json));
    };
    let mut json = super::fields::json(&letter, session.started);
    json["attributes"] = attributes_json(&letter);
    let body = letter.message.body().unwrap_or_default();
    if with_body {
        json["body"] = body.into();
    }
    // Without Redis, the letter is shown nevertheless.
    let (record_text, record_json, unread) = match record(&letter, records).await {
        Ok((text, json)) => (text, json, None),
        Err(error) => (line("not read"), Value::Null, Some(error)),
    };
    json["record"] = record_json;
    json["lost"] = end.lost.into();
    json["receive_repeated"] = end.was_repeated.into();
    json["still_hidden"] = end.still_hidden.into();
    let text = format::rows(&rows(&letter, session, with_body)) + &record_text + &end.hidden_note();
    Ok(CommandOutput::new(end.is_success(), text, json).with_error(unread))
}

/// The record of the letter's key, or why it is not shown, as text and as JSON.
async fn record(letter: &Letter, records: Option<&Records>) -> Result<(String, Value), RecordsError> {
    let not_read = |why| Ok((line(why), Value::Null));
    let Some(Ok(key)) = letter.key.as_deref().map(Key::new) else { return not_read("the letter's key is not known") };
    let Some(records) = records else { return not_read("not read, because REDIS_URL is not set") };
    let CommandOutput { success, text, json, .. } = inspect::run(records, &key).await?;
    Ok((if success { format!("\nrecord\n{text}") } else { line(text.trim_end()) }, json))
}

fn line(why: &str) -> String {
    format!("\nrecord: {why}\n")
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
        Origin::RedrivePolicy(_) => rows.push(("reason", format!("{}: moved by the redrive policy", letter.reason()))),
        Origin::Unparsable(error) => {
            rows.push(("reason", format!("{}: {}", letter.reason(), format::text(error))));
        }
        Origin::Unknown => rows.push(("reason", letter.reason().to_owned())),
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
