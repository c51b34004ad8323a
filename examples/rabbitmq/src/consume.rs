//! One delivery: run it, then tell the broker. A message is acknowledged only after its work is done, or after the
//! broker has confirmed the copy of it in another queue.

use std::time::Duration;

use idempotent_sqs::idempotency::backoff;
use idempotent_sqs::{Deadline, Idempotency, RedisStore};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::disposition::{Disposition, disposition};
use crate::message::{Message, deliveries};
use crate::payments::Payments;
use crate::publish::Publisher;

/// Longest time that a message is kept from the queue if the broker accepts no copy of it.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// What all deliveries share.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) idempotency: Idempotency<RedisStore>,
    pub(crate) payments: Payments,
    /// The time of one run. The lease is a second longer.
    pub(crate) timeout: Duration,
}

impl Consumer {
    /// Handles one delivery. `is_ending` becomes true when the connection is about to be closed.
    ///
    /// # Errors
    /// If a connection is lost. The broker then delivers the message again.
    pub(crate) async fn handle(
        &self,
        delivery: &Delivery,
        publisher: &Publisher,
        mut is_ending: watch::Receiver<bool>,
    ) -> lapin::Result<()> {
        let deliveries = deliveries(&delivery.properties);
        let disposition = match Message::read(&delivery.properties, &delivery.data) {
            Ok(message) => {
                let run = message.delivery(Deadline::within(self.timeout));
                let result = self.idempotency.run(&run, &self.payments, &message.request).await;
                let disposition = disposition(&result, deliveries);
                tracing::info!(key = message.key.as_str(), deliveries, ?result, ?disposition);
                disposition
            }
            Err(letter) => {
                tracing::warn!(?letter);
                Disposition::DeadLetter(letter)
            }
        };
        let is_settled = match &disposition {
            Disposition::Ack => true,
            Disposition::Delay(delay) => publisher.delay(delivery, *delay).await?,
            // A dead-letter queue that is full or missing is not the message's fault.
            Disposition::DeadLetter(letter) => {
                publisher.dead_letter(delivery, letter).await? || publisher.delay(delivery, backoff(deliveries)).await?
            }
        };
        if is_settled {
            delivery.ack(BasicAckOptions::default()).await?;
        } else {
            // The broker has refused both copies. Without a pause it would deliver the message again at once.
            tokio::select! {
                () = sleep(backoff(deliveries).min(LONGEST_HOLD)) => {}
                _ = is_ending.wait_for(|is_ending| *is_ending) => {}
            }
            delivery.nack(BasicNackOptions { requeue: true, ..BasicNackOptions::default() }).await?;
        }
        Ok(())
    }
}
