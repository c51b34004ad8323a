//! Keys of messages (`sqs::key`): the order of key sources, and keys from a deduplicationId.

use std::collections::HashSet;
use std::time::Duration;

use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{Deadline, Idempotency, Key, Policy};
use idempotent_sqs::sqs::{
    AttributeValue, Batch, BatchSettings, Envelopes, KeySource, Message, MessageAttribute, Payload,
};
use idempotent_sqs::stores::MemoryStore;

/// Characters that SQS accepts in a message group's id and a deduplicationId besides letters and digits:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
const PUNCTUATION: &str = r##"!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"##;

/// A message of a FIFO queue. All have the same body.
fn fifo(id: &str, group: &str, deduplication_id: &str) -> Message {
    with!(
        Message::default(),
        id = id.into(),
        body = Some(r#"{"amount":1250}"#.into()),
        group_id = Some(group.into()),
        deduplication_id = Some(deduplication_id.into()),
        queue_arn = Some("arn:aws:sqs:eu-central-1:123456789012:payments.fifo".into())
    )
}

fn keyed_by(sources: &str) -> BatchSettings {
    let keys = sources.split(',').map(|source| source.parse().unwrap()).collect();
    with!(BatchSettings::default(), keys = keys)
}

/// The outcome of each message, and how often the work ran. The batches run one after another on the same records.
async fn outcomes(settings: BatchSettings, batches: &[&[Message]]) -> (Vec<&'static str>, usize) {
    let work = ScriptedWork::always(Action::Return(b""));
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let mut outcomes = Vec::new();
    for messages in batches {
        let reports = batch.run(messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
        outcomes.extend(reports.iter().map(|report| report.outcome.as_str()));
    }
    (outcomes, work.runs().len())
}

fn key(sources: &str, message: &Message) -> Result<String, String> {
    let found = KeySource::find(&keyed_by(sources).keys, &Payload::of(message, Envelopes::Auto));
    found.map(|key| key.to_string()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_same_deduplication_id_in_two_groups_is_two_works() {
    let messages = [fifo("m1", "DE-4711", "1"), fifo("m2", "DE-4712", "1")];
    let (one, other) = messages.split_at(1);
    for settings in [BatchSettings::default(), keyed_by("deduplicationId")] {
        for batches in [vec![&messages[..]], vec![one, other]] {
            let result = outcomes(settings.clone(), &batches).await;
            assert_eq!(result, (vec!["ACQUIRED"; 2], 2), "{} batches, by {:?}", batches.len(), settings.keys);
        }
    }
}

#[tokio::test]
async fn the_same_deduplication_id_in_the_same_group_is_the_same_work_if_it_is_the_key() {
    let (one, again) = (fifo("m1", "DE-4711", "1"), fifo("m2", "DE-4711", "1"));
    let result = outcomes(keyed_by("deduplicationId"), &[&[one], &[again]]).await;
    assert_eq!(result, (vec!["ACQUIRED", "DUPLICATE"], 1));
}

#[tokio::test]
async fn by_default_another_sqs_message_is_different_work_and_a_redelivery_is_not() {
    let messages = [fifo("m1", "DE-4711", "1"), fifo("m2", "DE-4711", "1")];
    let result = outcomes(BatchSettings::default(), &[&messages[..1], &messages[1..], &messages]).await;
    assert_eq!(result, (vec!["ACQUIRED", "ACQUIRED", "DUPLICATE", "DUPLICATE"], 2));
}

#[test]
fn different_pairs_of_group_and_deduplication_id_have_different_keys() {
    for mark in PUNCTUATION.chars() {
        // Pairs that would have the same key if they were joined by this mark or by nothing.
        let ids = format!("a{mark}{mark}a{mark}a");
        let pairs: Vec<_> = (1..ids.len()).map(|at| ids.split_at(at)).collect();
        let stripped: Vec<_> = pairs.iter().map(|(group, id)| (*group, id.strip_prefix(mark).unwrap_or(id))).collect();
        let pairs: HashSet<_> = pairs.into_iter().chain(stripped).collect();
        let keys = pairs.iter().map(|(group, id)| key("deduplicationId", &fifo("m", group, id)).unwrap());
        assert_eq!(keys.collect::<HashSet<_>>().len(), pairs.len(), "{pairs:?}");
    }
}

#[test]
fn the_longest_ids_that_sqs_accepts_are_a_key() {
    let (group, id) = ("g".repeat(128), "d".repeat(128));
    assert_eq!(key("deduplicationId", &fifo("m", &group, &id)).unwrap(), format!("{group} {id}"));
}

#[tokio::test]
async fn a_deduplication_id_without_a_group_is_no_key_and_no_other_source_is_used() {
    let without_group = with!(fifo("m1", "", "1"), group_id = None);
    // SQS has no groups that are empty or contain a space. A space separates the group from the id in the key.
    for message in [without_group, fifo("m2", "", "1"), fifo("m3", "DE 4711", "1")] {
        let error = key("deduplicationId,messageId", &message).unwrap_err();
        assert!(error.contains("deduplicationId") && error.contains("message group"), "{error}");
        let result = outcomes(keyed_by("deduplicationId,messageId"), &[&[message]]).await;
        assert_eq!(result, (vec!["NO_KEY"], 0));
    }
}

#[test]
fn an_empty_deduplication_id_is_no_key() {
    let error = key("deduplicationId,messageId", &fifo("m", "DE-4711", "")).unwrap_err();
    assert!(error.contains("deduplicationId"), "{error}");
}

#[test]
fn a_message_without_a_deduplication_id_uses_the_next_key_source() {
    let standard = with!(fifo("m1", "tenant", ""), deduplication_id = None);
    assert_eq!(key("deduplicationId,messageId", &standard).unwrap(), "m1");
}

#[test]
fn the_length_of_a_key_counts_in_bytes() {
    let stored = |text: String| Key::new(&text).unwrap().stored().into_owned();
    assert_eq!(stored("é".repeat(100)), "é".repeat(100));
    assert!(stored("é".repeat(101)).starts_with("sha256:"));
}

#[test]
fn a_key_equal_to_the_stored_form_of_a_long_key_is_stored_differently() {
    let key = |text: &str| Key::new(text).unwrap();
    let long = key(&"k".repeat(201));
    let literal = key(&long.stored());
    assert_ne!(literal.stored(), long.stored());
    assert_eq!(key("sha25").stored(), "sha25");
    assert!(key("nul \0").stored().starts_with("sha256:"));
    // The record that a dead letter was sent has this key.
    assert_ne!(key("dead-letter:m1").stored(), "dead-letter:m1");
    assert_eq!(Key::from_stored("dead-letter:m1").unwrap().stored(), "dead-letter:m1");
}

#[test]
fn the_first_key_source_that_is_present_is_used() {
    let bytes = MessageAttribute { data_type: "Binary".into(), value: AttributeValue::Binary(b"pay_1".into()) };
    let message = with!(
        Message::default(),
        id = "id".into(),
        body = Some("{\"a\":{\"b\":\"in body\"},\"n\":7,\"null\":null}".into()),
        attributes = [("Key".to_owned(), "in attribute".into()), ("Bytes".to_owned(), bytes)].into(),
        deduplication_id = Some("dedup".into()),
        group_id = Some("group".into())
    );
    let find = |sources| key(sources, &message);
    assert_eq!(find("attribute:Key,messageId").unwrap(), "in attribute");
    assert_eq!(find("attribute:None,body:/a/b,messageId").unwrap(), "in body");
    assert_eq!(find("body:/x,deduplicationId,messageId").unwrap(), "group dedup");
    assert_eq!(find("body:/null,messageId").unwrap(), "id");
    assert_eq!(find("body:/n").unwrap(), "7");
    assert_eq!(find("messageId").unwrap(), "id");
    assert!(find("body:/x").unwrap_err().contains("no key source"));
    assert!(find("body:/a,messageId").unwrap_err().contains("body:/a"), "another source would allow a second run");
    assert!(find("attribute:Bytes,messageId").unwrap_err().contains("attribute:Bytes"));
}

#[test]
fn a_message_id_that_a_redrive_has_kept_in_an_attribute_is_the_key_unless_an_envelope_has_an_id() {
    let sns = r#"{"Type":"Notification","MessageId":"sns","TopicArn":"arn:aws:sns:eu-central-1:1:t","Message":"1250",
        "Timestamp":"2026-11-19T09:31:05Z"}"#;
    let bytes = MessageAttribute { data_type: "Binary".into(), value: AttributeValue::Binary(b"m1".into()) };
    for (kept, body, found) in
        [("m1".into(), "1250", "m1"), ("".into(), "1250", "id"), (bytes, "1250", "id"), ("m1".into(), sns, "sns")]
    {
        let attributes = [(Message::ID_ATTRIBUTE.to_owned(), kept)].into();
        let message = with!(Message::new("id", body), attributes = attributes);
        assert_eq!(key("attribute:Idempotency-Key,messageId", &message).unwrap(), found, "{message:?}");
    }
}

#[test]
fn a_key_source_is_read_from_its_text() {
    for source in ["attribute:Order-Id", "body:/id", "deduplicationId", "messageId"] {
        assert_eq!(source.parse::<KeySource>().unwrap().to_string(), source);
    }
    for source in ["", "attribute", "attribute:", "body", "body:", "body:id", "messageid", "messageId:", "header:Id"] {
        source.parse::<KeySource>().unwrap_err();
    }
}
