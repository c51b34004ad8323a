//! Messages, events and their settings, which a seed writes from their parts. The settings of keys and fingerprints
//! must be parsed, and the key and the fingerprint of each message must be what its parts say. Nothing is sent.
//!
//! - `database`: URLs of PostgreSQL
//! - `decimal`: numbers in JSON
//! - `document`: JSON documents, and how they are written
//! - `envelopes`: envelopes of SNS, EventBridge and S3, and bodies that are almost some
//! - `events`: events of SQS and of other services
//! - `sources`: settings of keys and fingerprints

mod database;
mod decimal;
mod document;
mod envelopes;
mod events;
mod sources;

use history::Rng;
use idempotent_sqs::sqs::{Envelopes, FingerprintSource, KeyError, KeySource, Message, MessageAttribute, Payload};

use document::{Document, equals};
pub use sources::{fingerprint_source, key_source};

/// Number of messages, settings and events of each kind of a seed.
const ROUNDS: usize = 40;

/// What is wrong with the inputs of this seed.
pub fn read_inputs(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x1213);
    let mut wrong = Vec::new();
    for _ in 0..ROUNDS {
        wrong.extend(sources::wrong_settings(rng));
        wrong.extend(wrong_messages(rng));
        wrong.extend(envelopes::wrong_envelope(rng));
        wrong.extend(events::wrong_event(rng));
        wrong.extend(database::wrong_url(rng));
    }
    wrong
}

/// The deepest JSON that is read: docs/envelopes.md.
const DEEPEST: usize = 128;

/// An exponent beyond 128 bits.
const HUGE: &str = "[1e170141183460469231731687303715884105728]";

/// JSON that is one level too deep.
fn deep() -> &'static str {
    const LISTS: &[u8; 2 * (DEEPEST + 1)] = &{
        let mut lists = [b'['; 2 * (DEEPEST + 1)];
        let (_, closed) = lists.split_at_mut(DEEPEST + 1);
        let mut at = 0;
        while at < closed.len() {
            closed[at] = b']';
            at += 1;
        }
        lists
    };
    str::from_utf8(LISTS).expect("it is ASCII")
}

/// The payload of a message.
#[derive(Clone, Debug)]
enum Content {
    Json(Document),
    /// A text that does not begin like JSON.
    Text(&'static str),
    /// A text that begins like JSON.
    Broken(&'static str),
}

impl Content {
    fn of(rng: &mut Rng) -> Self {
        match rng.draw(0..10) {
            0 => Self::Text(rng.pick::<&str>(&["a payment", "", "ä"])),
            1 => Self::Broken(rng.pick::<&str>(&["{\"a\":", "[1", " {'a':1}", "\u{feff}{", HUGE, deep()])),
            2 if rng.happens(200) => Self::Json(Document::nested(DEEPEST)),
            _ => Self::Json(Document::of(rng, 3)),
        }
    }

    /// Another payload, or the same one.
    fn other(&self, rng: &mut Rng) -> Self {
        match self {
            Self::Json(document) if rng.happens(800) => Self::Json(document.changed(rng)),
            _ if rng.happens(500) => self.clone(),
            _ => Self::of(rng),
        }
    }

    fn written(&self, rng: &mut Rng) -> String {
        match self {
            Self::Json(document) => document.written(rng),
            Self::Text(text) | Self::Broken(text) => (*text).to_owned(),
        }
    }

    /// Whether this payload equals another by what is compared.
    fn equals(&self, other: &Self, source: &FingerprintSource) -> bool {
        match (source, self, other) {
            (FingerprintSource::None, ..) => true,
            (FingerprintSource::Pointers(pointers), Self::Json(one), Self::Json(two)) => {
                pointers.iter().all(|pointer| equals(one.at(pointer), two.at(pointer)))
            }
            (_, Self::Json(one), Self::Json(two)) => equals(Some(one), Some(two)),
            (_, Self::Text(one) | Self::Broken(one), Self::Text(two) | Self::Broken(two)) => one == two,
            (_, Self::Json(_), _) | (.., Self::Json(_)) => false,
        }
    }
}

/// What is wrong with the keys and fingerprints of two messages.
fn wrong_messages(rng: &mut Rng) -> Vec<String> {
    let one = Content::of(rng);
    let two = one.other(rng);
    let pointer = |rng: &mut Rng| match &one {
        Content::Json(document) if rng.happens(800) => document.pointer(rng),
        _ => (*rng.pick(&["/missing", "/a/b", "/0"])).to_owned(),
    };
    let fingerprint = match rng.draw(0..4) {
        0 => FingerprintSource::None,
        1 => FingerprintSource::Body,
        _ => FingerprintSource::Pointers((0..rng.draw(1..3)).map(|_| pointer(rng)).collect()),
    };
    let mut sources: Vec<_> = (0..rng.draw(1..4))
        .map(|_| match rng.draw(0..4) {
            0 => KeySource::Attribute("Idempotency-Key".to_owned()),
            1 => KeySource::DeduplicationId,
            _ => KeySource::Body(pointer(rng)),
        })
        .collect();
    if rng.happens(500) {
        sources.push(KeySource::MessageId);
    }
    let mut wrong = Vec::new();
    let [first, second] = [&one, &two].map(|content| message(content, rng));
    for (message, content) in [(&first, &one), (&second, &two)] {
        let found = KeySource::find(&sources, &Payload::of(message, Envelopes::Auto));
        let found = found.map(|key| key.as_str().to_owned());
        let expected = expected_key(&sources, message, content);
        if found != expected {
            wrong.push(format!("the key by {sources:?} is {found:?}, not {expected:?}: {message:?}"));
        }
    }
    let [left, right] = [&first, &second].map(|message| fingerprint.compute(&Payload::of(message, Envelopes::Auto)));
    if (left == right) != one.equals(&two, &fingerprint) {
        wrong.push(format!("equal by {fingerprint:?}: {}, of {first:?} and {second:?}", left == right));
    }
    wrong
}

fn message(content: &Content, rng: &mut Rng) -> Message {
    let mut message = Message::new(format!("m{}", rng.draw(0..5)), content.written(rng));
    message.deduplication_id = rng.pick(&[None, None, Some("d1"), Some("")]).map(str::to_owned);
    message.group_id = rng.pick(&[None, Some("g1"), Some("g1"), Some("g 1"), Some("")]).map(str::to_owned);
    if let Some(key) = *rng.pick(&[None, None, Some("pay_1"), Some("")]) {
        message.attributes.insert("Idempotency-Key".to_owned(), MessageAttribute::from(key));
    }
    message
}

/// The key of a message by what docs/configuration.md and docs/envelopes.md say of each source.
fn expected_key(sources: &[KeySource], message: &Message, content: &Content) -> Result<String, KeyError> {
    let unusable = |source: &KeySource, reason| KeyError::Unusable { key_source: sources::written(source), reason };
    let not_a_key = "is neither a non-empty text nor a number";
    for source in sources {
        let found = match source {
            KeySource::Attribute(name) => message.attributes.get(name).map(|value| value.text().map(str::to_owned)),
            KeySource::DeduplicationId => match (&message.deduplication_id, &message.group_id) {
                (None, _) => None,
                (Some(id), _) if id.is_empty() => Some(None),
                (Some(id), Some(group)) if group == "g1" => Some(Some(format!("{group} {id}"))),
                _ => return Err(KeyError::NoMessageGroup),
            },
            KeySource::MessageId => Some(Some(message.id.clone())),
            KeySource::Body(pointer) => match content {
                Content::Json(document) => match document.at(pointer) {
                    None | Some(Document::Null) => None,
                    Some(Document::Text(text)) => Some(Some((*text).to_owned())),
                    Some(Document::Number(number)) => Some(Some(number.canonical())),
                    Some(_) => Some(None),
                },
                Content::Text(_) => None,
                Content::Broken(_) => {
                    return Err(unusable(
                        source,
                        "cannot be read: the payload starts like JSON and is not valid JSON; send valid JSON, nested no \
                         more than 128 deep and with no exponent beyond 128 bits",
                    ));
                }
            },
            other => unreachable!("no seed has {other:?}"),
        };
        match found {
            None => {}
            Some(Some(key)) if !key.is_empty() => return Ok(key),
            Some(_) => return Err(unusable(source, not_a_key)),
        }
    }
    Err(KeyError::Absent)
}
