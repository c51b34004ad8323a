//! Properties of any input, checked on the seeds of the fuzz targets and on random input. The fuzz targets run longer.

use std::fs;

use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use harness::{with, workspace};
use idempotent_sqs::sqs::{Envelopes, FingerprintSource, KeySource, Message, Payload};

#[path = "../../fuzz/properties.rs"]
mod property;

/// The seeds of this fuzz target.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = workspace(&format!("fuzz/seeds/{target}"));
    let seeds: Vec<_> = fs::read_dir(folder).unwrap().map(|seed| fs::read(seed.unwrap().path()).unwrap()).collect();
    assert!(!seeds.is_empty());
    seeds
}

/// Words with a meaning to the code, so that random input contains them.
fn word() -> impl Strategy<Value = String> {
    let known = select(vec![
        "",
        "messageId",
        "m1",
        "Records",
        "body",
        "attributes",
        "messageAttributes",
        "stringValue",
        "dataType",
        "eventSourceARN",
        "arn:aws:sqs:eu-central-1:123456789012:payments.fifo",
        "MessageGroupId",
        "ApproximateReceiveCount",
        "/",
        "/a",
        "/a/0",
    ]);
    prop_oneof![3 => known.prop_map(String::from), 1 => any::<String>()]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-4_i32..4).prop_map(|whole| Value::from(f64::from(whole))),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            hash_map(word(), inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

/// JSON that `serde_json` does not write: numbers beyond a float, unpaired surrogates and repeated keys. One character
/// of some of it is changed.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        select(vec!["null", "true", "false", "-0", r#""""#, r#""\ud800""#, r#""\ud83d\ude00\/""#])
            .prop_map(String::from),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][-+]?[0-9]{1,25})?",
        word().prop_map(|word| json!(word).to_string()),
    ];
    let json = leaf.prop_recursive(4, 24, 4, |inner| {
        let key = select(vec![r#""a""#, r#""\u0061""#, r#""b""#, r#""\udfff""#]);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" ,"))),
            vec((key, inner).prop_map(|(key, value)| format!("{key}: {value}")), 0..4)
                .prop_map(|entries| format!("{{{}}}", entries.join(","))),
        ]
    });
    let character = select(r#"{}[],:"\u0123eE+-. ntf"#.chars().collect::<Vec<_>>());
    let changed = (json.clone(), any::<prop::sample::Index>(), proptest::option::of(character));
    let changed = changed.prop_map(|(json, at, character)| {
        let mut characters: Vec<_> = json.chars().collect();
        let at = at.index(characters.len());
        characters.splice(at..=at, character);
        characters.into_iter().collect()
    });
    prop_oneof![json, changed]
}

/// A decimal number other than 0: digits that neither start nor end with 0, times ten to the power of the exponent.
#[derive(Clone, Debug, PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

/// A notation of a decimal number.
#[derive(Clone, Debug)]
struct Notation {
    /// Number of digits before the point, including zeros appended to the digits. If negative, the number of zeros
    /// between the point and the digits.
    point: i64,
    /// Number of zeros at the end of the fraction.
    zeros: usize,
    /// Whether the exponent is written with `E`.
    upper: bool,
}

impl Decimal {
    fn write(&self, Notation { point, zeros, upper }: &Notation) -> String {
        let length = i64::try_from(self.digits.len()).unwrap();
        let zeros_of = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
        let (whole, fraction) = self.digits.split_at(usize::try_from(*point.min(&length)).unwrap_or(0));
        let whole = if whole.is_empty() { "0".to_owned() } else { whole.to_owned() + &zeros_of(point - length) };
        let fraction = zeros_of(-point) + fraction + &"0".repeat(*zeros);
        let sign = if self.negative { "-" } else { "" };
        let dot = if fraction.is_empty() { "" } else { "." };
        let exponent = match (self.exponent + length - point, upper) {
            (0, _) => String::new(),
            (exponent, true) => format!("E{exponent:+}"),
            (exponent, false) => format!("e{exponent}"),
        };
        format!("{sign}{whole}{dot}{fraction}{exponent}")
    }
}

/// Two numbers that are equal or differ in one part.
fn decimals() -> impl Strategy<Value = (Decimal, Decimal)> {
    let decimal =
        (any::<bool>(), "[1-9]([0-9]{0,40}[1-9])?", prop_oneof![-45..45_i64, any::<i32>().prop_map(i64::from)])
            .prop_map(|(negative, digits, exponent)| Decimal { negative, digits, exponent });
    (decimal, 0..5, any::<prop::sample::Index>()).prop_map(|(one, change, at)| {
        let mut other = one.clone();
        match change {
            0 => {}
            1 => other.negative = !one.negative,
            2 => other.exponent += 1,
            3 => other.digits += "1",
            _ => {
                let at = at.index(one.digits.len());
                let digit = if one.digits[at..].starts_with('1') { "2" } else { "1" };
                other.digits.replace_range(at..=at, digit);
            }
        }
        (one, other)
    })
}

fn notation() -> impl Strategy<Value = Notation> {
    (-30..45_i64, 0..4_usize, any::<bool>()).prop_map(|(point, zeros, upper)| Notation { point, zeros, upper })
}

/// An SQS event, in some of whose records fields are replaced.
fn event() -> impl Strategy<Value = String> {
    let record = (select(vec!["m1", "m2", "m3"]), word(), hash_map(word(), any_json(), 0..3)).prop_map(
        |(id, body, replaced)| {
            let mut record = json!({
                "messageId": id,
                "receiptHandle": "r",
                "body": body,
                "attributes": { "ApproximateReceiveCount": "1", "MessageGroupId": "g" },
                "messageAttributes": { "k": { "stringValue": "v", "dataType": "String" } },
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:payments.fifo",
            });
            record.as_object_mut().unwrap().extend(replaced);
            record
        },
    );
    let records = vec(prop_oneof![4 => record, 1 => any_json()], 0..5);
    prop_oneof![
        4 => records.prop_map(|records| json!({ "Records": records })),
        1 => any_json(),
    ]
    .prop_map(|event| event.to_string())
}

/// A key source, a fingerprint source or another text.
fn source() -> impl Strategy<Value = String> {
    let known = select(vec!["body", "none", "messageId", "deduplicationId", "body:/a,/b", "attribute:Idempotency-Key"]);
    prop_oneof![known.prop_map(String::from), word().prop_map(|at| format!("body:{at}")), any::<String>()]
}

/// A reply of a script with some bytes replaced, or random bytes.
fn reply() -> impl Strategy<Value = Vec<u8>> {
    let altered = (select(seeds("answer")), vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), 0..80_usize);
    prop_oneof![
        altered.prop_map(|(mut reply, bytes, length)| {
            for (at, byte) in bytes {
                let at = at.index(reply.len());
                reply[at] = byte;
            }
            reply.truncate(length);
            reply
        }),
        vec(any::<u8>(), 0..80),
    ]
}

#[test]
fn each_property_holds_for_the_fuzz_seeds() {
    for seed in seeds("event") {
        property::event(str::from_utf8(&seed).unwrap());
    }
    for seed in seeds("key") {
        let seed = String::from_utf8_lossy(&seed);
        for (at, _) in seed.char_indices() {
            property::key(&seed[..at], &seed[at..]);
            property::key(&seed[at..], &seed[..at]);
        }
    }
    for seed in seeds("answer") {
        property::answer(&seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_event_is_rejected_or_answered_message_by_message(event in event()) {
        property::event(&event);
    }

    #[test]
    fn no_key_is_empty_and_equal_json_has_one_fingerprint_in_any_notation(
        source in source(),
        body in prop_oneof![any_json().prop_map(|json| json.to_string()), json_text(), any::<String>()],
    ) {
        property::key(&source, &body);
    }

    #[test]
    fn numbers_are_equal_in_keys_and_fingerprints_exactly_if_their_decimal_values_are(
        (one, other) in decimals(),
        notations in (notation(), notation()),
    ) {
        let bodies = [one.write(&notations.0), other.write(&notations.1)].map(|number| format!(r#"{{"n":{number}}}"#));
        let messages = bodies.clone().map(|body| with!(Message::default(), body = Some(body)));
        let payloads = messages.each_ref().map(|message| Payload::of(message, Envelopes::Auto));
        let find = |payload: &Payload<'_>| KeySource::find(&[KeySource::Body("/n".into())], payload);
        let [key, other_key] = payloads.each_ref().map(find);
        prop_assert_eq!(key.unwrap() == other_key.unwrap(), one == other, "{:?}", bodies);
        let compute = |payload: &Payload<'_>| FingerprintSource::Body.compute(payload);
        let [fingerprint, other_fingerprint] = payloads.each_ref().map(compute);
        prop_assert_eq!(fingerprint == other_fingerprint, one == other, "{:?}", bodies);
    }

    #[test]
    fn any_reply_of_a_store_is_decoded_or_rejected(reply in reply()) {
        property::answer(&reply);
    }
}
