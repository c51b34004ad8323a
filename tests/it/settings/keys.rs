//! Sources of the key (`IDEMPOTENCY_KEY`) that no message can have.

use super::{REQUIRED, errors, read};
use idempotent_sqs::sqs::KeySource;

/// The sources that this setting names.
fn sources(list: &str) -> Vec<KeySource> {
    read(&[REQUIRED, &[("IDEMPOTENCY_KEY", list)]]).unwrap().0.batch.keys
}

#[test]
fn an_attribute_that_no_message_can_have_is_an_error() {
    for name in [
        "",
        "Payment Id",
        "Zahlungs-Schl\u{fc}ssel",
        "payment/id",
        ".payment",
        "payment.",
        "payment..id",
        "AWS.Payment",
        "amazon.payment",
        &"n".repeat(257),
    ] {
        let errors = errors(&[REQUIRED, &[("IDEMPOTENCY_KEY", &format!("attribute:{name},messageId"))]]);
        assert!(errors.len() == 1 && errors[0].contains("is not a key source: use attribute:NAME"), "{errors:?}");
    }
    for name in ["Payment-Id", "payment_id.v2", "AWSome", "amazonas", &"n".repeat(256)] {
        assert_eq!(sources(&format!("attribute:{name}")), [KeySource::Attribute(name.into())]);
    }
}

#[test]
fn white_space_around_a_source_and_its_name_is_ignored() {
    let expected = [KeySource::Attribute("Payment-Id".into()), KeySource::Body("/id".into()), KeySource::MessageId];
    for list in ["attribute: Payment-Id, body: /id, messageId", " attribute:Payment-Id\n,\tbody:/id ,messageId "] {
        assert_eq!(sources(list), expected);
    }
}

#[test]
fn a_source_after_the_message_id_is_an_error_because_it_is_never_used() {
    for list in ["messageId,attribute:Payment-Id", "body:/id,messageId,deduplicationId", "messageId,messageId"] {
        let errors = errors(&[REQUIRED, &[("IDEMPOTENCY_KEY", list)]]);
        assert!(errors.len() == 1 && errors[0].contains("put messageId last"), "{errors:?}");
    }
}

#[test]
fn each_invalid_source_is_reported() {
    let errors = errors(&[REQUIRED, &[("IDEMPOTENCY_KEY", "header:Key,attribute:Payment Id,messageId")]]);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("\"header:Key\"") && errors[1].contains("\"attribute:Payment Id\""), "{errors:?}");
}
