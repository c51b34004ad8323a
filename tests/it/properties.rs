//! Properties that hold of any input, tried on what was once worth keeping and on inputs at random.
//! The fuzz targets look further.

use std::fs;

use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

#[path = "../../fuzz/properties.rs"]
mod property;

/// The fuzz target's seeds.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let seeds: Vec<_> = fs::read_dir(folder).unwrap().map(|seed| fs::read(seed.unwrap().path()).unwrap()).collect();
    assert!(!seeds.is_empty());
    seeds
}

/// Words that mean something to the code, so that chance meets them.
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

/// An event of records as SQS writes them, of which some have something else here or there.
fn event() -> impl Strategy<Value = String> {
    let record =
        (select(vec!["m1", "m2", "m3"]), word(), hash_map(word(), any_json(), 0..3)).prop_map(|(id, body, instead)| {
            let mut record = json!({
                "messageId": id,
                "receiptHandle": "r",
                "body": body,
                "attributes": { "ApproximateReceiveCount": "1", "MessageGroupId": "g" },
                "messageAttributes": { "k": { "stringValue": "v", "dataType": "String" } },
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:payments.fifo",
            });
            record.as_object_mut().unwrap().extend(instead);
            record
        });
    let records = vec(prop_oneof![4 => record, 1 => any_json()], 0..5);
    prop_oneof![
        4 => records.prop_map(|records| json!({ "Records": records })),
        1 => any_json(),
    ]
    .prop_map(|event| event.to_string())
}

/// Where a key may be found, or not.
fn place() -> impl Strategy<Value = String> {
    let known = select(vec!["body", "none", "messageId", "deduplicationId", "body:/a,/b", "attribute:Idempotency-Key"]);
    prop_oneof![known.prop_map(String::from), word().prop_map(|at| format!("body:{at}")), any::<String>()]
}

/// An answer as a script gives it, with some bytes of it replaced, or none like it.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    let altered = (select(seeds("answer")), vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), 0..80_usize);
    prop_oneof![
        altered.prop_map(|(mut answer, bytes, length)| {
            for (at, byte) in bytes {
                let at = at.index(answer.len());
                answer[at] = byte;
            }
            answer.truncate(length);
            answer
        }),
        vec(any::<u8>(), 0..80),
    ]
}

#[test]
fn each_property_holds_of_the_seeds() {
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
    fn any_event_is_refused_whole_or_answered_message_by_message(event in event()) {
        property::event(&event);
    }

    #[test]
    fn any_body_has_a_key_that_is_not_empty_and_one_fingerprint_however_it_is_spelled(
        place in place(),
        body in prop_oneof![any_json().prop_map(|json| json.to_string()), any::<String>()],
    ) {
        property::key(&place, &body);
    }

    #[test]
    fn any_answer_of_a_store_is_understood_or_refused(answer in answer()) {
        property::answer(&answer);
    }
}
