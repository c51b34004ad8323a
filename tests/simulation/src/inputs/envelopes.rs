//! Envelopes as docs/envelopes.md and the pages of the services describe them, and bodies that lack a part of one.

use history::Rng;
use idempotent_sqs::sqs::{Envelopes, KeySource, Message, Payload};
use serde_json::{Value, json};

/// Number of envelopes within each other that are opened at most: docs/envelopes.md.
const DEEPEST: u64 = 4;

/// What must be found in a body.
#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    text: String,
    /// `None` is the messageId.
    id: Option<String>,
    /// The attribute of SNS.
    attribute: Option<String>,
}

/// A body, and what must be found in it. Each level may have a defect: then it is a payload.
pub(super) fn wrong_envelope(rng: &mut Rng) -> Vec<String> {
    let is_event_bridge = rng.happens(300);
    let (mut body, mut found) = if is_event_bridge {
        event_bridge(rng)
    } else {
        ("a payment".to_owned(), Found { text: "a payment".to_owned(), ..Found::default() })
    };
    let levels = rng.draw(if is_event_bridge { 0..6 } else { 1..7 });
    let mut opened = u64::from(found.id.is_some());
    for level in 0..levels {
        let (id, has_attribute, has_defect) = (format!("sns-{level}"), rng.happens(400), rng.happens(150));
        let (text, is_valid) = sns(&body, &id, has_attribute.then_some(level), has_defect, rng);
        if is_valid {
            found.id.get_or_insert(id);
            found.attribute = found.attribute.or_else(|| has_attribute.then(|| level.to_string()));
            opened += 1;
        } else {
            found = Found { text: text.clone(), ..Found::default() };
            opened = 0;
        }
        body = text;
    }
    // Deeper levels stay closed: the payload is what the last opened one has.
    if opened > DEEPEST {
        return Vec::new();
    }
    let message = Message::new("m1", body);
    let payload = Payload::of(&message, Envelopes::Auto);
    let key = |source: &str| KeySource::find(&[source.parse().expect("it is valid")], &payload).ok();
    let id = key("messageId").map(|key| key.as_str().to_owned()).filter(|id| id != "m1");
    let attribute = key("attribute:Level").map(|key| key.as_str().to_owned());
    let mut wrong = Vec::new();
    let seen = Found { text: payload.text().to_owned(), id, attribute };
    if seen != found {
        wrong.push(format!("in {:?} was found {seen:?}, not {found:?}", message.body()));
    }
    let closed = Payload::of(&message, Envelopes::None);
    if closed.text() != message.body() {
        wrong.push(format!("a body was opened: {:?}", message.body()));
    }
    wrong
}

/// A notification of SNS, and whether it is valid.
fn sns(message: &str, id: &str, attribute: Option<u64>, has_defect: bool, rng: &mut Rng) -> (String, bool) {
    let mut fields = vec![
        ("Type", json!("Notification")),
        ("MessageId", json!(id)),
        ("TopicArn", json!("arn:aws:sns:eu-central-1:123456789012:payments")),
        ("Message", json!(message)),
        ("Timestamp", json!("2026-11-25T09:31:05.600Z")),
    ];
    let attributes = attribute.map(|level| json!({ "Level": { "Type": "String", "Value": level.to_string() } }));
    if !has_defect {
        fields.extend(attributes.map(|attributes| ("MessageAttributes", attributes)));
        return (object(&fields), true);
    }
    if rng.happens(200) {
        let attribute = r#""Level":{"Type":"String","Value":"1"}"#;
        let repeated = [format!("{attribute},{attribute}"), attribute.replace("}", r#","Value":"2"}"#)];
        let attributes = format!(r#"{{{},"MessageAttributes":{{{}}}}}"#, inner(&fields), rng.pick(&repeated));
        return (attributes, false);
    }
    let at = usize::try_from(rng.draw(0..5)).unwrap_or_default();
    match rng.draw(0..5) {
        0 => drop(fields.remove(at)),
        1 => fields[at].1 = json!(7),
        // An empty message is one.
        2 if fields[at].0 != "Message" => fields[at].1 = json!(""),
        3 => {
            fields[2].1 =
                json!(*rng.pick(&["topic", "arn:aws:sqs:eu-central-1:1:payments", "urn:aws:sns:a:1:b", "arn:aws"]));
        }
        _ => fields.push(fields[at].clone()),
    }
    (object(&fields), false)
}

/// An object of these fields, in this order.
fn object(fields: &[(&str, Value)]) -> String {
    format!("{{{}}}", inner(fields))
}

/// The same without its brackets.
fn inner(fields: &[(&str, Value)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    fields.join(",")
}

/// An event of EventBridge, or almost one.
fn event_bridge(rng: &mut Rng) -> (String, Found) {
    const FIELDS: [&str; 9] =
        ["version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail"];
    let value = |name: &str| match name {
        "version" => json!("0"),
        "resources" => json!([]),
        "detail" => json!({ "payment": 1 }),
        other => json!(other),
    };
    let mut fields: Vec<_> = FIELDS.iter().map(|name| (*name, value(name))).collect();
    let has_defect = rng.happens(500);
    let at = usize::try_from(rng.draw(0..9)).unwrap_or_default();
    match rng.draw(0..3) {
        _ if !has_defect => {}
        0 => drop(fields.remove(at)),
        1 => fields[at].1 = if at == 0 { json!("1") } else { json!(7) },
        _ => fields.push(fields[at].clone()),
    }
    let body = object(&fields);
    let id = (!has_defect).then(|| "id".to_owned());
    (body.clone(), Found { text: body, id, attribute: None })
}
