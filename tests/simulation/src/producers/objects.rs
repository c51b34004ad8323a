//! Payloads in S3, the pointers to them, and payloads that are like pointers.

use std::collections::BTreeMap;

use idempotent_sqs::sqs::{AttributeValue, MessageAttribute};
use serde_json::{Value, json};

use super::{Form, Payment, Place, Producer};
use crate::objects::Payload;
use crate::sent::{Object, ObjectState};

/// The bucket of payloads that are not in their messages.
pub const BUCKET: &str = "payloads";

/// A bucket that the function may not read.
const OTHER_BUCKET: &str = "secrets";

/// The extended clients set one of these attributes. The second is that of older versions:
/// <https://github.com/awslabs/amazon-sqs-java-extended-client-lib>
pub const POINTER_ATTRIBUTES: [&str; 2] = ["ExtendedPayloadSize", "SQSLargePayloadSize"];

/// Their pointers begin with one of these, in the same order.
const POINTER_CLASSES: [&str; 2] =
    ["software.amazon.payloadoffloading.PayloadS3Pointer", "com.amazon.sqs.javamessaging.MessageS3Pointer"];

impl Producer<'_> {
    /// The payment, with a payload in S3, or one that is like a pointer, more often than without choices for objects.
    pub(super) fn with_object(&mut self, payment: Payment) -> Payment {
        use ObjectState::{Deleted, DeletedOnceMade, NotText, OtherBucket, Readable, TooLarge};
        let form = match self.choices.draw(0..20) {
            0..7 => Form::InS3,
            7..11 => Form::InS3FromSns,
            11..13 => Form::LikePointer,
            _ => return payment,
        };
        let place = match self.choices.draw(0..10) {
            _ if form == Form::LikePointer => Place::Attribute,
            0..5 => Place::Attribute,
            5..8 => Place::Payload,
            _ => payment.place,
        };
        let object = match self.choices.draw(0..13) {
            _ if form == Form::LikePointer => Readable,
            0..5 => Readable,
            5..9 => DeletedOnceMade,
            9 => Deleted,
            10 => NotText,
            11 => TooLarge,
            _ => OtherBucket,
        };
        Payment { form, place, object, ..payment }
    }

    /// Puts the payload of this message into S3. Returns its object, and the pointer to it.
    pub(super) fn store(
        &mut self,
        number: u64,
        payment: Payment,
        payload: &mut String,
        attributes: &mut BTreeMap<String, MessageAttribute>,
    ) -> (Object, String) {
        let Payment { number: paid, object: state, .. } = payment;
        let state = match state {
            // Without its payload, its key would be unknown.
            ObjectState::DeletedOnceMade if !payment.has_key_beside_pointer() => ObjectState::Readable,
            state => state,
        };
        let mut version = 0;
        if let Some(objects) = &self.plan.objects {
            version = usize::from(self.choices.happens(300));
            let most = objects.payload_max_bytes;
            assert!(payload.len() < most, "the function may read this payload");
            let length = match state {
                ObjectState::TooLarge => most + 1,
                ObjectState::Readable if self.choices.happens(300) => most,
                _ => payload.len(),
            };
            payload.push_str(&" ".repeat(length - payload.len()));
        }
        add_attribute(POINTER_ATTRIBUTES[version], payload.len(), attributes);
        let name = format!("payment-{paid}-of-{number}");
        let bucket = if state == ObjectState::OtherBucket { OTHER_BUCKET } else { BUCKET };
        let mut bytes = payload.clone().into_bytes();
        if state == ObjectState::NotText {
            bytes.push(0xff);
        }
        let made = (state == ObjectState::DeletedOnceMade).then_some(paid);
        if state != ObjectState::Deleted {
            self.objects.insert((bucket.to_owned(), name.clone()), Payload { bytes, deleted_once_made: made });
        }
        let pointer = json!([POINTER_CLASSES[version], location(bucket, &name)]).to_string();
        (Object { name, state }, pointer)
    }
}

/// A payload that is a pointer but for the attribute, the class, the number of its items, the white space before it, or
/// a part of its location.
pub(super) fn like_pointer(payment: u64) -> String {
    let name = format!("payment-{payment}");
    let [class, ..] = POINTER_CLASSES;
    match payment % 6 {
        1 => json!(["com.example.Pointer", location(BUCKET, &name)]).to_string(),
        2 => json!([class, location(BUCKET, &name), null]).to_string(),
        3 => format!(" {}", json!([class, location(BUCKET, &name)])),
        4 => json!([class, location("", &name)]).to_string(),
        5 => json!([class, {"s3BucketName": BUCKET, "s3Key": "", "name": name}]).to_string(),
        _ => json!([class, location(BUCKET, &name)]).to_string(),
    }
}

/// Whether such a payload has the attribute of a pointer.
pub(super) fn has_attribute(payment: u64) -> bool {
    !payment.is_multiple_of(6)
}

fn location(bucket: &str, name: &str) -> Value {
    json!({"s3BucketName": bucket, "s3Key": name})
}

pub(super) fn add_attribute(name: &str, size: usize, attributes: &mut BTreeMap<String, MessageAttribute>) {
    let value = AttributeValue::Text(size.to_string());
    attributes.insert(name.to_owned(), MessageAttribute { data_type: "Number".into(), value });
}
