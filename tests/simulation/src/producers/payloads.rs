//! The payloads: JSON in several spellings, text, and the notifications of AWS services.

use std::collections::BTreeMap;

use history::Rng;
use idempotent_sqs::sqs::{AttributeValue, MessageAttribute};
use serde_json::json;

use super::like_envelopes::like_envelope;
use super::objects::POINTER_ATTRIBUTES;
use super::s3_events::S3Event;
use super::{Form, KEY_FIELD, Payment, Place, Producer, objects, spelling};

/// What may follow a whole number without changing it.
const ZEROS: [&str; 3] = ["", ".0", "e0"];

/// Values of the notifications of EventBridge, in one of which an imitation differs.
const OF_EVENT_BRIDGE: [&str; 3] = ["ordered", "shop", "till"];

impl Payment {
    /// A value of a notification. The receiver takes the first payment of a body, and what is compared of an imitation
    /// differs only there.
    pub(super) fn field<const N: usize>(&self, name: &'static str, values: &[&'static str; N]) -> String {
        let differs = usize::try_from(self.number).is_ok_and(|number| values[number % N] == name);
        if self.imitated.is_some() && differs { format!("payment-{}", self.number) } else { name.to_owned() }
    }
}

impl Producer<'_> {
    /// The payload, in one of the spellings that are equal.
    pub(super) fn payload(&mut self, payment: Payment, key: &str) -> String {
        let Payment { number, form, place, imitated, .. } = payment;
        let others =
            if self.plan.has_extras { spelling::others([(); 3].map(|()| self.extras.fork())) } else { String::new() };
        let spaces = " ".repeat(usize::from(self.rng.happens(500)));
        let mut spelled = self.rng.fork();
        let paid = if self.plan.has_extras {
            spelling::payment(&mut spelled, number)
        } else {
            format!("\"payment\":{number}{}", spelled.pick(&ZEROS))
        };
        let mut spell = |number: &str| format!("{number}{}", self.rng.pick(&ZEROS));
        let paid = match imitated {
            Some(other) if form != Form::SnsTwice => format!("{paid},\"payment\":{other}"),
            _ => paid,
        };
        let meta = match place {
            Place::Payload if self.plan.has_rare && key.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                format!("{{\"{KEY_FIELD}\":{}}}", spelling::key(&mut Rng::new(self.plan.seed ^ number), key))
            }
            Place::Payload if key.starts_with(|c: char| c.is_ascii_digit()) => {
                format!("{{\"{KEY_FIELD}\":{}}}", spell(key))
            }
            // The last one counts.
            Place::Payload if self.plan.has_extras && number % 3 == 1 => {
                format!("{{\"{KEY_FIELD}\":\"no\",\"{KEY_FIELD}\":{}}}", json!(key))
            }
            Place::Payload => json!({KEY_FIELD: key, "list": ["no"]}).to_string(),
            Place::Flag if self.plan.has_rare && number.is_multiple_of(2) => json!({KEY_FIELD: ""}).to_string(),
            Place::Flag => json!({KEY_FIELD: true}).to_string(),
            // The next source is used.
            Place::Nowhere if self.plan.has_extras && number.is_multiple_of(2) => json!({KEY_FIELD: null}).to_string(),
            Place::Attribute | Place::Bytes | Place::Nowhere => "null".to_owned(),
        };
        let last = spell(&imitated.unwrap_or(number).to_string());
        let time = self.rng.draw(100..1000);
        let field = |name: &'static str| payment.field(name, &OF_EVENT_BRIDGE);
        match form {
            Form::Text => format!("payment {number}"),
            Form::LikePointer => objects::like_pointer(number),
            Form::LikeEnvelope => like_envelope(payment),
            // It starts like JSON after a byte order mark and white space, too.
            Form::BrokenJson if self.plan.has_extras => {
                let start = ["", "\u{feff}", "[", " \n"][usize::try_from(number % 4).unwrap_or_default()];
                format!("{start}{{\"payment\":{number},\"meta\":{meta},{}}}", spelling::broken(number))
            }
            Form::BrokenJson => format!("{{\"payment\":{number}"),
            Form::EventBridge => format!(
                "{{\"version\":\"0\",\"id\":\"event-{number}\",\"detail-type\":\"{}\",\"source\":\"{}\",\
                 \"account\":\"123456789012\",\"time\":\"2026-11-23T08:00:00.{time}Z\",\"region\":\"eu-central-1\",\
                 \"resources\":[\"{}\"],\"meta\":{meta},\"detail\":{{\"payment\":{spaces}{}}}}}",
                field("ordered"),
                field("shop"),
                field("till"),
                last,
            ),
            Form::S3Notification | Form::S3Twice => {
                let event = payment.s3_event(self.plan.has_extras);
                let S3Event { sequence, has_request, e_tag, bucket, name, object } = event;
                let [mut sequencer, mut request] = [String::new(), String::new()];
                match sequence {
                    Some(id) if has_request => {
                        request = format!("\"responseElements\":{{\"x-amz-request-id\":\"{id}\"}},");
                    }
                    Some(text) => sequencer = format!("\"sequencer\":\"{text}\","),
                    None => {}
                }
                let [mut other, mut foreign] = [String::new(), String::new()];
                match (form, number % 2) {
                    (Form::S3Twice, 0) => other = format!("\"key\":\"payment-{number}\","),
                    (Form::S3Twice, _) => {
                        foreign = format!("{{\"eventSource\":\"aws:ses\",\"id\":\"payment-{number}\"}},");
                    }
                    _ => {}
                }
                // With a foreign record it is no event of S3, so its time counts.
                let time = if foreign.is_empty() { time } else { 100 };
                format!(
                    "{{\"meta\":{meta},\"Records\":[{foreign}{{\"eventSource\":\"aws:s3\",\"eventName\":\"{name}\",\
                     \"eventTime\":\"2026-11-23T08:00:00.{time}Z\",{request}\"s3\":{{\"bucket\":{{\"name\":\"{bucket}\"}},\
                     \"object\":{{{sequencer}{other}\"eTag\":\"{e_tag}\",\"key\":\"{object}\",\"size\":7}}}}}}]}}"
                )
            }
            _ if self.rng.happens(500) => format!("{{\"meta\":{meta},{spaces}{paid}{others}}}"),
            _ => format!("{{{paid},{spaces}\"meta\":{meta}{others}}}"),
        }
    }

    /// Puts the body of a message and the input of its work into the same notification of SNS. They differ if the payload is
    /// in S3, and the input then lacks the attributes of a pointer.
    pub(super) fn notify(
        &mut self,
        id: &str,
        attributes: BTreeMap<String, MessageAttribute>,
        body: &mut String,
        input: &mut String,
    ) {
        let time = format!("2026-11-23T08:00:00.{}Z", self.rng.draw(100..1000));
        let attributes = attributes.into_iter().map(|(name, MessageAttribute { data_type, value })| {
            let value = match value {
                AttributeValue::Text(text) => text,
                AttributeValue::Binary(_) | AttributeValue::Unreadable => "//4=".to_owned(),
            };
            (name, json!({"Type": data_type, "Value": value}))
        });
        let attributes: serde_json::Map<_, _> = attributes.collect();
        let mut attributes_of_input = attributes.clone();
        if body != input {
            attributes_of_input.retain(|name, _| !POINTER_ATTRIBUTES.contains(&name.as_str()));
        }
        for (message, attributes) in [(body, attributes), (input, attributes_of_input)] {
            let notification = json!({
                "Type": "Notification",
                "MessageId": id,
                "TopicArn": "arn:aws:sns:eu-central-1:123456789012:orders",
                "Timestamp": time,
                "MessageAttributes": attributes,
                "Message": message,
            });
            *message = notification.to_string();
        }
    }
}
