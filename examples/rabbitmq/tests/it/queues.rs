//! The queues of one test, as a producer and an operator use them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use harness::until;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use serde_json::Value;

use crate::broker::Broker;

/// A payment of 12.50 EUR.
pub(crate) const PAYMENT: &[u8] = br#"{"amount": 1250, "currency": "EUR"}"#;

/// A payment that fails permanently.
pub(crate) const NO_AMOUNT: &[u8] = br#"{"amount": 0, "currency": "EUR"}"#;

/// The queues, which have the name of the work queue in common.
pub(crate) struct Queues {
    pub(crate) work: String,
    /// Keeps the channel open.
    _connection: Connection,
    channel: Channel,
}

/// A dead letter.
#[derive(Debug)]
pub(crate) struct Letter {
    /// The header `Idempotency-Dead-Letter`.
    pub(crate) why: Value,
    pub(crate) delivery: Delivery,
}

impl Queues {
    pub(crate) async fn connect(broker: &Broker) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let work = format!("payments-{}", COUNT.fetch_add(1, Ordering::SeqCst));
        let url = format!("amqp://127.0.0.1:{}/%2f", broker.port);
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Self { work, _connection: connection, channel }
    }

    /// Sends a message with this `message_id`.
    pub(crate) async fn send(&self, message_id: &str, body: &[u8]) {
        self.send_with(BasicProperties::default().with_message_id(message_id.into()), body).await;
    }

    pub(crate) async fn send_with(&self, properties: BasicProperties, body: &[u8]) {
        let properties = properties.with_delivery_mode(2);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let queue = self.work.as_str();
        let sent = self.channel.basic_publish("".into(), queue.into(), options, body, properties).await.unwrap();
        assert_eq!(sent.await.unwrap(), Confirmation::Ack(None));
    }

    /// Messages in the queue that are not delivered to a consumer. `suffix` is that of its name, such as `.dead`.
    pub(crate) async fn ready(&self, suffix: &str) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let name = format!("{}{suffix}", self.work);
        let queue = self.channel.queue_declare(name.into(), options, FieldTable::default()).await;
        queue.unwrap().message_count()
    }

    /// Messages in all delay queues.
    pub(crate) async fn delayed(&self) -> u32 {
        let mut delayed = 0;
        for suffix in DELAY_QUEUES {
            delayed += self.ready(suffix).await;
        }
        delayed
    }

    /// Asserts that no queue has a message, except dead letters. Messages that were not acknowledged count once their
    /// consumer has ended.
    pub(crate) async fn assert_all_acknowledged(&self) {
        assert_eq!((self.ready("").await, self.delayed().await), (0, 0));
    }

    /// The next dead letter, which must come.
    pub(crate) async fn letter(&self) -> Letter {
        until(|| async { self.ready(".dead").await > 0 }).await;
        let options = BasicGetOptions::default();
        let got = self.channel.basic_get(format!("{}.dead", self.work).into(), options).await.unwrap().unwrap();
        got.delivery.ack(BasicAckOptions::default()).await.unwrap();
        let headers = got.delivery.properties.headers().as_ref().unwrap();
        let Some(AMQPValue::LongString(why)) = headers.inner().get("Idempotency-Dead-Letter") else {
            panic!("{headers:?}")
        };
        Letter { why: serde_json::from_slice(why.as_bytes()).unwrap(), delivery: got.delivery }
    }

    /// Moves a dead letter back, as RabbitMQ's shovel does: with all its properties and headers.
    pub(crate) async fn redrive(&self, letter: &Letter, body: &[u8]) {
        self.send_with(letter.delivery.properties.clone(), body).await;
    }

    pub(crate) async fn delete(&self, suffix: &str) {
        let name = format!("{}{suffix}", self.work);
        self.channel.queue_delete(name.into(), QueueDeleteOptions::default()).await.unwrap();
    }

    /// Creates the dead-letter queue again, for as many messages.
    pub(crate) async fn create_dead_letter_queue(&self, max_length: i64) {
        let arguments = BTreeMap::from([
            ("x-queue-type".into(), LongString::from("quorum").into()),
            ("x-max-length".into(), max_length.into()),
            ("x-overflow".into(), LongString::from("reject-publish").into()),
        ]);
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let name = format!("{}.dead", self.work);
        self.channel.queue_declare(name.into(), options, arguments.into()).await.unwrap();
    }
}

pub(crate) const DELAY_QUEUES: [&str; 5] = [".delay.4s", ".delay.15s", ".delay.60s", ".delay.240s", ".delay.900s"];

/// Headers with text values.
pub(crate) fn headers<const N: usize>(headers: [(&str, &str); N]) -> FieldTable {
    let headers = headers.map(|(name, value)| (name.into(), LongString::from(value).into()));
    BTreeMap::from(headers).into()
}
