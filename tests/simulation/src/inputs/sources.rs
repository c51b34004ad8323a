//! Settings of keys and fingerprints, valid ones and invalid ones: docs/configuration.md.

use history::Rng;
use idempotent_sqs::sqs::{FingerprintSource, KeySource};

/// Characters of names that SQS accepts, and others.
const OF_NAMES: [&str; 6] = ["a", "Z", "0", "_", "-", "x.y"];
const NOT_OF_NAMES: [&str; 4] = [" ", "ä", ":", "/"];

/// What is wrong with how a setting of each kind is parsed.
pub(super) fn wrong_settings(rng: &mut Rng) -> Vec<String> {
    let (text, expected) = key_source(rng);
    let mut wrong = Vec::new();
    let parsed = text.parse::<KeySource>();
    if parsed.as_ref().ok() != expected.as_ref() {
        wrong.push(format!("the key source {text:?} is {parsed:?}, not {expected:?}"));
    }
    if let Some(source) = &expected
        && source.to_string() != written(source)
    {
        wrong.push(format!("the key source {source:?} is written {source}"));
    }
    let (text, expected) = fingerprint_source(rng);
    let parsed = text.parse::<FingerprintSource>();
    if parsed.as_ref().ok() != expected.as_ref() {
        wrong.push(format!("the fingerprint source {text:?} is {parsed:?}, not {expected:?}"));
    }
    wrong
}

/// A key source as docs/configuration.md writes it.
pub(super) fn written(source: &KeySource) -> String {
    match source {
        KeySource::Attribute(name) => format!("attribute:{name}"),
        KeySource::Body(pointer) => format!("body:{pointer}"),
        KeySource::DeduplicationId => "deduplicationId".to_owned(),
        KeySource::MessageId => "messageId".to_owned(),
        other => unreachable!("no seed has {other:?}"),
    }
}

/// The text of a key source, and the source if it is valid.
pub fn key_source(rng: &mut Rng) -> (String, Option<KeySource>) {
    let (text, source) = match rng.draw(0..8) {
        0..=2 => {
            let (name, is_valid) = attribute_name(rng);
            (format!("attribute:{name}"), is_valid.then_some(KeySource::Attribute(name)))
        }
        3 | 4 => {
            let (pointer, is_valid) = pointer(rng);
            (format!("body:{pointer}"), is_valid.then_some(KeySource::Body(pointer)))
        }
        5 => ("deduplicationId".to_owned(), Some(KeySource::DeduplicationId)),
        6 => ("messageId".to_owned(), Some(KeySource::MessageId)),
        _ => (
            (*rng.pick(&["", "messageid", "messageId:", "deduplicationId:a", "body", "other:/a", "/a"])).to_owned(),
            None,
        ),
    };
    (spaced(&text, rng), source)
}

/// White space around a text, or after its first colon.
fn spaced(text: &str, rng: &mut Rng) -> String {
    match rng.draw(0..4) {
        0 => format!(" {text}\t"),
        1 => text.replacen(':', ": ", 1),
        _ => text.to_owned(),
    }
}

/// A name, and whether SQS accepts an attribute of it:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>.
fn attribute_name(rng: &mut Rng) -> (String, bool) {
    let name: String = (0..rng.draw(1..6)).map(|_| *rng.pick(&OF_NAMES)).collect();
    let invalid = [
        String::new(),
        format!(".{name}"),
        format!("{name}."),
        format!("{name}..{name}"),
        format!("aws.{name}"),
        format!("AMAZON.{name}"),
        format!("{name}{}{name}", rng.pick(&NOT_OF_NAMES)),
        "a".repeat(257),
    ];
    let valid = [name.clone(), format!("AWS{name}"), format!("amazon-{name}"), "a".repeat(256), name];
    if rng.happens(500) { (rng.pick(&valid).clone(), true) } else { (rng.pick(&invalid).clone(), false) }
}

/// A text, and whether it is a pointer to a part of a document.
fn pointer(rng: &mut Rng) -> (String, bool) {
    let valid = ["/a", "/", "/a/0/b", "/a~1b", "/~0/~01", "/ä b"];
    let invalid = ["", "a", "a/b", "/a~2b", "/a~", "/~0~/b", "~1"];
    if rng.happens(600) { ((*rng.pick(&valid)).to_owned(), true) } else { ((*rng.pick(&invalid)).to_owned(), false) }
}

pub fn fingerprint_source(rng: &mut Rng) -> (String, Option<FingerprintSource>) {
    match rng.draw(0..6) {
        0 => ("body".to_owned(), Some(FingerprintSource::Body)),
        1 => ("none".to_owned(), Some(FingerprintSource::None)),
        2 => ((*rng.pick(&["", "Body", "all", "none:", "none:/a", "body/a", "attribute:/a"])).to_owned(), None),
        _ => {
            let pointers: Vec<_> = (0..rng.draw(1..4)).map(|_| pointer(rng)).collect();
            let (texts, valid): (Vec<_>, Vec<_>) = pointers.into_iter().unzip();
            let text = format!("body:{}", texts.join(*rng.pick(&[",", " ,", ", "])));
            (text, valid.iter().all(|is_valid| *is_valid).then_some(FingerprintSource::Pointers(texts)))
        }
    }
}
