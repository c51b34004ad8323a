//! What AWS's services put around a payload: the notifications of SNS, EventBridge and S3.
//!
//! Each is known by all of its marks, and by their types, so that a payload which has one of them by
//! chance is no envelope. What is different in every delivery of the same payload (a time, a
//! signature, an id) has no part in the fingerprint.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::value::{RawValue, to_raw_value};

use crate::json::{Json, Kind, Value};
use crate::object::Place;
use crate::record::{ContentKind, Fingerprint};

/// Envelopes that are opened, one within the other. Two are in use, S3's or EventBridge's in SNS's;
/// what is forwarded once or twice more is still opened, and nobody can make this go on and on.
const DEEPEST: usize = 4;

/// One of these is in every envelope, as the services write them. To look for them costs a small part
/// of what it costs to read the JSON, and most messages have no envelope.
static MARKS: LazyLock<[Finder<'_>; 3]> =
    LazyLock::new(|| ["\"TopicArn\"", "\"detail-type\"", "\"aws:s3\""].map(Finder::new));

/// A body out of its envelopes.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// What SNS carried, from the innermost notification; `None` where the payload is the body.
    pub(crate) text: Option<String>,
    /// What the innermost service that names its notifications calls this one. Every delivery of it
    /// has the same.
    pub(crate) id: Option<String>,
    /// SNS's message attributes, and those that are not text as `None`.
    pub(crate) attributes: HashMap<String, Option<String>>,
    /// What the payload is.
    pub(crate) form: Form,
    /// The payload itself, where it was read to know what it is.
    pub(crate) json: Option<Json>,
}

/// Attributes of which the extended clients set one, the older of them the second:
/// <https://github.com/awslabs/amazon-sqs-java-extended-client-lib>
pub(crate) const POINTS: [&str; 2] = ["ExtendedPayloadSize", "SQSLargePayloadSize"];

/// What the extended clients begin a pointer with, the older of them the second.
const POINTERS: [&str; 2] =
    ["software.amazon.payloadoffloading.PayloadS3Pointer", "com.amazon.sqs.javamessaging.MessageS3Pointer"];

/// What a payload is, which says what of it is the same whenever it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// The producer's own: all of it.
    #[default]
    Plain,
    /// An event of EventBridge.
    EventBridge,
    /// A notification of S3.
    S3,
}

/// The body out of its envelopes; `None` where it is in none.
pub(crate) fn open(body: &str) -> Option<Opened> {
    let mut opened = open_one(body)?;
    for _ in 1..DEEPEST {
        // Only SNS carries a text. What EventBridge and S3 tell is the payload.
        let carried = opened.text.as_deref().filter(|_| opened.form == Form::Plain);
        let Some(next) = carried.and_then(open_one) else { break };
        let mut attributes = opened.attributes;
        attributes.extend(next.attributes);
        opened = Opened { text: next.text.or(opened.text), id: next.id.or(opened.id), attributes, ..next };
    }
    Some(opened)
}

fn open_one(text: &str) -> Option<Opened> {
    MARKS.iter().find_map(|mark| mark.find(text.as_bytes()))?;
    let json = Json::read(text)?;
    let value = json.value();
    let opened = sns(value).or_else(|| event_bridge(value)).or_else(|| s3(value))?;
    Some(Opened { json: opened.text.is_none().then_some(json), ..opened })
}

/// <https://docs.aws.amazon.com/sns/latest/dg/sns-sqs-as-subscriber.html>
fn sns(json: Value<'_>) -> Option<Opened> {
    let text = |key| json.get(key)?.text().filter(|text| !text.is_empty());
    let mut topic = text("TopicArn")?.split(':');
    let is_sns = text("Type") == Some("Notification")
        && (topic.next(), topic.nth(1)) == (Some("arn"), Some("sns"))
        && text("Timestamp").is_some();
    let attributes = json.get("MessageAttributes").into_iter().flat_map(Value::entries);
    let (id, message) = (text("MessageId")?, json.get("Message")?.text()?);
    is_sns.then(|| Opened {
        text: Some(message.to_owned()),
        id: Some(id.to_owned()),
        attributes: attributes.filter_map(|(name, value)| Some((name.text()?.to_owned(), attribute(value)))).collect(),
        ..Opened::default()
    })
}

fn attribute(attribute: Value<'_>) -> Option<String> {
    let is_bytes = attribute.get("Type")?.text() == Some("Binary");
    attribute.get("Value")?.text().filter(|_| !is_bytes).map(str::to_owned)
}

/// <https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html>
fn event_bridge(json: Value<'_>) -> Option<Opened> {
    let text = |key| json.get(key)?.text().filter(|text| !text.is_empty());
    let is_event = text("version") == Some("0")
        && ["detail-type", "source", "account", "time", "region"].iter().all(|key| text(key).is_some())
        && matches!((json.get("resources")?.kind(), json.get("detail")?.kind()), (Kind::List, Kind::Object));
    let id = text("id")?;
    is_event.then(|| Opened { id: Some(id.to_owned()), form: Form::EventBridge, ..Opened::default() })
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>
///
/// The test that S3 sends when notifications are set up is none of these: it is about no object.
fn s3(json: Value<'_>) -> Option<Opened> {
    let records = json.get("Records")?;
    let is_s3 = |record: Value<'_>| {
        record.get("eventSource").and_then(Value::text) == Some("aws:s3")
            && ["/eventName", "/s3/bucket/name", "/s3/object/key"]
                .iter()
                .all(|at| record.pointer(at).and_then(Value::text).is_some())
    };
    let known = records.items().next().is_some() && records.items().all(is_s3);
    known.then(|| Opened { id: event_of_s3(records), form: Form::S3, ..Opened::default() })
}

/// S3 names no notification, but what it was about: of two with the same sequencer one is a
/// duplicate. Only what changes the object has one; else the request that the event came of tells it
/// from others. Hashed, as an object's name may be long, and is nothing for a log.
fn event_of_s3(records: Value<'_>) -> Option<String> {
    let mut events = Vec::new();
    for record in records.items() {
        let sequence = ["/s3/object/sequencer", "/responseElements/x-amz-request-id"];
        let sequence = sequence.iter().find_map(|at| record.pointer(at).filter(|value| value.text().is_some()))?;
        events.extend_from_slice(sequence.canonical());
        append(record, &["/eventName", "/s3/bucket/name", "/s3/object/key", "/s3/object/versionId"], &mut events);
    }
    Some(format!("s3-{}", Fingerprint::of(&events)))
}

impl Form {
    /// The fingerprint of what is the same whenever this payload is sent.
    pub(crate) fn fingerprint(self, payload: Value<'_>) -> Fingerprint {
        let mut values = Vec::new();
        match self {
            Self::Plain => Fingerprint::of_kind(ContentKind::Json, payload.canonical()),
            Self::EventBridge => {
                append(payload, &["/detail-type", "/source", "/resources", "/detail"], &mut values);
                Fingerprint::of_kind(ContentKind::EventBridge, &values)
            }
            Self::S3 => {
                let object = ["/s3/object/key", "/s3/object/versionId", "/s3/object/eTag", "/s3/object/size"];
                for record in payload.get("Records").into_iter().flat_map(Value::items) {
                    append(record, &["/eventName", "/s3/bucket/name"], &mut values);
                    append(record, &object, &mut values);
                }
                Fingerprint::of_kind(ContentKind::S3, &values)
            }
        }
    }
}

/// Where the payload is that this value points to; `None` where it is no pointer.
pub(crate) fn pointer(json: Value<'_>) -> Option<Place> {
    let mut items = json.items();
    let (Some(name), Some(place), None) = (items.next(), items.next(), items.next()) else { return None };
    let text = |key| place.get(key)?.text().filter(|text| !text.is_empty()).map(str::to_owned);
    let place = Place { bucket: text("s3BucketName")?, name: text("s3Key")? };
    POINTERS.contains(&name.text()?).then_some(place)
}

/// The body with this payload in the place of its own: alone, or within SNS's envelopes.
pub(crate) fn with_payload(body: &str, payload: &str) -> String {
    let within_sns = || {
        let message = open_one(body)?.text?;
        let message = to_raw_value(&with_payload(&message, payload)).ok()?;
        let mut envelope: BTreeMap<String, &RawValue> = serde_json::from_str(body).ok()?;
        envelope.insert("Message".to_owned(), &message);
        serde_json::to_string(&envelope).ok()
    };
    within_sns().unwrap_or_else(|| payload.to_owned())
}

/// Appends the canonical form of the value at each of these pointers, and `null` where there is none.
pub(crate) fn append(json: Value<'_>, pointers: &[impl AsRef<str>], values: &mut Vec<u8>) {
    for pointer in pointers {
        values.extend_from_slice(json.pointer(pointer.as_ref()).unwrap_or(Value::NULL).canonical());
    }
}
