//! What the producers send: payments in several forms, with their keys in several places.

use std::collections::BTreeMap;
use std::mem;

use history::Rng;
use idempotent_sqs::sqs::{AttributeValue, MessageAttribute};
use idempotent_sqs_testing::SendRequest;
use serde_json::{Value, json};

use crate::plan::Plan;
use crate::sent::{Sent, SentKey};

/// The bucket of payloads that are not in their messages.
pub const BUCKET: &str = "payloads";

/// The JSON pointer at which a payload may have its key.
pub const KEY_POINTER: &str = "/meta/id";

/// The attribute of the message's number, if it has many.
pub const NUMBER: &str = "Number";

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
    is_missing: bool,
    /// How many further topics forward it, each in a notification of its own.
    forwarded: u64,
}

/// The messages of a plan, and the payloads in S3 by name. Some messages have the key and the payload of an earlier one, some
/// only its key, and some no key.
pub fn messages(plan: &Plan, rng: &mut Rng) -> (Vec<(Sent, SendRequest)>, BTreeMap<String, String>) {
    let mut producer =
        Producer { plan, rng: rng.fork(), extras: Rng::new(plan.seed ^ 0x0f0f), objects: BTreeMap::new() };
    let payments: Vec<_> = (0..plan.messages).map(|number| producer.payment(number)).collect();
    let names: Vec<_> = (0..plan.messages).map(|number| producer.name(number)).collect();
    let mut messages = Vec::new();
    for number in 0..plan.messages {
        // A recent one, so that both are often processed at the same time.
        let before = number - rng.draw(0..4).min(number);
        let (key, payment) = match (rng.draw(0..plan.repeats), rng.draw(0..12)) {
            (0, _) => (before, before),
            // Processes that do not compare payloads take it for the earlier message.
            (_, 0) if plan.fingerprints == 1000 => (before, number),
            _ => (number, number),
        };
        let at = |number| usize::try_from(number).unwrap_or_default();
        let mut payment = payments[at(payment)];
        if rng.draw(0..20) == 0 && payment.place == Place::Attribute {
            payment.place = Place::Nowhere;
        }
        let group = plan.fifo.then(|| format!("group-{}", rng.draw(0..3)));
        messages.push(producer.message(number, payment, &names[at(key)], group));
    }
    (messages, producer.objects)
}

struct Producer<'a> {
    plan: &'a Plan,
    rng: Rng,
    /// Whether payloads are forwarded, and how many attributes messages have.
    extras: Rng,
    objects: BTreeMap<String, String>,
}

impl Producer<'_> {
    fn payment(&mut self, number: u64) -> Payment {
        use Form::{BrokenJson, EventBridge, InS3, InS3FromSns, Json, S3Notification, Sns, Text};
        let forms = [Json, Json, Text, BrokenJson, Sns, Sns, EventBridge, S3Notification, InS3, InS3, InS3FromSns];
        let (form, place) = (*self.rng.pick(&forms), self.rng.draw(0..24));
        if !self.plan.has_forms {
            return Payment { number, form: Json, place: Place::Attribute, is_missing: false, forwarded: 0 };
        }
        let place = match place {
            0 => Place::Bytes,
            1 => Place::Flag,
            2..10 => Place::Payload,
            _ => Place::Attribute,
        };
        let is_missing = form.is_in_s3() && self.rng.happens(150);
        if !self.plan.has_extras {
            return Payment { number, form, place, is_missing, forwarded: 0 };
        }
        let place = if self.extras.happens(200) { Place::Nowhere } else { place };
        let forwarded = *self.extras.pick(&[0, 0, 1, 2, 3]);
        Payment { number, form, place, is_missing, forwarded }
    }

    /// The text of a key. In a cluster, keys share a few slots, so several keys of a batch are in a slot that moves.
    fn name(&mut self, number: u64) -> String {
        let tag = if self.plan.servers > 1 { format!("{{{}}}", number % 3) } else { String::new() };
        match self.rng.draw(0..12) {
            0 if self.plan.has_forms => (1000 + number).to_string(),
            1 if self.plan.has_forms => format!("dead-letter:{number}"),
            2 if self.plan.has_forms => format!("pay-{number}-{}", "ö".repeat(120)),
            _ => format!("pay-{number}{tag}"),
        }
    }

    fn message(&mut self, number: u64, payment: Payment, key: &str, group: Option<String>) -> (Sent, SendRequest) {
        let Payment { number: paid, form, place, is_missing, forwarded } = payment;
        let payload = self.payload(payment, key);
        let mut attributes = BTreeMap::new();
        if let Place::Attribute = place {
            attributes.insert("Idempotency-Key".to_owned(), key.into());
        }
        if let Place::Bytes = place {
            let value = AttributeValue::Binary(vec![0xff, 0xfe]);
            attributes.insert("Idempotency-Key".to_owned(), MessageAttribute { data_type: "Binary".into(), value });
        }
        let (mut body, mut input) = (payload.clone(), payload.clone());
        if form.is_in_s3() {
            let value = AttributeValue::Text(payload.len().to_string());
            attributes.insert("ExtendedPayloadSize".to_owned(), MessageAttribute { data_type: "Number".into(), value });
            // Each message has an object of its own.
            let name = format!("payment-{paid}-of-{number}");
            let location = json!({"s3BucketName": BUCKET, "s3Key": name});
            body = json!(["software.amazon.payloadoffloading.PayloadS3Pointer", location]).to_string();
            if !is_missing {
                self.objects.insert(name, payload);
            }
        }
        // Notifications of one payment are one notification, which is delivered again.
        let mut notify = |id: &str, attributes: &BTreeMap<String, MessageAttribute>| {
            let mut notification = self.notification(id, attributes);
            notification["Message"] = mem::take(&mut body).into();
            body = notification.to_string();
            notification["Message"] = mem::take(&mut input).into();
            input = notification.to_string();
        };
        if let Form::Sns | Form::InS3FromSns = form {
            notify(&format!("notification-{paid}"), &mem::take(&mut attributes));
        }
        for topic in 0..forwarded {
            // The attributes of the first notification count.
            if place == Place::Attribute && attributes.is_empty() {
                attributes.insert("Idempotency-Key".to_owned(), "forwarded".into());
            }
            notify(&format!("forwarded-{number}-{topic}"), &mem::take(&mut attributes));
        }
        if self.plan.has_extras && self.extras.happens(150) {
            let many = *self.extras.pick(&[9, 10]);
            attributes.insert(NUMBER.to_owned(), number.to_string().into());
            for name in (0..).map(|name| format!("Attribute-{name}")).take(many - attributes.len()) {
                attributes.insert(name, "any".into());
            }
        }
        let key = self.key(number, payment, key, group.is_some());
        let deduplication_id = group.as_ref().map(|_| format!("send-{number}"));
        let is_in_s3 = form.is_in_s3();
        let sent = Sent { payment: paid, key, is_in_s3, is_missing, input, attributes, group, deduplication_id };
        let request = sent.request(body);
        (sent, request)
    }

    /// The payload, in one of the spellings that are equal.
    fn payload(&mut self, payment: Payment, key: &str) -> String {
        let Payment { number, form, place, .. } = payment;
        let spaces = " ".repeat(usize::from(self.rng.happens(500)));
        let mut spell = |number: &str| format!("{number}{}", self.rng.pick(&["", ".0", "e0"]));
        let paid = spell(&number.to_string());
        let meta = match place {
            Place::Payload if key.starts_with(|c: char| c.is_ascii_digit()) => format!("{{\"id\":{}}}", spell(key)),
            Place::Payload => json!({"id": key}).to_string(),
            Place::Flag => json!({"id": true}).to_string(),
            Place::Attribute | Place::Bytes | Place::Nowhere => "null".to_owned(),
        };
        let time = self.rng.draw(100..1000);
        match form {
            Form::Text => format!("payment {number}"),
            Form::BrokenJson => format!("{{\"payment\":{number}"),
            Form::EventBridge => format!(
                "{{\"version\":\"0\",\"id\":\"event-{number}\",\"detail-type\":\"ordered\",\"source\":\"shop\",\
                 \"account\":\"123456789012\",\"time\":\"2026-11-23T08:00:00.{time}Z\",\"region\":\"eu-central-1\",\
                 \"resources\":[],\"meta\":{meta},\"detail\":{{\"payment\":{spaces}{paid}}}}}"
            ),
            Form::S3Notification => {
                let s3 =
                    json!({"bucket": {"name": "orders"}, "object": {"key": format!("payment-{number}"), "size": 7}});
                let time = format!("2026-11-23T08:00:00.{time}Z");
                let record =
                    json!({"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "eventTime": time, "s3": s3});
                format!("{{\"meta\":{meta},\"Records\":[{record}]}}")
            }
            _ if self.rng.happens(500) => format!("{{\"meta\":{meta},{spaces}\"payment\":{paid}}}"),
            _ => format!("{{\"payment\":{paid},{spaces}\"meta\":{meta}}}"),
        }
    }

    /// A notification of SNS, without its message.
    fn notification(&mut self, id: &str, attributes: &BTreeMap<String, MessageAttribute>) -> Value {
        let time = format!("2026-11-23T08:00:00.{}Z", self.rng.draw(100..1000));
        let attributes = attributes.iter().map(|(name, attribute)| {
            let value = match &attribute.value {
                AttributeValue::Text(text) => text,
                AttributeValue::Binary(_) | AttributeValue::Unreadable => "//4=",
            };
            (name.clone(), json!({"Type": attribute.data_type, "Value": value}))
        });
        json!({
            "Type": "Notification",
            "MessageId": id,
            "TopicArn": "arn:aws:sns:eu-central-1:123456789012:orders",
            "Timestamp": time,
            "MessageAttributes": attributes.collect::<serde_json::Map<_, _>>(),
        })
    }

    /// Where the function finds the key: by default in the attribute or the messageId, and in plans with forms also in the
    /// payload or the deduplicationId, which is passed with its group.
    fn key(&self, number: u64, payment: Payment, key: &str, is_fifo: bool) -> SentKey {
        let Payment { number: paid, form, place, is_missing, forwarded } = payment;
        let is_json = !matches!(form, Form::Text | Form::BrokenJson);
        match place {
            Place::Attribute => SentKey::Text(key.to_owned()),
            Place::Bytes => SentKey::Unusable,
            // The key may be in the payload.
            _ if self.plan.has_forms && (is_missing || form == Form::BrokenJson) => SentKey::Unusable,
            Place::Payload if is_json => SentKey::Text(key.to_owned()),
            Place::Flag if is_json => SentKey::Unusable,
            _ if is_fifo && self.plan.has_forms => SentKey::DeduplicationId,
            _ => match form {
                Form::Sns | Form::InS3FromSns => SentKey::Text(format!("notification-{paid}")),
                Form::EventBridge => SentKey::Text(format!("event-{paid}")),
                // These have no id of their own.
                _ if forwarded > 0 => SentKey::Text(format!("forwarded-{number}-0")),
                _ => SentKey::MessageId,
            },
        }
    }
}

impl Form {
    fn is_in_s3(self) -> bool {
        matches!(self, Self::InS3 | Self::InS3FromSns)
    }
}

/// The payment that a payload asks for, however it is written: the number after the word.
pub fn payment(body: &str) -> u64 {
    let after = body.split_once("payment").map_or("", |(_, after)| after);
    let digits = after.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or_else(|_| panic!("no payment in {body:?}"))
}
