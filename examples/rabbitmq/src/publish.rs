//! Copies of messages in other queues, each confirmed by the broker.

use std::collections::BTreeMap;

use lapin::message::Delivery;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection};

use crate::queues::Queues;

/// Headers that a copy does not have. The broker sets its own again; `CC` would send the copy to other queues, too.
const NOT_COPIED: [&str; 6] = ["CC", "BCC", "x-death", "x-delivery-count", "x-opt-deaths", "x-acquired-count"];

/// Sends copies of messages on a channel of its own.
#[derive(Debug)]
pub(crate) struct Publisher {
    channel: Channel,
    pub(crate) queues: Queues,
}

impl Publisher {
    pub(crate) async fn open(connection: &Connection, queues: Queues) -> lapin::Result<Self> {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { channel, queues })
    }

    /// Publishes a copy of the message to a queue, and returns whether the broker is responsible for it now. `false` if
    /// the queue does not exist, or rejects the copy.
    ///
    /// # Errors
    /// If the connection is lost. The copy may have been published.
    pub(crate) async fn copy(
        &self,
        delivery: &Delivery,
        queue: &str,
        properties: BasicProperties,
    ) -> lapin::Result<bool> {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = self.channel.basic_publish("".into(), queue.into(), options, &delivery.data, properties).await?;
        let confirmation = sent.await?;
        // A copy that no queue takes is returned, and confirmed nevertheless.
        let is_accepted = confirmation == Confirmation::Ack(None);
        if !is_accepted {
            tracing::warn!(queue, "RabbitMQ did not accept a message for this queue");
        }
        Ok(is_accepted)
    }
}

/// The properties of a copy: those of the message with these headers, and persistent.
///
/// Without its `user_id`, which the broker accepts only from that user, and without its `expiration`: a message that
/// was delivered once must not expire.
pub(crate) fn copied<const N: usize>(from: &BasicProperties, added: [(&str, AMQPValue); N]) -> BasicProperties {
    let mut headers: BTreeMap<ShortString, AMQPValue> = BTreeMap::new();
    if let Some(old) = from.headers() {
        headers.extend(old.inner().clone());
    }
    headers.retain(|name, _| !NOT_COPIED.contains(&name.as_str()) && !name.as_str().starts_with("x-first-death-"));
    headers.extend(added.map(|(name, value)| (name.into(), value)));
    let text = [
        (from.content_type(), BasicProperties::with_content_type as fn(_, _) -> _),
        (from.content_encoding(), BasicProperties::with_content_encoding),
        (from.correlation_id(), BasicProperties::with_correlation_id),
        (from.reply_to(), BasicProperties::with_reply_to),
        (from.message_id(), BasicProperties::with_message_id),
        (from.kind(), BasicProperties::with_type),
        (from.app_id(), BasicProperties::with_app_id),
    ];
    let mut copy = BasicProperties::default().with_delivery_mode(2).with_headers(FieldTable::from(headers));
    for (value, with) in text {
        if let Some(value) = value {
            copy = with(copy, value.clone());
        }
    }
    if let Some(timestamp) = from.timestamp() {
        copy = copy.with_timestamp(*timestamp);
    }
    match from.priority() {
        Some(priority) => copy.with_priority(*priority),
        None => copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_what_the_producer_set_and_nothing_that_the_broker_acts_upon() {
        let header = |name: &str| (ShortString::from(name), AMQPValue::from(1_i64));
        let names = [&["Tenant", "Idempotency-Key", "x-first-death-queue"][..], &NOT_COPIED].concat();
        let sent = BasicProperties::default()
            .with_headers(names.into_iter().map(header).collect::<BTreeMap<_, _>>().into())
            .with_content_type("application/json".into())
            .with_content_encoding("identity".into())
            .with_correlation_id("c".into())
            .with_reply_to("r".into())
            .with_message_id("m".into())
            .with_type("payment".into())
            .with_app_id("shop".into())
            .with_timestamp(1_795_377_514)
            .with_priority(3);
        let copy =
            copied(&sent.clone().with_user_id("guest".into()).with_expiration("1".into()), [("Added", 2.into())]);
        let kept = ["Tenant", "Idempotency-Key"].map(header).into_iter().chain([("Added".into(), 2.into())]);
        let expected = sent.with_headers(kept.collect::<BTreeMap<_, _>>().into()).with_delivery_mode(2);
        assert_eq!(copy, expected);
    }
}
