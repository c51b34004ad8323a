//! The queues, and the letters in them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use history::Rng;
use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs_testing::{DeadLetter as Policy, Queue, QueueSettings, SendRequest};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::keys::Keys;

/// Most attributes of a message.
pub const ATTRIBUTES: usize = 10;

const WORDS: [&str; 4] = ["FAILED_PERMANENTLY", "ATTEMPTS_USED_UP", "PARKED", "MISMATCH"];
const REASONS: [&str; 3] = ["failed permanently: the webhook returned 422", "uncertain: timeout", "payload"];

/// The queues of an account. The function reads from `payments` and `refunds`.
pub struct Queues {
    pub payments: Queue,
    /// In another region.
    pub refunds: Queue,
    pub dead: Queue,
    /// That of `--to`.
    pub other: Queue,
    pub keys: Keys,
    /// How far SQS's clock is ahead of that of the operator's machine, ms.
    ahead_ms: i64,
    began: Instant,
}

/// A message in the dead-letter queue.
#[derive(Clone, Debug)]
pub struct Letter {
    pub id: String,
    /// Its messageId in the queue that it came from.
    pub original_id: String,
    pub origin: Origin,
    pub source: Source,
    pub outcome: &'static str,
    pub reason: &'static str,
    /// The key that the function found.
    pub key: Option<String>,
    pub body: String,
    /// Those of its producer.
    pub attributes: BTreeMap<String, String>,
    pub group: Option<String>,
    pub trace: Option<String>,
    /// When it was sent by SQS's clock, ms since the queues were created by that of the operator's machine.
    pub sent_ms: i64,
    pub arrival: Arrival,
}

/// How it came into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Function,
    RedrivePolicy,
    /// Its description cannot be parsed.
    Unparsable,
    /// It has no description.
    Unknown,
}

/// The queue that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Payments,
    Refunds,
    /// A queue that does not exist.
    Absent,
    /// The dead-letter queue.
    Own,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    BeforeRun,
    DuringRun,
    /// It was sent back in this run, and its work failed again.
    Again,
}

impl Queues {
    pub fn new(seed: u64, copies: f64, rng: &mut Rng) -> Self {
        let ahead_ms = *rng.pick(&[0, 0, 0, 20_000, -20_000]);
        let ahead = Duration::from_millis(u64::try_from(ahead_ms).unwrap_or_default());
        let behind = Duration::from_millis(u64::try_from(-ahead_ms).unwrap_or_default());
        let created_at = SystemTime::now() + ahead - behind;
        let queue = |name: &str, is_fifo: bool, region: &str, dead_letter| {
            let (rate, region) = (if is_fifo { 0.0 } else { copies }, region.to_owned());
            let settings = QueueSettings {
                name: format!("{name}{}", if is_fifo { ".fifo" } else { "" }),
                region,
                dead_letter,
                created_at,
                concurrent_delivery_rate: rate,
                redelivery_rate: rate,
                stale_handle_delete_rate: 0.0,
                partial_receive_rate: 0.2,
                ..QueueSettings::default()
            };
            Queue::new(settings, seed)
        };
        let (is_fifo, is_dead_fifo) = *rng.pick(&[(false, false), (true, true), (false, true), (true, false)]);
        let dead = queue("dead", is_dead_fifo, "eu-central-1", None);
        let policy = (is_fifo == is_dead_fifo).then(|| Policy { queue: dead.clone(), max_receive_count: 1 });
        Self {
            payments: queue("payments", is_fifo, "eu-central-1", policy),
            refunds: queue("refunds", false, "us-east-1", None),
            other: queue("other", is_fifo, "eu-central-1", None),
            dead,
            keys: *rng.pick(&Keys::ALL),
            ahead_ms,
            began: Instant::now(),
        }
    }

    pub fn all(&self) -> Vec<Queue> {
        [&self.payments, &self.refunds, &self.dead, &self.other].map(Queue::clone).to_vec()
    }

    /// Adds letters, seconds apart. Some are equal to an earlier one without a description.
    pub async fn fill(&self, rng: &mut Rng) -> Vec<Letter> {
        let mut letters: Vec<Letter> = Vec::new();
        for number in 0..*rng.pick(&[0, 3, 15, 30, 30]) {
            let other = letters.iter().find(|letter| letter.origin == Origin::Unknown);
            let letter = match other.filter(|_| rng.happens(200)) {
                Some(other) => self.add_equal(other, number),
                None => self.add(number, Arrival::BeforeRun, rng),
            };
            letters.push(letter);
            sleep(Duration::from_secs(rng.draw(0..3))).await;
        }
        letters
    }

    /// Adds a letter whose body has this number.
    pub fn add(&self, number: u64, arrival: Arrival, rng: &mut Rng) -> Letter {
        let mut attributes = BTreeMap::new();
        for attribute in 0..*rng.pick(&[0, 1, 3, ATTRIBUTES - 2]) {
            attributes.insert(format!("A{attribute}"), format!("value {attribute}"));
        }
        for name in ["Idempotency-Key", "Payment"] {
            if rng.happens(400) {
                attributes.insert(name.to_owned(), format!("key-{name}-{number}"));
            }
        }
        let is_fifo = self.payments.settings().is_fifo();
        let mut letter = Letter {
            id: String::new(),
            original_id: format!("original-{number}-{}", rng.draw(0..1_000_000)),
            origin: match rng.draw(0..20) {
                0..3 if self.payments.settings().dead_letter.is_some() && arrival == Arrival::BeforeRun => {
                    Origin::RedrivePolicy
                }
                // There is no room for a description.
                _ if attributes.len() == ATTRIBUTES => Origin::Unknown,
                3 => Origin::Unparsable,
                4 => Origin::Unknown,
                _ => Origin::Function,
            },
            source: *rng.pick(&[
                Source::Payments,
                Source::Payments,
                Source::Payments,
                Source::Payments,
                Source::Payments,
                Source::Refunds,
                Source::Absent,
                Source::Own,
                Source::Unknown,
            ]),
            outcome: rng.pick::<&str>(&WORDS),
            reason: rng.pick::<&str>(&REASONS),
            key: None,
            body: if rng.happens(500) {
                format!("pay {number}")
            } else {
                json!({ "id": format!("b{number}") }).to_string()
            },
            attributes,
            group: (is_fifo || rng.happens(300)).then(|| format!("g{}", rng.draw(0..2))),
            trace: rng.happens(300).then(|| "Root=1-5759e988-bd862e3fe1be46a994272793".to_owned()),
            sent_ms: 0,
            arrival,
        };
        self.put(&mut letter);
        letter
    }

    /// Adds a letter without a description that has the body and the attributes of this one, and a trace of its own.
    fn add_equal(&self, other: &Letter, number: u64) -> Letter {
        let mut letter = Letter {
            original_id: format!("original-{number}"),
            trace: Some(format!("Root=1-5759e988-{number:024x}")),
            ..other.clone()
        };
        self.put(&mut letter);
        letter
    }

    /// Puts a letter into the queue, as its origin does, and sets what follows from that.
    pub fn put(&self, letter: &mut Letter) {
        letter.sent_ms = self.ms(Instant::now()) + self.ahead_ms;
        let mut message = SendRequest::new(letter.body.clone());
        for (name, value) in &letter.attributes {
            message = message.attribute(name, value.clone());
        }
        if let Some(header) = &letter.trace {
            message = message.trace_header(header);
        }
        if letter.origin == Origin::RedrivePolicy {
            (letter.source, letter.outcome, letter.reason) = (Source::Payments, "REDRIVE_POLICY", "received too often");
            if let Some(group) = &letter.group {
                message = message.group(group);
            }
            if self.payments.settings().is_fifo() {
                message = message.deduplication_id(&letter.original_id);
            }
            letter.id = self.payments.send(message).expect("SQS accepts it");
            letter.original_id.clone_from(&letter.id);
            // The second receive moves it.
            for _ in 0..2 {
                drop(self.payments.receive_for(10, Duration::ZERO).expect("SQS accepts it"));
            }
            letter.key = self.keys.find(&letter.body, &letter.attributes, Some(&letter.id));
            return;
        }
        letter.key = self.keys.find(&letter.body, &letter.attributes, Some(&letter.original_id));
        match letter.origin {
            Origin::Function => {
                if letter.key.is_none() {
                    letter.outcome = "NO_KEY";
                }
                message = message.attribute(DeadLetter::ATTRIBUTE, self.description(letter).to_string());
            }
            Origin::Unparsable => {
                letter.reason = "its description cannot be parsed";
                message = message.attribute(DeadLetter::ATTRIBUTE, "not JSON");
            }
            Origin::Unknown | Origin::RedrivePolicy => letter.reason = "no description",
        }
        if letter.origin != Origin::Function {
            (letter.source, letter.outcome) = (Source::Unknown, "UNKNOWN");
        }
        if self.dead.settings().is_fifo() {
            // As the function does.
            let group = letter.group.get_or_insert_with(|| letter.original_id.clone());
            message = message.group(group.clone()).deduplication_id(&letter.original_id);
        } else if let Some(group) = &letter.group {
            message = message.group(group);
        }
        letter.id = self.dead.send(message).expect("SQS accepts it");
    }

    fn description(&self, letter: &Letter) -> Value {
        json!({
            "outcome": letter.outcome,
            "reason": letter.reason,
            "key": letter.key,
            "source_queue_arn": self.source_arn(letter),
            "message_id": letter.original_id,
        })
    }

    /// The ARN of the queue that a letter came from, if that is known.
    pub fn source_arn(&self, letter: &Letter) -> Option<String> {
        match letter.source {
            Source::Payments => Some(self.payments.arn()),
            Source::Refunds => Some(self.refunds.arn()),
            Source::Absent => Some("arn:aws:sqs:eu-central-1:123456789012:absent".to_owned()),
            Source::Own => Some(self.dead.arn()),
            Source::Unknown => None,
        }
    }

    /// The queue to which a letter is sent back.
    pub fn destination(&self, letter: &Letter, to_other: bool) -> Option<&Queue> {
        match letter.source {
            _ if to_other => Some(&self.other),
            Source::Payments => Some(&self.payments),
            Source::Refunds => Some(&self.refunds),
            Source::Absent | Source::Own | Source::Unknown => None,
        }
    }

    /// Milliseconds since the queues were created.
    pub fn ms(&self, at: Instant) -> i64 {
        i64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(i64::MAX)
    }
}

impl Letter {
    /// The key that the program shows: that of its description, or one that does not depend on an id which is not known.
    pub fn shown_key(&self, keys: Keys) -> Option<String> {
        match self.origin {
            Origin::Function | Origin::RedrivePolicy => self.key.clone(),
            Origin::Unparsable | Origin::Unknown => keys.find(&self.body, &self.attributes, None),
        }
    }

    /// Whether its message has this body and this trace. No other letter has both, except one that comes again.
    pub fn is_of(&self, body: &str, trace: Option<&str>) -> bool {
        self.body == body && self.trace.as_deref() == trace
    }

    /// Its messageId in the queue that it came from, if the program knows it.
    pub fn shown_original_id(&self) -> Option<&str> {
        matches!(self.origin, Origin::Function | Origin::RedrivePolicy).then_some(&self.original_id)
    }

    /// The group of the message that is sent for it.
    pub fn group_in(&self, queue: &Queue) -> Option<&str> {
        let is_added = self.origin == Origin::Function && self.group.as_ref() == Some(&self.original_id);
        self.group.as_deref().filter(|_| queue.settings().is_fifo() || !is_added)
    }
}
