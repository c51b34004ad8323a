//! What the consumer reads from a message: its key, its identity, and the payment.

use idempotent_sqs::{Deadline, Delivery, Fingerprint, Key};
use lapin::BasicProperties;
use lapin::types::AMQPValue;

use crate::dead_letter::{DeadLetter, Reason};
use crate::payments::PaymentRequest;

/// Header with the idempotency key. Without it the property `message_id` is the key.
pub(crate) const KEY: &str = "Idempotency-Key";

/// Header with the number of deliveries before the last delay.
pub(crate) const DELIVERIES: &str = "Idempotency-Deliveries";

/// Header of the broker: how often it has delivered this copy of the message before. Only quorum queues count.
const REDELIVERIES: &str = "x-delivery-count";

/// Header with the number of times that the message was dead-lettered.
pub(crate) const DEAD_LETTERS: &str = "Idempotency-Dead-Letters";

/// A message whose key and payment could be read.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) key: Key,
    pub(crate) request: PaymentRequest,
    id: String,
    fingerprint: Fingerprint,
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// Why it can never be processed.
    pub(crate) fn read(properties: &BasicProperties, body: &[u8]) -> Result<Self, DeadLetter> {
        let key = key(properties).map_err(|detail| DeadLetter::new(Reason::NoKey, detail))?;
        let request = serde_json::from_slice(body).map_err(|error| {
            // The error's own text can contain parts of the body.
            let place = format!("line {}, column {}", error.line(), error.column());
            DeadLetter::new(Reason::Unreadable, format!("the body is not a payment: {place}"))
        })?;
        Ok(Self { key, request, id: id(properties), fingerprint: Fingerprint::of(body) })
    }

    /// The input of the core.
    pub(crate) fn delivery(&self, deadline: Deadline) -> Delivery {
        Delivery::new(self.key.clone()).fingerprint(self.fingerprint).message_id(&self.id).deadline(deadline)
    }
}

/// How often a message with these properties was delivered, from 1.
pub(crate) fn deliveries(properties: &BasicProperties) -> u32 {
    count(properties, DELIVERIES).saturating_add(count(properties, REDELIVERIES)).saturating_add(1)
}

/// What makes two deliveries the same message: the property `message_id`, and how often it was dead-lettered.
///
/// A permanent failure applies to the message that failed. A delayed copy keeps both, so it is the same message. A dead
/// letter has a higher number than the message had, so a redrive runs, whichever tool moves it back.
fn id(properties: &BasicProperties) -> String {
    let message_id = properties.message_id().as_ref().map_or("", |id| id.as_str());
    format!("{}:{message_id}", count(properties, DEAD_LETTERS))
}

/// The key that the producer chose. A header that is no key is not replaced by the `message_id`.
fn key(properties: &BasicProperties) -> Result<Key, &'static str> {
    let header = properties.headers().as_ref().and_then(|headers| headers.inner().get(KEY));
    let key = match (header, properties.message_id()) {
        (Some(AMQPValue::LongString(text)), _) => {
            std::str::from_utf8(text.as_bytes()).map_err(|_| "the header Idempotency-Key is not UTF-8")?
        }
        (Some(_), _) => return Err("the header Idempotency-Key is not a string"),
        (None, Some(id)) => id.as_str(),
        (None, None) => return Err("there is neither a header Idempotency-Key nor a message_id"),
    };
    Key::new(key).map_err(|_| "the key is empty")
}

/// The number in this header, and 0 without one.
pub(crate) fn count(properties: &BasicProperties, name: &str) -> u32 {
    let number = match properties.headers().as_ref().and_then(|headers| headers.inner().get(name)) {
        Some(AMQPValue::LongLongInt(number)) => *number,
        // Tools that move a message may write it shorter.
        Some(AMQPValue::LongInt(number)) => (*number).into(),
        Some(AMQPValue::ShortInt(number)) => (*number).into(),
        Some(AMQPValue::ShortShortInt(number)) => (*number).into(),
        _ => 0,
    };
    u32::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn with(headers: impl IntoIterator<Item = (&'static str, i64)>) -> BasicProperties {
        let headers = headers.into_iter().map(|(name, number)| (name.into(), AMQPValue::from(number)));
        BasicProperties::default().with_headers(headers.collect::<BTreeMap<_, _>>().into())
    }

    #[test]
    fn deliveries_are_those_before_the_last_delay_and_those_since() {
        assert_eq!(deliveries(&BasicProperties::default()), 1);
        assert_eq!(deliveries(&with([(DELIVERIES, 3), (REDELIVERIES, 2)])), 6);
        assert_eq!(
            deliveries(&with([(DELIVERIES, -3), (REDELIVERIES, i64::MAX)])),
            1,
            "a producer can send any number"
        );
    }

    #[test]
    fn a_copy_is_the_same_message_and_a_dead_letter_is_another_one() {
        let sent = BasicProperties::default().with_message_id("pay-1".into());
        assert_eq!(id(&sent), id(&with([(DELIVERIES, 3)]).with_message_id("pay-1".into())));
        let dead = with([(DEAD_LETTERS, 1)]).with_message_id("pay-1".into());
        assert_ne!(id(&sent), id(&dead));
        assert_ne!(id(&sent), id(&BasicProperties::default().with_message_id("pay-2".into())));
    }
}
