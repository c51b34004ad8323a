//! How a body is read for its key and its fingerprint (`sqs::payload`, `sqs::fingerprint`, `sqs::json`).

use std::time::Duration;

use serde_json::json;

use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{Deadline, Fingerprint, Idempotency, Policy};
use idempotent_sqs::sqs::{
    Batch, BatchSettings, Envelopes, FingerprintSource, KeySource, Message, MessageReport, Payload,
};
use idempotent_sqs::stores::MemoryStore;

fn message(body: &str) -> Message {
    with!(Message::default(), id = "id".into(), body = Some(body.into()))
}

fn fingerprint(source: &str, body: &str) -> Fingerprint {
    source.parse::<FingerprintSource>().unwrap().compute(&Payload::of(&message(body), Envelopes::Auto))
}

fn same(one: &str, other: &str) {
    assert_eq!(fingerprint("body", one), fingerprint("body", other), "{one} {other}");
}

fn differ(one: &str, other: &str) {
    assert_ne!(fingerprint("body", one), fingerprint("body", other), "{one} {other}");
}

fn key_sources(sources: &str) -> Vec<KeySource> {
    sources.split(',').map(|source| source.parse().unwrap()).collect()
}

fn key(sources: &str, body: &str) -> Result<String, String> {
    let found = KeySource::find(&key_sources(sources), &Payload::of(&message(body), Envelopes::Auto));
    found.map(|key| key.to_string()).map_err(|error| error.to_string())
}

async fn run(store: &MemoryStore, work: &ScriptedWork, keys: &str, bodies: &[&str]) -> Vec<MessageReport> {
    let settings = with!(BatchSettings::default(), keys = key_sources(keys));
    let batch = Batch::new(Idempotency::new(store, Policy::default()), work, settings);
    let with_id = |(at, body): (usize, &&str)| with!(message(body), id = format!("m{at}"));
    let messages: Vec<_> = bodies.iter().enumerate().map(with_id).collect();
    batch.run(&messages, Deadline::within(Duration::from_secs(30))).await.unwrap()
}

#[test]
fn json_is_compared_by_value_and_other_text_by_its_bytes() {
    same(r#"{"a":1,"b":[{"c":2,"d":3}]}"#, "{ \"b\": [{\"d\":3,\n\"c\":2}], \"a\": 1 }");
    same(r#"{"a":1}"#, r#"{"a":1.0}"#);
    same(r#"{"a":2,"b":3,"a":1}"#, r#"{"b":3,"a":2,"a":1.0}"#);
    same(r#""ü/😀""#, r#""\u00fc\/\ud83d\uDE00""#);
    differ(r#"{"a":1}"#, r#"{"a":"1"}"#);
    differ(r#"{"a":1}"#, r#"{"a":2}"#);
    differ(r#"{"a":1}"#, r#"{"a":1,"a":2}"#);
    differ(r#"{"a":1}"#, r#"{"a":2,"a":1}"#);
    differ(r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#);
    differ("[1,2]", "[2,1]");
    differ("{}", "null");
    differ("no JSON", "no  JSON");
    let pointers = "body:/amount,/account/id";
    assert_eq!(
        fingerprint(pointers, r#"{"amount":1,"account":{"id":7},"at":1}"#),
        fingerprint(pointers, r#"{"at":2,"account":{"id":7},"amount":1.0}"#)
    );
    assert_ne!(
        fingerprint(pointers, r#"{"amount":1,"account":{"id":7}}"#),
        fingerprint(pointers, r#"{"amount":7,"account":{"id":1}}"#)
    );
    assert_eq!(fingerprint("none", "a"), fingerprint("none", "b"));
}

#[test]
fn numbers_are_compared_by_their_exact_decimal_value() {
    for (one, other) in [
        ("123456789012345678901", "123456789012345678902"),
        ("9007199254740992", "9007199254740993"),
        ("9007199254740992.0", "9007199254740993.0"),
        ("0.1234567890123456789", "0.1234567890123456788"),
        ("0.1", "0.10000000000000001"),
        ("12345678901234567.01", "12345678901234567.99"),
        ("1110000008375319363688624591", "1.1100000083753193e27"),
        ("1e400", "1e401"),
        ("1e-400", "0"),
        ("1e999999999999999999999", "1e999999999999999999998"),
        ("1", "-1"),
    ] {
        differ(one, other);
        assert_ne!(key("body:/n", &format!("{{\"n\":{one}}}")), key("body:/n", &format!("{{\"n\":{other}}}")), "{one}");
    }
    for (one, other) in [
        ("1e16", "10000000000000000"),
        ("1e25", "10000000000000000000000000"),
        ("1.50", "1.5"),
        ("100", "1E2"),
        ("0.05", "5e-2"),
        ("-0", "0"),
        ("0.0", "0"),
        ("-0.0e5", "0"),
        ("0e9", "0"),
        ("0e99999999999999999999999999999999999999999", "0"),
        ("1e400", "10.00E+399"),
        ("1e0000000000000000000000000000000000000000000400", "1e400"),
        ("0.001e-400", "1e-403"),
        ("1e999999999999999999999", "10e999999999999999999998"),
    ] {
        same(one, other);
        assert_eq!(key("body:/n", &format!("{{\"n\":{one}}}")), key("body:/n", &format!("{{\"n\":{other}}}")), "{one}");
    }
}

#[test]
fn a_number_is_a_key_in_plain_digits_or_beyond_twenty_zeros_with_an_exponent() {
    for (number, expected) in [
        ("7", "7"),
        ("-7.0", "-7"),
        ("-0.0", "0"),
        ("1e16", "10000000000000000"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e21"),
        ("1000000000000000000000", "1e21"),
        ("-1.250e2", "-125"),
        ("-1250e-3", "-1.25"),
        ("5e-2", "0.05"),
        ("1e-21", "0.000000000000000000001"),
        ("1e-22", "1e-22"),
        ("-12.5e400", "-125e399"),
        ("1e999999999999999999999", "1e999999999999999999999"),
    ] {
        assert_eq!(key("body:/n", &format!("{{\"n\":{number}}}")).unwrap(), expected, "{number}");
    }
}

#[tokio::test]
async fn an_amount_that_differs_beyond_the_precision_of_a_float_is_a_mismatch() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let bodies = [r#"{"id":1,"amount":12345678901234567.01}"#, r#"{"id":1.0,"amount":12345678901234567.99}"#];
    let outcomes = run(&store, &work, "body:/id", &bodies).await;
    assert_eq!([outcomes[0].outcome.as_str(), outcomes[1].outcome.as_str()], ["ACQUIRED", "MISMATCH"]);
    assert_eq!(work.message_ids(), ["m0"]);
}

#[test]
fn fingerprints_of_different_kinds_are_never_equal() {
    // These pairs would be equal if fingerprints had no tag for each kind.
    for (json, text) in [("null", "n"), ("true", "t"), ("false", "f"), ("7", "#\u{1}7"), (r#""a""#, "\"\u{1}a")] {
        differ(json, text);
        assert_ne!(fingerprint("body:/x", &format!("{{\"x\":{json}}}")), fingerprint("body", text), "{text}");
        assert_ne!(fingerprint("body:/x", &format!("{{\"x\":{json}}}")), fingerprint("body", json), "{json}");
    }
    differ(r#""a""#, "a");
    let event = json!({
        "version": "0", "id": "e", "detail-type": "Payment", "source": "payments", "account": "1", "time": "now",
        "region": "eu-central-1", "resources": [], "detail": {},
    });
    let notification = json!({ "Records": [{
        "eventSource": "aws:s3", "eventName": "ObjectCreated:Put",
        "s3": { "bucket": { "name": "payments" }, "object": { "key": "k", "size": 1, "eTag": "e", "versionId": "v" } },
    }] });
    let object = "/Records/0/s3/object";
    let parts = [
        (event, "body:/detail-type,/source,/resources,/detail".to_owned()),
        (
            notification,
            format!(
                "body:/Records/0/eventName,/Records/0/s3/bucket/name,{object}/key,{object}/versionId,{object}/eTag,{object}/size"
            ),
        ),
    ];
    for (body, pointers) in parts {
        let body = body.to_string();
        assert_ne!(fingerprint("body", &body), fingerprint(&pointers, &body), "{body}");
        let plain = FingerprintSource::Body.compute(&Payload::of(&message(&body), Envelopes::None));
        assert_ne!(fingerprint("body", &body), plain, "{body}");
    }
}

/// Bodies that look like JSON and cannot be read.
fn unreadable() -> Vec<String> {
    let invalid = [
        r#"{"id":"pay_1""#,
        r#"{"id":"pay_1"}}"#,
        r#"{"id":"pay_1",}"#,
        r#"{"id":"pay_1","n":01}"#,
        r#"{"id":"pay_1","n":NaN}"#,
        " \r\n\t{'id':'pay_1'}",
        "\u{feff}{\"id\":\"pay_1\"}",
        "[",
        "[\"\u{1}\"]",
        r#"["\u12"]"#,
    ];
    let deep = format!(r#"{{"id":"pay_1","deep":{}{}}}"#, "[".repeat(128), "]".repeat(128));
    // Exponents beyond 128 bits, as written or in the canonical notation.
    let exponents = [
        "1e999999999999999999999999999999999999999",
        "10e170141183460469231731687303715884105727",
        "1e170141183460469231731687303715884105727",
        "0.1e-170141183460469231731687303715884105728",
    ];
    let exponents = exponents.map(|number| format!(r#"{{"id":"pay_1","n":{number}}}"#));
    invalid.into_iter().map(str::to_owned).chain([deep]).chain(exponents).collect()
}

#[tokio::test]
async fn a_malformed_json_body_has_no_key_and_no_other_source_is_used() {
    for body in unreadable() {
        let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
        let reports = run(&store, &work, "body:/id,messageId", &[&body, "{\"id\":\"good\"}"]).await;
        assert_eq!([reports[0].outcome.as_str(), reports[1].outcome.as_str()], ["NO_KEY", "ACQUIRED"], "{body}");
        assert!(reports[0].reason.contains("body:/id"), "{}", reports[0].reason);
        assert!(reports[0].reason.contains("send valid JSON"), "{}", reports[0].reason);
        assert_eq!(work.message_ids(), ["m1"], "{body}");
        // An earlier key source is used without reading the body.
        assert_eq!(key("messageId,body:/id", &body).unwrap(), "id");
    }
}

#[test]
fn a_plain_text_body_leaves_the_key_to_the_next_source() {
    for body in ["", "hello", "12.50 EUR", "null", "7", "\"pay_1\"", "\"pay_1", "key={\"id\":1}", "{}", "[1]"] {
        assert_eq!(key("body:/id,messageId", body).unwrap(), "id", "{body}");
        assert!(key("body:/id", body).unwrap_err().contains("no key source"), "{body}");
    }
}

#[test]
fn an_unreadable_body_is_compared_by_its_bytes() {
    for body in unreadable() {
        same(&body, &body);
        differ(&body, &format!("{body} "));
        assert_eq!(fingerprint("body:/id", &body), fingerprint("body", &body));
    }
}

#[test]
fn json_is_read_to_a_depth_of_128_and_never_overflows_the_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    same(&nested(128), &format!(" {} ", nested(128)));
    differ(&nested(129), &format!(" {} ", nested(129)));
    let objects = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    assert_eq!(key(&format!("body:{}", "/a".repeat(128)), &objects(128)).unwrap(), "1");
    assert!(key("body:/a", &objects(129)).unwrap_err().contains("128"));
    for deep in [nested(500_000), objects(500_000), "[".repeat(500_000), "{\"a\":".repeat(500_000)] {
        assert_eq!(fingerprint("body", &deep), fingerprint("body", &deep));
    }
}

#[test]
fn an_unpaired_surrogate_is_equal_only_to_itself_and_is_no_key() {
    let strings = [
        r#""\ud800""#,
        r#""\ud801""#,
        r#""\udc00""#,
        r#""\udc00\ud800""#,
        r#""\ud800\ud800\udc00""#,
        r#""\ud800\udc00\udc00""#,
        r#""\ud800\n""#,
        r#""\ufffd""#,
        r#""\\ud800""#,
        r#""""#,
    ];
    for (at, one) in strings.iter().enumerate() {
        for other in &strings[..at] {
            differ(one, other);
            differ(&format!("{{{one}:1}}"), &format!("{{{other}:1}}"));
        }
    }
    same(r#""\ud800x""#, r#""\uD800\u0078""#);
    same(r#"{"\ud800":1,"a":2}"#, r#"{"a":2,"\uD800":1}"#);
    let with_surrogates = r#"{"\udfff":0,"id":"pay_1","note":"\ud800","zero":"\u0000"}"#;
    assert_eq!(key("body:/id", with_surrogates).unwrap(), "pay_1");
    assert_eq!(key("body:/zero", with_surrogates).unwrap(), "\0");
    assert!(key("body:/note,messageId", with_surrogates).unwrap_err().contains("body:/note"));
}
