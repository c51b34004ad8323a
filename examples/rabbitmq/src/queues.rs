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

/// A dead letter is kept, however often it is looked at: RabbitMQ 4 would otherwise drop it after 20 times. A negative
/// number, which means no limit in RabbitMQ 4, is refused by RabbitMQ 3.
const DEAD_LETTER_DELIVERY_LIMIT: i64 = 1_000_000_000;

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
        for (name, arguments) in self.arguments() {
            let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(name.into(), options, arguments).await?;
        }
        Ok(())
    }

    /// The name and the arguments of each queue. A queue comes after the one that it dead-letters into.
    fn arguments(&self) -> Vec<(String, FieldTable)> {
        let dead = quorum([("x-delivery-limit", DEAD_LETTER_DELIVERY_LIMIT.into())]);
        let mut work = dead_lettered_to(&self.dead());
        work.insert("x-delivery-limit".into(), DELIVERY_LIMIT.into());
        let delays = delay::LONGEST.map(|longest| (self.delay(longest), dead_lettered_to(&self.work)));
        [(self.dead(), dead), (self.work.clone(), work)].into_iter().chain(delays).collect()
    }
}

/// Arguments of a queue that dead-letters at least once into another queue.
fn dead_lettered_to(queue: &str) -> FieldTable {
    quorum([
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(queue)),
        ("x-dead-letter-strategy", text("at-least-once")),
        // Required for at least once.
        ("x-overflow", text("reject-publish")),
    ])
}

/// Arguments of a quorum queue, and these.
fn quorum<const N: usize>(others: [(&str, AMQPValue); N]) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("quorum"));
    for (name, value) in others {
        arguments.insert(name.into(), value);
    }
    arguments
}

fn text(value: &str) -> AMQPValue {
    LongString::from(value).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_leaves_a_queue_for_another_one_or_never() {
        let mut declared = Vec::new();
        for (name, arguments) in Queues::new("payments").arguments() {
            let argument = |name: &str| arguments.inner().get(name).cloned();
            let limit = argument("x-delivery-limit");
            match argument("x-dead-letter-routing-key") {
                Some(other) => assert!(declared.contains(&other), "{name}: {other:?}"),
                // RabbitMQ 4 drops a message of a queue without a limit after 20 deliveries.
                None => assert_eq!((&*name, limit), ("payments.dead", Some(DEAD_LETTER_DELIVERY_LIMIT.into()))),
            }
            declared.push(text(&name));
        }
    }
}
