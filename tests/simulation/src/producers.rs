//! What the producers send: payments in several forms, with their keys in several places.
//!
//! - `keys`: the keys of messages
//! - `like_envelopes`: payloads that lack a part of an envelope
//! - `large`: messages that are as large as SQS accepts
//! - `objects`: payloads in S3
//! - `payloads`, `s3_events`: payloads, and the notifications of S3
//! - `spelling`: JSON values in many spellings

mod keys;
mod large;
mod like_envelopes;
mod objects;
mod payloads;
mod s3_events;
mod spelling;

use std::collections::BTreeMap;
use std::mem;

use history::Rng;
use idempotent_sqs::sqs::{AttributeValue, MessageAttribute};
use idempotent_sqs_testing::SendRequest;
use serde_json::json;

use crate::objects::Payloads;
use crate::plan::Plan;
use crate::sent::{ObjectState, Sent};

pub use large::{LARGE, MAX_MESSAGE_BYTES, size};
pub use objects::{BUCKET, POINTER_ATTRIBUTES};

/// The attribute in which a message may have its key.
pub const KEY_ATTRIBUTE: &str = "Idempotency-Key";

/// The JSON pointer at which a payload may have its key.
pub const KEY_POINTER: &str = "/meta/~01id";

/// The field of that pointer, in which `~0` is the character `~`: <https://www.rfc-editor.org/rfc/rfc6901>.
const KEY_FIELD: &str = "~1id";

/// A JSON pointer at which no payload has a key, as an index of an array has no leading zero.
pub const NO_KEY_POINTER: &str = "/meta/list/00";

/// The attribute of the message's number, if it has many or is large.
pub const NUMBER: &str = "Number";

/// The value of that attribute, which is as long for each number.
pub fn number_attribute(number: u64) -> MessageAttribute {
    format!("{number:04}").into()
}

/// How a payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Text,
    /// Starts like JSON.
    BrokenJson,
    Sns,
    EventBridge,
    S3Notification,
    InS3,
    /// The pointer to it is in a notification of SNS.
    InS3FromSns,
    /// Like a notification of SNS, but with two messages, the second of which is that of another payment, or of another
    /// type.
    SnsTwice,
    /// Like a notification of S3, but of two objects, the second of which is that of another payment, or with a record
    /// of another service.
    S3Twice,
    /// Like a pointer to a payload in S3, but without a part of it.
    LikePointer,
    /// Like a notification or an event of an AWS service, but without a part of it.
    LikeEnvelope,
}

/// Where a producer puts the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Attribute,
    /// At [`KEY_POINTER`], if the payload is JSON.
    Payload,
    /// An attribute that is no text.
    Bytes,
    /// A value at [`KEY_POINTER`] that cannot be a key.
    Flag,
    Nowhere,
}

/// What the messages for a payment have in common.
#[derive(Clone, Copy)]
struct Payment {
    number: u64,
    form: Form,
    place: Place,
    /// Whether its payloads in S3 can be read.
    object: ObjectState,
    /// How many further topics forward it, each in a notification of its own.
    forwarded: u64,
    /// The payment whose payload this one has, but for one field.
    imitated: Option<u64>,
}

/// The messages of a plan, and the payloads in S3. Some messages have the key and the payload of an earlier one, some
/// only its key, and some no key.
pub fn messages(plan: &Plan, rng: &mut Rng) -> (Vec<(Sent, SendRequest)>, Payloads) {
    let mut producer = Producer {
        plan,
        rng: rng.fork(),
        extras: Rng::new(plan.seed ^ 0x0f0f),
        choices: Rng::new(plan.seed ^ 0x0b1c),
        objects: Payloads::new(),
    };
    let mut payments: Vec<_> = (0..plan.messages).map(|number| producer.payment(number)).collect();
    let names: Vec<_> = (0..plan.messages).map(|number| producer.name(number)).collect();
    let mut messages = Vec::new();
    for number in 0..plan.messages {
        // A recent one, so that both are often processed at the same time.
        let before = number - rng.draw(0..4).min(number);
        let imitates = plan.has_extras && producer.extras.happens(150);
        let (key, payment) = match (rng.draw(0..plan.repeats), rng.draw(0..12)) {
            (0, _) => (before, before),
            // Processes that do not compare payloads take it for the earlier message.
            (_, other) if plan.fingerprints == 1000 && (imitates || other == 0) => (before, number),
            _ => (number, number),
        };
        let at = |number| usize::try_from(number).unwrap_or_default();
        let is_large = plan.has_large && number == LARGE;
        if imitates && payment == number && key < number && !is_large {
            payments[at(number)] = payments[at(key)].imitated_by(number);
        }
        let mut payment = payments[at(payment)];
        if rng.draw(0..20) == 0 && payment.place == Place::Attribute {
            payment.place = Place::Nowhere;
        }
        let is_grouped = plan.fifo || plan.has_extras && producer.extras.happens(300);
        let group = is_grouped.then(|| format!("group-{}", rng.draw(0..3)));
        messages.push(producer.message(number, payment, &names[at(key)], group));
    }
    (messages, producer.objects)
}

struct Producer<'a> {
    plan: &'a Plan,
    rng: Rng,
    /// For plans with extras. The choices of the others do not depend on it.
    extras: Rng,
    /// For plans with choices for objects, and payloads that are like envelopes, in the same way.
    choices: Rng,
    objects: Payloads,
}

impl Producer<'_> {
    fn payment(&mut self, number: u64) -> Payment {
        use Form::{BrokenJson, EventBridge, InS3, InS3FromSns, Json, S3Notification, Sns, Text};
        let forms = [Json, Json, Text, BrokenJson, Sns, Sns, EventBridge, S3Notification, InS3, InS3, InS3FromSns];
        let (form, place) = (*self.rng.pick(&forms), self.rng.draw(0..24));
        let object = ObjectState::Readable;
        let plain = Payment { number, form: Json, place: Place::Attribute, object, forwarded: 0, imitated: None };
        if !self.plan.has_forms {
            return plain;
        }
        let place = match place {
            0 => Place::Bytes,
            1 => Place::Flag,
            2..10 => Place::Payload,
            _ => Place::Attribute,
        };
        let is_missing = form.is_in_s3() && self.rng.happens(150);
        let object = if is_missing { ObjectState::Deleted } else { object };
        let mut payment = Payment { form, place, object, ..plain };
        if self.plan.has_large && number == LARGE {
            return plain;
        }
        if self.plan.has_extras {
            let forwarded = *self.extras.pick(&[0, 0, 0, 1, 2, 3]);
            let readable = Payment { object: ObjectState::Readable, forwarded, ..payment };
            payment = match self.extras.draw(0..6) {
                0 => Payment { place: Place::Nowhere, forwarded, ..payment },
                1 => Payment { form: EventBridge, ..readable },
                2 => Payment { form: S3Notification, ..readable },
                3 => Payment { form: S3Notification, place: Place::Nowhere, ..readable },
                _ => Payment { forwarded, ..payment },
            };
        }
        if self.plan.objects.is_some() {
            return self.with_object(payment);
        }
        if self.plan.has_extras && self.choices.happens(500) {
            let place = *self.choices.pick(&[Place::Attribute, Place::Nowhere]);
            return Payment { form: Form::LikeEnvelope, place, object: ObjectState::Readable, ..payment };
        }
        payment
    }

    fn message(&mut self, number: u64, payment: Payment, key: &str, group: Option<String>) -> (Sent, SendRequest) {
        let Payment { number: paid, form, place, forwarded, imitated, .. } = payment;
        // SQS accepts no attribute with this character.
        let key = &if place == Place::Payload { key.to_owned() } else { key.replace('\0', "") };
        let mut payload = self.payload(payment, key);
        let mut attributes = BTreeMap::new();
        if let Place::Attribute = place {
            attributes.insert(KEY_ATTRIBUTE.to_owned(), key.into());
        }
        if let Place::Bytes = place {
            let value = AttributeValue::Binary(vec![0xff, 0xfe]);
            attributes.insert(KEY_ATTRIBUTE.to_owned(), MessageAttribute { data_type: "Binary".into(), value });
        }
        let stored = form.is_in_s3().then(|| self.store(number, payment, &mut payload, &mut attributes));
        let (object, pointer) = stored.unzip();
        let (mut body, mut input) = (pointer.unwrap_or_else(|| payload.clone()), payload);
        if form == Form::LikePointer && objects::has_attribute(paid) {
            objects::add_attribute(POINTER_ATTRIBUTES[0], input.len(), &mut attributes);
        }
        if let Form::Sns | Form::InS3FromSns | Form::SnsTwice = form {
            // The attribute of SQS counts, not that of SNS.
            let is_in_both = place == Place::Attribute && form == Form::Sns && forwarded == 0;
            let is_chosen = self.plan.has_extras && self.extras.happens(200);
            let of_sqs = attributes.get(KEY_ATTRIBUTE).filter(|_| is_in_both && is_chosen).cloned();
            if of_sqs.is_some() {
                attributes.insert(KEY_ATTRIBUTE.to_owned(), "of-sns".into());
            }
            // Notifications of one payment are one notification, which is delivered again.
            self.notify(&format!("notification-{paid}"), mem::take(&mut attributes), &mut body, &mut input);
            attributes.extend(of_sqs.map(|key| (KEY_ATTRIBUTE.to_owned(), key)));
        }
        if form == Form::SnsTwice && paid.is_multiple_of(4) {
            body = body.replacen("\"Type\":\"Notification\"", "\"Type\":\"Other\"", 1);
            input.clone_from(&body);
        } else if form == Form::SnsTwice {
            let other = json!(format!("{{\"payment\":{}}}", imitated.unwrap_or_default()));
            body = format!("{},\"Message\":{other}}}", body.strip_suffix('}').unwrap_or_default());
            input.clone_from(&body);
        }
        for topic in 0..forwarded {
            // The attributes of the first notification count.
            if place == Place::Attribute && attributes.is_empty() {
                attributes.insert(KEY_ATTRIBUTE.to_owned(), "forwarded".into());
            }
            let id = format!("forwarded-{number}-{topic}");
            self.notify(&id, mem::take(&mut attributes), &mut body, &mut input);
        }
        if self.plan.has_extras && self.extras.happens(150) {
            let many = *self.extras.pick(&[9, 10]);
            attributes.insert(NUMBER.to_owned(), number_attribute(number));
            for name in (0..).map(|name| format!("Attribute-{name}")).take(many - attributes.len()) {
                attributes.insert(name, "any".into());
            }
        }
        if self.plan.has_large && paid == LARGE {
            self.fill(number, &mut body, &mut attributes);
            input.clone_from(&body);
        }
        let key = self.key(number, payment, key);
        let deduplication_id = self.plan.fifo.then(|| format!("send-{number}"));
        let same_content =
            imitated.filter(|_| form == Form::S3Notification && payment.s3_event(self.plan.has_extras).is_later());
        let trace_header = number.is_multiple_of(3).then(|| format!("Root=1-5bef4de7-{number:024x};Sampled=0"));
        let sent =
            Sent { payment: paid, same_content, key, object, input, attributes, group, deduplication_id, trace_header };
        let request = sent.request(body);
        (sent, request)
    }
}

impl Payment {
    /// Whether its key is an attribute of SQS if its payload is in S3.
    fn has_key_beside_pointer(self) -> bool {
        self.place == Place::Attribute && self.form == Form::InS3 && self.forwarded == 0
    }

    /// Another payment, whose payload differs from this one in a field.
    fn imitated_by(self, number: u64) -> Self {
        let form = match self.form {
            Form::Sns if number.is_multiple_of(2) => Form::SnsTwice,
            Form::S3Notification if number.is_multiple_of(3) => Form::S3Twice,
            form => form,
        };
        let forwarded = if form == Form::SnsTwice { 0 } else { self.forwarded };
        Self { number, form, forwarded, imitated: Some(self.number), ..self }
    }
}

impl Form {
    fn is_in_s3(self) -> bool {
        matches!(self, Self::InS3 | Self::InS3FromSns)
    }
}

/// The payment that a payload asks for, however it is written: the values after the word, or the number.
pub fn payment(body: &str) -> u64 {
    let after = body.split_once("payment").map_or("", |(_, after)| after);
    if let Some(payment) = spelling::read_payment(after) {
        return payment;
    }
    let digits = after.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or_else(|_| panic!("no payment in {body:?}"))
}
