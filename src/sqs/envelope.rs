//! Envelopes that AWS services put around a payload: notifications of SNS, EventBridge and S3.
//!
//! An envelope is recognized by all of its fields and their types, so that a payload that has only some of these fields
//! is not treated as an envelope. Nor is one in which a field occurs twice: only the last one would be compared, and a
//! receiver may take the first one. Fields that differ between deliveries of the same payload (a time, a signature, an
//! id) are not part of the fingerprint.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use aws_smithy_types::base64;
use memchr::memmem::Finder;
use serde_json::value::{RawValue, to_raw_value};

use super::attribute::{AttributeValue, MessageAttribute};
use super::json::{Json, Kind, Value};
use crate::idempotency::{Fingerprint, Location};

/// Which envelopes are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Envelopes {
    /// The notifications of SNS, EventBridge and S3, also nested, and the pointers of the extended clients.
    #[default]
    Auto,
    /// None: every body is a payload.
    None,
}

/// Levels of nested envelopes that are opened. S3 or EventBridge within SNS is two; the others are for forwarded
/// notifications, and the limit bounds the processing of a malicious body.
const MAX_DEPTH: usize = 4;

/// Every envelope contains one of these texts, in the notation that the services use. A search for them takes a
/// fraction of the time of parsing JSON, and most messages have no envelope.
static MARKS: LazyLock<[Finder<'_>; 3]> =
    LazyLock::new(|| ["\"TopicArn\"", "\"detail-type\"", "\"aws:s3\""].map(Finder::new));

/// A body whose envelopes were opened.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// The message of the innermost SNS notification. `None` if the payload is the body.
    pub(super) text: Option<String>,
    /// The id that the innermost service gave to its notification. It is the same in every delivery.
    pub(super) id: Option<String>,
    /// Message attributes of SNS.
    pub(super) attributes: HashMap<String, MessageAttribute>,
    /// The form of the payload.
    pub(super) form: Form,
    /// The parsed payload, if it was parsed to determine its form.
    pub(super) json: Option<Json>,
}

/// The extended clients set one of these attributes; the second is that of older versions:
/// <https://github.com/awslabs/amazon-sqs-java-extended-client-lib>
pub(super) const POINTER_ATTRIBUTES: [&str; 2] = ["ExtendedPayloadSize", "SQSLargePayloadSize"];

/// A pointer of the extended clients starts with one of these; the second is that of older versions.
const POINTER_CLASSES: [&str; 2] =
    ["software.amazon.payloadoffloading.PayloadS3Pointer", "com.amazon.sqs.javamessaging.MessageS3Pointer"];

/// The form of a payload. It determines which fields are the same whenever the payload is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Defined by the producer. All fields are compared.
    #[default]
    Plain,
    /// An event of EventBridge: the fields of [`EVENT_BRIDGE_CONTENT`].
    EventBridge,
    /// A notification of S3: the fields of [`S3_CONTENT`] in each record.
    S3,
}

/// Fields of an EventBridge event that are the same whenever it is sent.
pub(super) const EVENT_BRIDGE_CONTENT: [&str; 4] = ["/detail-type", "/source", "/resources", "/detail"];

/// Fields of a record of an S3 notification that are the same whenever it is sent.
pub(super) const S3_CONTENT: [&str; 6] =
    ["/eventName", "/s3/bucket/name", "/s3/object/key", "/s3/object/versionId", "/s3/object/eTag", "/s3/object/size"];

/// Opens the envelopes of a body. Returns `None` if it has none.
pub(super) fn open(body: &str) -> Option<Opened> {
    let mut opened = open_one(body)?;
    for _ in 1..MAX_DEPTH {
        // Only SNS notifications contain a message as text. Those of EventBridge and S3 are the payload themselves.
        let inner = opened.text.as_deref().filter(|_| opened.form == Form::Plain);
        let Some(next) = inner.and_then(open_one) else { break };
        let mut attributes = opened.attributes;
        attributes.extend(next.attributes);
        opened = Opened { text: next.text.or(opened.text), id: next.id.or(opened.id), attributes, ..next };
    }
    Some(opened)
}

fn open_one(text: &str) -> Option<Opened> {
    MARKS.iter().find_map(|mark| mark.find(text.as_bytes()))?;
    let json = Json::parse(text)?;
    let value = json.value();
    let opened = sns(value).or_else(|| event_bridge(value)).or_else(|| s3(value)).filter(|_| !value.repeats_key())?;
    Some(Opened { json: opened.text.is_none().then_some(json), ..opened })
}

/// <https://docs.aws.amazon.com/sns/latest/dg/sns-sqs-as-subscriber.html>
fn sns(json: Value<'_>) -> Option<Opened> {
    let text = |key| json.get(key)?.text().filter(|text| !text.is_empty());
    let mut topic = text("TopicArn")?.split(':');
    let is_sns = text("Type") == Some("Notification")
        && (topic.next(), topic.nth(1)) == (Some("arn"), Some("sns"))
        && text("Timestamp").is_some();
    let attributes = json.get("MessageAttributes").unwrap_or(Value::NULL);
    if attributes.repeats_key() || attributes.entries().any(|(_, attribute)| attribute.repeats_key()) {
        return None;
    }
    let attributes = attributes.entries();
    let (id, message) = (text("MessageId")?, json.get("Message")?.text()?);
    is_sns.then(|| Opened {
        text: Some(message.to_owned()),
        id: Some(id.to_owned()),
        attributes: attributes.filter_map(|(name, value)| Some((name.text()?.to_owned(), attribute(value)))).collect(),
        ..Opened::default()
    })
}

fn attribute(attribute: Value<'_>) -> MessageAttribute {
    let text = |field| attribute.get(field).and_then(Value::text);
    let value = match (text("Type"), text("Value")) {
        (Some("Binary"), Some(value)) => {
            base64::decode(value).map_or(AttributeValue::Unreadable, AttributeValue::Binary)
        }
        (Some(_), Some(value)) => AttributeValue::Text(value.to_owned()),
        (None, _) | (_, None) => AttributeValue::Unreadable,
    };
    MessageAttribute { data_type: text("Type").unwrap_or("String").to_owned(), value }
}

/// <https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html>
fn event_bridge(json: Value<'_>) -> Option<Opened> {
    let text = |key| json.get(key)?.text().filter(|text| !text.is_empty());
    let is_event = text("version") == Some("0")
        && ["detail-type", "source", "account", "time", "region"].iter().all(|key| text(key).is_some())
        && matches!((json.get("resources")?.kind(), json.get("detail")?.kind()), (Kind::Array, Kind::Object));
    let id = text("id")?;
    is_event.then(|| Opened { id: Some(id.to_owned()), form: Form::EventBridge, ..Opened::default() })
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>
///
/// The test message that S3 sends when notifications are set up does not match, because it has no object.
fn s3(json: Value<'_>) -> Option<Opened> {
    let records = json.get("Records")?;
    let is_s3 = |record: Value<'_>| {
        record.get("eventSource").and_then(Value::text) == Some("aws:s3")
            && ["/eventName", "/s3/bucket/name", "/s3/object/key"]
                .iter()
                .all(|at| record.pointer(at).and_then(Value::text).is_some())
            && !["", "/s3", "/s3/bucket", "/s3/object"]
                .iter()
                .filter_map(|at| record.pointer(at))
                .any(Value::repeats_key)
    };
    let matches = records.items().next().is_some() && records.items().all(is_s3);
    matches.then(|| Opened { id: s3_event_id(records), form: Form::S3, ..Opened::default() })
}

/// An id of an S3 notification, which S3 does not provide. Two events of an object with the same sequencer are
/// duplicates. Only events that change the object have a sequencer; others are identified by the id of the request
/// that caused them. The id is hashed, because an object's name may be long and must not appear in a log.
fn s3_event_id(records: Value<'_>) -> Option<String> {
    let mut events = Vec::new();
    for record in records.items() {
        let sequence = ["/s3/object/sequencer", "/responseElements/x-amz-request-id"];
        let sequence = sequence.iter().find_map(|at| record.pointer(at).filter(|value| value.text().is_some()))?;
        events.extend_from_slice(sequence.canonical());
        record.append_at(&["/eventName", "/s3/bucket/name", "/s3/object/key", "/s3/object/versionId"], &mut events);
    }
    Some(format!("s3-{}", Fingerprint::of(&events)))
}

/// The location that this value points to. Returns `None` if it is not a pointer of the extended clients.
pub(super) fn pointer(json: Value<'_>) -> Option<Location> {
    let mut items = json.items();
    let (Some(class), Some(location), None) = (items.next(), items.next(), items.next()) else { return None };
    let text = |key| location.get(key)?.text().filter(|text| !text.is_empty()).map(str::to_owned);
    let location = Location { bucket: text("s3BucketName")?, name: text("s3Key")? };
    POINTER_CLASSES.contains(&class.text()?).then_some(location)
}

/// The body with `payload` in place of its own payload, inside the SNS envelopes if there are any. These lose the
/// attributes of a pointer.
pub(super) fn with_payload(body: &str, payload: &str) -> String {
    let in_sns = || {
        let message = open_one(body)?.text?;
        let message = to_raw_value(&with_payload(&message, payload)).ok()?;
        let mut envelope: BTreeMap<String, &RawValue> = serde_json::from_str(body).ok()?;
        envelope.insert("Message".to_owned(), &message);
        let attributes = envelope.get("MessageAttributes").and_then(|attributes| without_pointer(attributes));
        envelope.extend(attributes.as_deref().map(|attributes| ("MessageAttributes".to_owned(), attributes)));
        serde_json::to_string(&envelope).ok()
    };
    in_sns().unwrap_or_else(|| payload.to_owned())
}

/// These attributes of SNS without those of a pointer.
fn without_pointer(attributes: &RawValue) -> Option<Box<RawValue>> {
    let mut attributes: BTreeMap<String, &RawValue> = serde_json::from_str(attributes.get()).ok()?;
    attributes.retain(|name, _| !POINTER_ATTRIBUTES.contains(&name.as_str()));
    to_raw_value(&attributes).ok()
}
