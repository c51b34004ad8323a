//! What holds of any input. The fuzz targets look for one that breaks it for as long as they are
//! left to run; the tests try some each time.

#![allow(dead_code, reason = "a fuzz target looks at one of them")]

use std::collections::HashSet;

use idempotent_sqs::disposition::Disposition;
use idempotent_sqs::message::{FingerprintSource, KeySource, Message};
use idempotent_sqs::sqs;
use serde_json::value::RawValue;

/// Any text as an event: it is refused whole, or every message has a name, and the response names
/// only messages of the event, each once.
pub(crate) fn event(event: &str) {
    let Ok(event) = serde_json::from_str::<&RawValue>(event) else { return };
    let Ok(messages) = sqs::messages(event) else { return };
    let ids: HashSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    assert!(!ids.contains(""));
    let again = Disposition::Redeliver { after: None };
    let response = sqs::response(messages.iter().map(|message| (message, again)));
    let named: Vec<&str> =
        response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    assert_eq!(named.len(), ids.len());
    assert_eq!(named.into_iter().collect::<HashSet<_>>(), ids);
}

/// Any body, and any place of a key: a key is never empty, and equal payloads have equal
/// fingerprints, however they are spelled.
pub(crate) fn key(place: &str, body: &str) {
    let message = Message {
        id: "id".into(),
        body: Some(body.to_owned()),
        attributes: [("Idempotency-Key".to_owned(), Some(body.to_owned()))].into(),
        ..Message::default()
    };
    if let Ok(source) = place.parse::<KeySource>() {
        assert_eq!(source.to_string().parse(), Ok(source.clone()));
        if let Ok(key) = KeySource::find(&[source], &message) {
            assert!(!key.as_str().is_empty());
        }
    }
    let source = place.parse().unwrap_or(FingerprintSource::Body);
    let fingerprint = source.take(&message);
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(body) {
        let spelled_anew = Message { body: Some(format!(" {json:#} ")), ..message };
        assert_eq!(source.take(&spelled_anew), fingerprint);
    }
}

/// Any bytes as a store's answer: understood or refused, and never a panic.
pub(crate) fn answer(answer: &[u8]) {
    idempotent_sqs::stores::decode(answer);
}
