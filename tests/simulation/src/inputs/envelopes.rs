//! Envelopes as docs/envelopes.md and the pages of the services describe them, and bodies that lack a part of one.

use history::Rng;
use idempotent_sqs::sqs::{Envelopes, KeySource, Message, Payload};
use serde_json::{Value, json};

/// Number of envelopes within each other that are opened at most: docs/envelopes.md.
const DEEPEST: u64 = 4;

/// How the id of a notification of S3 begins.
const OF_S3: &str = "s3-";

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
    let innermost = rng.draw(0..10);
    let (mut body, mut found) = match innermost {
        0..=2 => event_bridge(rng),
        3 => s3(rng),
        _ => ("a payment".to_owned(), Found { text: "a payment".to_owned(), ..Found::default() }),
    };
    let levels = rng.draw(if innermost < 4 { 0..6 } else { 1..7 });
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
    // A hash follows.
    let id = id.map(|id| if id.starts_with(OF_S3) { OF_S3.to_owned() } else { id });
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
        let repeated = [format!("{attribute},{attribute}"), attribute.replace('}', r#","Value":"2"}"#)];
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

/// A notification of S3, or almost one:
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>.
fn s3(rng: &mut Rng) -> (String, Found) {
    const BUCKET: &str = r#""name":"payments""#;
    const OBJECT: &str = r#""key":"7.json","eTag":"e","sequencer":"0055AED6""#;
    let written = |of_record: &str, of_s3: &str, of_bucket: &str, of_object: &str| {
        let s3 = format!(r#"{of_s3}"bucket":{{{of_bucket}}},"object":{{{of_object}}}"#);
        format!(r#"{{{of_record},"s3":{{{s3}}}}}"#)
    };
    let of_record = r#""eventSource":"aws:s3","eventName":"ObjectCreated:Put""#;
    let valid = written(of_record, "", BUCKET, OBJECT);
    let almost = [
        written(&of_record.replace("aws:s3", "aws:sqs"), "", BUCKET, OBJECT),
        written(r#""eventSource":"aws:s3""#, "", BUCKET, OBJECT),
        written(&format!("{of_record},{of_record}"), "", BUCKET, OBJECT),
        written(of_record, r#""bucket":{},"#, BUCKET, OBJECT),
        written(of_record, "", "", OBJECT),
        written(of_record, "", &format!("{BUCKET},{BUCKET}"), OBJECT),
        written(of_record, "", BUCKET, &OBJECT.replace("7.json", "").replace("\"key\":\"\",", "")),
        written(of_record, "", BUCKET, &OBJECT.replace("\"7.json\"", "7")),
        written(of_record, "", BUCKET, &format!("{OBJECT},{OBJECT}")),
    ];
    let mut records = vec![valid; *rng.pick(&[1, 1, 2])];
    let has_defect = rng.happens(500);
    if has_defect {
        match rng.draw(0..8) {
            0 => records.clear(),
            _ => records.last_mut().expect("there is one").clone_from(rng.pick(&almost)),
        }
    }
    let body = format!(r#"{{"Records":[{}]}}"#, records.join(","));
    (body.clone(), Found { text: body, id: (!has_defect).then(|| OF_S3.to_owned()), attribute: None })
}
