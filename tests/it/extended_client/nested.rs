//! Payloads in S3 that may be notifications of SNS with another key than the notification around their pointer.

use super::*;

fn notification(id: &str, message: &str, key: &str) -> String {
    let mut notification = in_sns(message, "ExtendedPayloadSize");
    notification["MessageId"] = id.into();
    notification["MessageAttributes"]["Idempotency-Key"] = json!({ "Type": "String", "Value": key });
    notification.to_string()
}

/// A notification with a key, whose payload is in this object.
fn forwarded(id: &str, object: &str) -> Message {
    with!(Message::default(), id = id.into(), body = Some(notification("sns-2", &pointer(CURRENT, object), "outer")))
}

/// A message of other work, with this key in an attribute of SQS.
fn other(key: &str) -> Message {
    with!(
        Message::default(),
        id = "m0".into(),
        body = Some("another payment".into()),
        attributes = attributes(&[("Idempotency-Key", key)])
    )
}

/// A payload of a message that is too large for the settings.
fn too_large() -> String {
    notification("sns-1", &"x".repeat(5 << 20), "inner")
}

#[tokio::test]
async fn the_key_is_that_of_the_notification_in_the_payload() {
    let fixture = Fixture::default();
    fixture.put("one", &notification("sns-1", "12.50 EUR", "inner")).await;
    let reports = fixture.run(&[forwarded("m1", "one")]).await;
    assert_eq!(reports[0].key.as_ref().unwrap().as_str(), "inner");
}

#[tokio::test]
async fn a_message_is_no_duplicate_by_a_key_that_a_notification_in_its_unreadable_payload_may_replace() {
    let fixture = Fixture::default();
    fixture.put("large", &too_large()).await;
    assert_eq!(outcomes(&fixture.run(&[other("outer")]).await), ["ACQUIRED"]);
    for object in ["deleted", "large"] {
        let reports = fixture.run(&[forwarded("m1", object)]).await;
        assert_ne!(reports[0].disposition, Disposition::Done, "{reports:?}");
        assert_eq!(reports[0].dead_letter, Some(DeadLetterOutcome::Unreadable));
        assert_eq!(reports[0].key, None);
    }
}

#[tokio::test]
async fn a_message_is_no_duplicate_by_its_deduplication_id_if_its_unreadable_payload_may_have_the_attribute() {
    let keys = ["attribute:Idempotency-Key", "deduplicationId"].map(|source| source.parse().unwrap());
    let fixture = Fixture { keys: Some(keys.to_vec()), ..Fixture::default() };
    let in_group = |id: &str, body: &str, attributes| {
        with!(
            Message::default(),
            id = id.into(),
            body = Some(body.into()),
            attributes = attributes,
            group_id = Some("customer-1".into()),
            deduplication_id = Some("5".into())
        )
    };
    let first = in_group("m0", "another payment", HashMap::new());
    assert_eq!(outcomes(&fixture.run(&[first]).await), ["ACQUIRED"]);
    let second = in_group("m1", &pointer(CURRENT, "deleted"), attributes(&[("ExtendedPayloadSize", "300000")]));
    let reports = fixture.run(&[second]).await;
    assert_ne!(reports[0].disposition, Disposition::Done, "{reports:?}");
}

#[tokio::test]
async fn no_failure_is_recorded_under_a_key_that_a_notification_in_the_payload_may_replace() {
    let fixture = Fixture::default();
    fixture.run(&[forwarded("m1", "restored")]).await;
    fixture.put("restored", "12.50 EUR").await;
    assert_eq!(outcomes(&fixture.run(&[forwarded("m1", "restored")]).await), ["ACQUIRED"]);
    assert_eq!(fixture.seen().len(), 1);
}
