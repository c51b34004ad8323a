use harness::with;
use std::collections::HashSet;
use std::time::Duration;

use idempotent_sqs::idempotency::{Deadline, Idempotency, Policy};
use idempotent_sqs::sqs::{Batch, BatchSettings, Envelopes, KeySource, Message, Payload};
use idempotent_sqs::stores::MemoryStore;

use harness::work::{Do, Told};

/// What SQS takes in a group's id and a deduplicationId besides letters and digits:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
const PUNCTUATION: &str = r##"!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"##;

/// A message of a FIFO queue, whose body is that of every other.
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

fn keyed_by(places: &str) -> BatchSettings {
    let keys = places.split(',').map(|place| place.parse().unwrap()).collect();
    with!(BatchSettings::default(), keys = keys)
}

/// The outcome of each message, batch by batch on the same records, and how often the work ran.
async fn outcomes(settings: BatchSettings, batches: &[&[Message]]) -> (Vec<&'static str>, usize) {
    let told = Told::to(Do::Return(b""));
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &told, settings);
    let mut outcomes = Vec::new();
    for messages in batches {
        let reports = batch.run(messages, Deadline::within(Duration::from_secs(30))).await.unwrap();
        outcomes.extend(reports.iter().map(|report| report.outcome.as_str()));
    }
    (outcomes, told.runs().len())
}

fn key(places: &str, message: &Message) -> Result<String, String> {
    let found = KeySource::find(&keyed_by(places).keys, &Payload::of(message, Envelopes::Auto));
    found.map(|key| key.to_string()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_same_deduplication_id_in_two_groups_is_two_works() {
    let messages = [fifo("m1", "DE-4711", "1"), fifo("m2", "DE-4712", "1")];
    let (one, other) = messages.split_at(1);
    for settings in [BatchSettings::default(), keyed_by("deduplicationId")] {
        for batches in [vec![&messages[..]], vec![one, other]] {
            let judged = outcomes(settings.clone(), &batches).await;
            assert_eq!(judged, (vec!["ACQUIRED"; 2], 2), "{} batches, by {:?}", batches.len(), settings.keys);
        }
    }
}

#[tokio::test]
async fn the_same_deduplication_id_in_the_same_group_is_the_same_work_where_the_settings_say_so() {
    let (one, again) = (fifo("m1", "DE-4711", "1"), fifo("m2", "DE-4711", "1"));
    let in_turn = outcomes(keyed_by("deduplicationId"), &[&[one], &[again]]).await;
    assert_eq!(in_turn, (vec!["ACQUIRED", "DUPLICATE"], 1));
}

#[tokio::test]
async fn by_default_another_message_of_sqs_is_other_work_and_a_redelivery_is_not() {
    let messages = [fifo("m1", "DE-4711", "1"), fifo("m2", "DE-4711", "1")];
    let judged = outcomes(BatchSettings::default(), &[&messages[..1], &messages[1..], &messages]).await;
    assert_eq!(judged, (vec!["ACQUIRED", "ACQUIRED", "DUPLICATE", "DUPLICATE"], 2));
}

#[test]
fn no_two_pairs_of_a_group_and_a_deduplication_id_have_the_same_key() {
    for mark in PUNCTUATION.chars() {
        // What a joint by this mark, or by nothing, would make the same key of.
        let ids = format!("a{mark}{mark}a{mark}a");
        let pairs: Vec<_> = (1..ids.len()).map(|at| ids.split_at(at)).collect();
        let joined: Vec<_> = pairs.iter().map(|(group, id)| (*group, id.strip_prefix(mark).unwrap_or(id))).collect();
        let pairs: HashSet<_> = pairs.into_iter().chain(joined).collect();
        let keys = pairs.iter().map(|(group, id)| key("deduplicationId", &fifo("m", group, id)).unwrap());
        assert_eq!(keys.collect::<HashSet<_>>().len(), pairs.len(), "{pairs:?}");
    }
}

#[test]
fn the_longest_ids_that_sqs_takes_are_a_key() {
    let (group, id) = ("g".repeat(128), "d".repeat(128));
    assert_eq!(key("deduplicationId", &fifo("m", &group, &id)).unwrap(), format!("{group} {id}"));
}

#[tokio::test]
async fn a_deduplication_id_without_its_group_is_no_key_and_no_other_is_taken_in_its_place() {
    let ungrouped = with!(fifo("m1", "", "1"), group_id = None);
    // SQS gives no such groups; a space would be taken for the end of the group.
    for message in [ungrouped, fifo("m2", "", "1"), fifo("m3", "DE 4711", "1")] {
        let fault = key("deduplicationId,messageId", &message).unwrap_err();
        assert!(fault.contains("deduplicationId") && fault.contains("message group"), "{fault}");
        let judged = outcomes(keyed_by("deduplicationId,messageId"), &[&[message]]).await;
        assert_eq!(judged, (vec!["NO_KEY"], 0));
    }
}

#[test]
fn an_empty_deduplication_id_is_no_key() {
    let fault = key("deduplicationId,messageId", &fifo("m", "DE-4711", "")).unwrap_err();
    assert!(fault.contains("deduplicationId"), "{fault}");
}

#[test]
fn a_message_without_a_deduplication_id_has_its_key_elsewhere() {
    let standard = with!(fifo("m1", "tenant", ""), deduplication_id = None);
    assert_eq!(key("deduplicationId,messageId", &standard).unwrap(), "m1");
}

#[test]
fn a_key_that_looks_like_the_stored_form_of_a_long_one_is_stored_as_another() {
    let key = |text: &str| idempotent_sqs::idempotency::Key::new(text).unwrap();
    let long = key(&"k".repeat(201));
    let literal = key(&long.stored());
    assert_ne!(literal.stored(), long.stored());
    assert_eq!(key("sha25").stored(), "sha25");
}
