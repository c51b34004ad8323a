//! The queues: one for work, its delay queues, and its dead-letter queue.

use std::time::Duration;

use lapin::Channel;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable, LongString};

use crate::delay;

/// After so many deliveries that were neither acknowledged nor delayed, the broker itself moves a message to the
/// dead-letter queue, without a reason. Such a message ends each connection or process that it is delivered to.
/// RabbitMQ 4 would otherwise drop it after 20, and a few lost connections are not the message's fault.
const DELIVERY_LIMIT: i64 = 1000;

/// The names of the queues.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    work: String,
}

impl Queues {
    pub(crate) fn new(work: &str) -> Self {
        Self { work: work.to_owned() }
    }

    /// The queue that is consumed.
    pub(crate) fn work(&self) -> &str {
        &self.work
    }

    /// The dead-letter queue.
    pub(crate) fn dead(&self) -> String {
        format!("{}.dead", self.work)
    }

    /// The delay queue with this longest delay.
    pub(crate) fn delay(&self, longest: Duration) -> String {
        format!("{}.delay.{}s", self.work, longest.as_secs())
    }

    /// Creates the queues that do not exist.
    ///
    /// All are quorum queues: replicated if there are several nodes, and the only queues that dead-letter at least
    /// once, so that no message is lost between a delay queue and the work queue.
    ///
    /// # Errors
    /// If a queue exists with other arguments, or the connection is lost.
    pub(crate) async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        declare(channel, &self.dead(), FieldTable::default()).await?;
        let mut work = dead_lettered_to(&self.dead());
        work.insert("x-delivery-limit".into(), DELIVERY_LIMIT.into());
        declare(channel, &self.work, work).await?;
        for longest in delay::LONGEST {
            declare(channel, &self.delay(longest), dead_lettered_to(&self.work)).await?;
        }
        Ok(())
    }
}

/// Arguments of a queue that dead-letters at least once into another queue.
fn dead_lettered_to(queue: &str) -> FieldTable {
    let mut arguments = FieldTable::default();
    for (name, value) in [
        ("x-dead-letter-exchange", ""),
        ("x-dead-letter-routing-key", queue),
        ("x-dead-letter-strategy", "at-least-once"),
        // Required for at least once.
        ("x-overflow", "reject-publish"),
    ] {
        arguments.insert(name.into(), text(value));
    }
    arguments
}

async fn declare(channel: &Channel, name: &str, mut arguments: FieldTable) -> lapin::Result<()> {
    arguments.insert("x-queue-type".into(), text("quorum"));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), options, arguments).await?;
    Ok(())
}

fn text(value: &str) -> AMQPValue {
    LongString::from(value).into()
}
