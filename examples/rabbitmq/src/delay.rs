//! Deliveries at a later time. RabbitMQ has none without a plug-in, so the message expires in a delay queue, which
//! dead-letters it into the work queue.

use std::time::Duration;

use lapin::message::Delivery;

use crate::message::{DELIVERIES, deliveries};
use crate::publish::{Publisher, copied};

/// The longest delay of each delay queue.
///
/// A message expires only at the head of its queue, so it also waits for those before it. In a queue of its own size it
/// waits no longer than that queue's longest delay.
pub(crate) const LONGEST: [Duration; 5] = [
    Duration::from_secs(4),
    Duration::from_secs(15),
    Duration::from_mins(1),
    Duration::from_mins(4),
    Duration::from_mins(15),
];

/// The delay queue for this delay, and the delay. A longer one than all queues have is shortened: the message then
/// conflicts again, and is delayed again.
fn place(delay: Duration) -> (Duration, Duration) {
    let [.., longest] = LONGEST;
    let queue = LONGEST.into_iter().find(|longest| delay <= *longest).unwrap_or(longest);
    (queue, delay.min(queue))
}

impl Publisher {
    /// Publishes a copy of the message that is delivered after this time, and returns whether the broker accepted it.
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub(crate) async fn delay(&self, delivery: &Delivery, delay: Duration) -> lapin::Result<bool> {
        let (queue, delay) = place(delay);
        let properties = &delivery.properties;
        let properties = copied(properties, [(DELIVERIES, i64::from(deliveries(properties)).into())]);
        let properties = properties.with_expiration(delay.as_millis().to_string().into());
        self.copy(delivery, &self.queues.delay(queue), properties).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_goes_to_the_first_queue_that_is_long_enough() {
        let seconds = |delay| {
            let (queue, delay) = place(Duration::from_secs(delay));
            (queue.as_secs(), delay.as_secs())
        };
        assert_eq!([0, 4, 5, 60, 61, 900].map(seconds), [(4, 0), (4, 4), (15, 5), (60, 60), (240, 61), (900, 900)]);
        assert_eq!(seconds(86_400), (900, 900), "a longer delay is shortened");
    }
}
