//! Properties that hold for any input of the parsers. The fuzz targets search for a counterexample until they are
//! stopped; the tests check the seeds and random input.

#![allow(dead_code, reason = "each fuzz target uses one property")]

use std::collections::HashSet;
use std::fmt;

use idempotent_sqs::sqs;
use idempotent_sqs::sqs::{Disposition, Envelopes, FingerprintSource, KeyError, KeySource, Message, Payload};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Any text as an event is rejected, or every message has an id, and a response names only messages of the event, each
/// once.
pub(crate) fn event(event: &str) {
    let Ok(messages) = sqs::messages(event) else { return };
    let ids: HashSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    assert!(!ids.contains(""));
    let redeliver = Disposition::Redeliver { after: None };
    let response = sqs::response(messages.iter().map(|message| (message, redeliver)));
    let named: Vec<&str> =
        response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    assert_eq!(named.len(), ids.len());
    assert_eq!(named.into_iter().collect::<HashSet<_>>(), ids);
}

/// For any body and any key source: a key is not empty, equal JSON has equal keys and fingerprints in every notation,
/// and a body is read exactly if it matches the JSON grammar.
pub(crate) fn key(source: &str, body: &str) {
    let attributes = [("Idempotency-Key".to_owned(), body.into())];
    let message = |body: String| {
        let mut message = Message::new("id", body);
        message.attributes = attributes.clone().into();
        message
    };
    // As it is and in an SNS notification, in which the same values are found.
    let (plain, in_sns) = (message(body.to_owned()), message(sns(body)));
    let payloads = [&plain, &in_sns].map(|message| Payload::of(message, Envelopes::Auto));
    if let Ok(key_source) = source.parse::<KeySource>() {
        assert_eq!(key_source.to_string().parse(), Ok(key_source.clone()));
        let [plain, in_sns] =
            payloads.each_ref().map(|payload| KeySource::find(std::slice::from_ref(&key_source), payload));
        assert!(plain.as_ref().is_ok_and(|key| !key.as_str().is_empty()) || plain.is_err());
        // A notification has its own id, unless there is another notification in it.
        assert!(key_source == KeySource::MessageId || plain == in_sns);
    }
    let source = source.parse().unwrap_or(FingerprintSource::Body);
    let [fingerprint, fingerprint_in_sns] = payloads.each_ref().map(|payload| source.compute(payload));
    assert_eq!(fingerprint, fingerprint_in_sns);
    if is_json(body) && is_within_limits(body) {
        let messages = [body.to_owned(), format!(" {} ", rewritten(body))].map(message);
        let [payload, rewritten] = messages.each_ref().map(|message| Payload::of(message, Envelopes::None));
        assert_eq!(source.compute(&payload), source.compute(&rewritten));
        let keys = [KeySource::Body("/a".into()), KeySource::Body("/0".into())];
        assert_eq!(KeySource::find(&keys, &payload), KeySource::find(&keys, &rewritten));
    }
    // Text in brackets is parsed as JSON: a missing key is `Absent` only if the text is valid JSON.
    let array = format!("[{body}]");
    if is_within_limits(&array) {
        let found =
            KeySource::find(&[KeySource::Body("/none".into())], &Payload::of(&message(array.clone()), Envelopes::None));
        assert_eq!(found == Err(KeyError::Absent), is_json(&array), "{array}");
    }
}

/// Whether the text matches the JSON grammar, by another parser.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Whether the text is certainly within the limits of nesting and exponents.
fn is_within_limits(text: &str) -> bool {
    let digits = |text: &str| text.trim_start_matches(['+', '-']).chars().take_while(char::is_ascii_digit).count();
    text.matches(['[', '{']).count() <= 128 && text.split(['e', 'E']).skip(1).all(|exponent| digits(exponent) <= 30)
}

/// The same JSON in another notation, without the code under test.
fn rewritten(json: &str) -> String {
    let unchanged = || json.to_owned();
    match json.trim_ascii_start().as_bytes().first() {
        Some(b'{') => serde_json::from_str::<Entries<'_>>(json).map_or_else(
            |_has_a_key_that_is_not_unicode| unchanged(),
            |Entries(mut entries)| {
                // Stable: values of the same key keep their order.
                entries.sort_by(|(one, _), (other, _)| other.cmp(one));
                let entry =
                    |(key, value): &(String, &RawValue)| format!("{} : {}", escaped(key), rewritten(value.get()));
                format!("{{\n{} }}", entries.iter().map(entry).collect::<Vec<_>>().join("\t,"))
            },
        ),
        Some(b'[') => serde_json::from_str::<Vec<&RawValue>>(json).map_or_else(
            |_| unchanged(),
            |items| {
                format!("[\r\n{} ]", items.iter().map(|item| rewritten(item.get())).collect::<Vec<_>>().join(" , "))
            },
        ),
        Some(b'"') => {
            serde_json::from_str::<String>(json).map_or_else(|_is_not_unicode| unchanged(), |text| escaped(&text))
        }
        Some(b'-' | b'0'..=b'9') => {
            let (mantissa, exponent) = json.trim_ascii().split_once(['e', 'E']).unwrap_or((json.trim_ascii(), "-0"));
            let point = if mantissa.contains('.') { "" } else { "." };
            format!("{mantissa}{point}00E{exponent}")
        }
        _ => unchanged(),
    }
}

/// The entries of an object, also those with the same key.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries<'de>, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }
}

fn escaped(text: &str) -> String {
    let units: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
    format!("\"{}\"", units.concat())
}

fn sns(message: &str) -> String {
    serde_json::json!({
        "Type": "Notification",
        "MessageId": "a9fe3c1d-e719-565f-93a9-18ad4c5394c3",
        "TopicArn": "arn:aws:sns:eu-central-1:123456789012:payments",
        "Message": message,
        "Timestamp": "2026-11-19T09:31:05.600Z",
    })
    .to_string()
}

/// Any bytes as a reply of the store are decoded or rejected without a panic.
pub(crate) fn answer(answer: &[u8]) {
    idempotent_sqs::stores::redis::decode(answer);
}
