//! Payloads that are like a notification or an event of an AWS service, but lack a part of it. They are payloads of the
//! producer's own: they have no id, and all of their fields are compared.

use serde_json::{Value, json};

use super::Payment;

/// How many kinds of [`like_envelope`] there are.
const KINDS: u64 = 15;

/// A payload that is an envelope but for one part. Its first field is none of an envelope. An imitation differs
/// only there.
pub(super) fn like_envelope(payment: Payment) -> String {
    let number = payment.imitated.unwrap_or(payment.number);
    let kind = number % KINDS;
    let mut envelope = match kind {
        0..6 => notification(number),
        6..11 => event(number),
        _ => json!({"Records": [record(number)]}),
    };
    match kind {
        0 => remove(&mut envelope, "Type"),
        1 => envelope["Type"] = json!("SubscriptionConfirmation"),
        2 => remove(&mut envelope, "Timestamp"),
        3 => envelope["TopicArn"] = json!("arn:aws:sqs:eu-central-1:123456789012:orders"),
        4 => envelope["MessageId"] = json!(""),
        5 => envelope["Message"] = json!({"payment": number}),
        6 => remove(&mut envelope, "account"),
        7 => remove(&mut envelope, "source"),
        8 => envelope["version"] = json!("1"),
        9 => envelope["resources"] = json!({}),
        10 => envelope["detail"] = json!("none"),
        11 => envelope["Records"][0]["eventSource"] = json!("aws:ses"),
        12 => remove(&mut envelope["Records"][0]["s3"]["object"], "key"),
        13 => envelope["Records"] = json!([record(number), of_other_service(number)]),
        _ => remove(&mut envelope["Records"][0], "eventName"),
    }
    let rest = envelope.to_string();
    format!("{{\"about\":\"payment-{}\",{}", payment.number, rest.strip_prefix('{').unwrap_or_default())
}

/// <https://docs.aws.amazon.com/sns/latest/dg/sns-sqs-as-subscriber.html>
fn notification(number: u64) -> Value {
    json!({
        "Type": "Notification",
        "MessageId": format!("notification-{number}"),
        "TopicArn": "arn:aws:sns:eu-central-1:123456789012:orders",
        "Timestamp": "2026-11-23T08:00:00.000Z",
        "Message": format!("{{\"payment\":{number}}}"),
    })
}

/// <https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html>
fn event(number: u64) -> Value {
    json!({
        "version": "0",
        "id": format!("event-{number}"),
        "detail-type": "ordered",
        "source": "shop",
        "account": "123456789012",
        "time": "2026-11-23T08:00:00Z",
        "region": "eu-central-1",
        "resources": [],
        "detail": {"payment": number},
    })
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>
fn record(number: u64) -> Value {
    json!({
        "eventSource": "aws:s3",
        "eventName": "ObjectCreated:Put",
        "s3": {
            "bucket": {"name": "orders"},
            "object": {"key": format!("payment-{number}"), "sequencer": "0055AED6"},
        },
    })
}

/// A record that is not of S3, with the id of a request.
fn of_other_service(number: u64) -> Value {
    json!({"eventSource": "aws:ses", "responseElements": {"x-amz-request-id": number.to_string()}})
}

fn remove(object: &mut Value, name: &str) {
    let removed = object.as_object_mut().and_then(|fields| fields.remove(name));
    assert!(removed.is_some(), "the envelope has this part: {name}");
}
