//! Any body, and any place of a key: a key is never empty, and equal payloads have equal
//! fingerprints, however they are spelled.

#![no_main]

use idempotent_sqs::message::{FingerprintSource, KeySource, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (place, body) = input;
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
});
