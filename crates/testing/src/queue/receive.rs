//! `ReceiveMessage`.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use super::settings::DeadLetter;
use super::state::{QueueState, Stored};
use crate::event::{ReceivedMessage, SystemAttributes};
use crate::rng::Draw;

/// `MaxNumberOfMessages`:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>
pub(super) const NUMBER_OF_MESSAGES: RangeInclusive<usize> = 1..=10;

/// Largest number of messages in flight, of a standard and of a FIFO queue.
const MOST_IN_FLIGHT: usize = 120_000;

impl Queue {
    /// Receives up to `max` messages, whose records in an event have `max_bytes` at most. Messages that were received
    /// too often are moved to the dead-letter queue.
    pub(crate) fn receive_within(&self, max: usize, max_bytes: Option<usize>) -> Vec<ReceivedMessage> {
        self.receive_messages(max, max_bytes, self.settings().visibility_timeout)
    }

    pub(super) fn receive_messages(
        &self,
        max: usize,
        mut max_bytes: Option<usize>,
        visibility_timeout: Duration,
    ) -> Vec<ReceivedMessage> {
        let now = Instant::now();
        let (mut received, mut dead) = (Vec::new(), Vec::new());
        let mut current = self.current_state();
        let receivable = current.receivable(self, now);
        let max = current.number_of_messages(self, &receivable, max).min(current.room(now));
        for number in receivable {
            if received.len() >= max {
                break;
            }
            let Some(message) = current.messages.get(&number) else { continue };
            if self.has_too_many_receives(message) {
                dead.extend(current.messages.remove(&number));
                current.counts.dead_letters += 1;
                continue;
            }
            let next = next_delivery(self, number, message, now);
            if let Some(room) = &mut max_bytes {
                let Some(rest) = room.checked_sub(next.bytes()) else { break };
                *room = rest;
            }
            current.deliver(self, number, &next.receipt_handle, now, visibility_timeout);
            received.push(next);
        }
        drop(current);
        if !dead.is_empty() {
            self.move_to_dead_letter_queue(dead);
        }
        received
    }

    /// A message is moved by the receive that would exceed `maxReceiveCount`. The documentation does not say when it is
    /// moved. `maxReceiveCount` counts deliveries to this queue, `ApproximateReceiveCount` those of all queues:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>,
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>
    fn has_too_many_receives(&self, message: &Stored) -> bool {
        let policy = self.settings().dead_letter.as_ref();
        policy.is_some_and(|DeadLetter { queue: _, max_receive_count }| message.receives_here >= *max_receive_count)
    }
}

impl QueueState {
    /// How many messages may yet be in flight:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
    pub(super) fn room(&self, now: Instant) -> usize {
        MOST_IN_FLIGHT.saturating_sub(self.messages.values().filter(|message| message.in_flight(now)).count())
    }

    /// How many of these messages a receive returns. "Amazon SQS never returns more messages than this value (however,
    /// fewer messages might be returned)":
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>
    fn number_of_messages(&self, queue: &Queue, receivable: &[u64], max: usize) -> usize {
        let Some((first, message)) = receivable.first().and_then(|first| Some((*first, self.messages.get(first)?)))
        else {
            return max;
        };
        let (rate, time) = (queue.settings().partial_receive_rate, message.receives.into());
        if !queue.rng().happens(rate, Draw::PartialReceive, first, time) {
            return max;
        }
        // At least one, because a long poll finds a message.
        let most = max.min(receivable.len()).max(1) as u64;
        1 + usize::try_from(queue.rng().draw(Draw::PartialReceive, first, time + 1) % most).unwrap_or(0)
    }

    /// The messages that may be received now, in the order of this receive. A standard queue guarantees no order:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/standard-queues.html>
    fn receivable(&self, queue: &Queue, now: Instant) -> Vec<u64> {
        if queue.settings().is_fifo() {
            return self.groups_in_order(queue, now);
        }
        let messages = self.messages.iter();
        let visible = messages.filter(|(_, message)| message.visible_since() <= now);
        let mut visible: Vec<_> = visible.map(|(number, message)| (message.place(queue, *number), *number)).collect();
        visible.sort_unstable();
        visible.into_iter().map(|(_, number)| number).collect()
    }

    /// Each receive has "a new receipt handle", counts, and hides the message for the visibility timeout of the call or
    /// the queue: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_Message.html>,
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html>
    ///
    /// A standard queue may deliver a message more than once at a time:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/standard-queues-at-least-once-delivery.html>
    fn deliver(&mut self, queue: &Queue, number: u64, receipt: &str, now: Instant, visibility_timeout: Duration) {
        let (settings, rng) = (queue.settings(), queue.rng());
        let Some(message) = self.messages.get_mut(&number) else { return };
        self.counts.received += 1;
        self.counts.concurrent_deliveries += usize::from(message.in_flight(now));
        message.history.entry().receives += 1;
        message.receives += 1;
        message.receives_here += 1;
        let time = message.receives.into();
        message.received = Some(now);
        message.first_received.get_or_insert(now);
        // A changed visibility timeout applies to one receive.
        message.visible = now + visibility_timeout;
        let is_duplicated = !settings.is_fifo()
            && rng.happens(settings.concurrent_delivery_rate, Draw::ConcurrentDelivery, number, time);
        message.copy = is_duplicated.then_some(now);
        message.receipt = Some(receipt.to_owned());
        self.receipts.insert(receipt.to_owned(), number);
    }
}

/// What a receive of the message at this time returns.
fn next_delivery(queue: &Queue, number: u64, message: &Stored, now: Instant) -> ReceivedMessage {
    // SQS assigns sequence numbers of 20 digits, with gaps.
    const FIRST_SEQUENCE_NUMBER: u128 = 18_899_000_000_000_000_000;
    let (settings, sent) = (queue.settings(), &message.sent);
    let timestamp = |at: Instant| queue.timestamp(at).to_string();
    let receives = message.receives + 1;
    let receipt = queue.rng().draw(Draw::ReceiptHandle, number, receives.into());
    ReceivedMessage {
        message_id: message.message_id.clone(),
        receipt_handle: format!("AQEB{number:016x}{receipt:016x}"),
        body: sent.body.clone(),
        attributes: SystemAttributes {
            approximate_receive_count: receives.to_string(),
            sent_timestamp: timestamp(message.sent_at),
            sequence_number: settings.is_fifo().then(|| (FIRST_SEQUENCE_NUMBER + u128::from(number) * 256).to_string()),
            message_group_id: sent.group.clone(),
            sender_id: "AROA4YSNI2G3IITN5XVKT:producer",
            message_deduplication_id: sent.deduplication_id.clone(),
            approximate_first_receive_timestamp: timestamp(message.first_received.unwrap_or(now)),
            dead_letter_queue_source_arn: message.dead_from.clone(),
            trace_header: sent.trace_header.clone(),
        },
        message_attributes: sent.attributes.iter().map(|(name, value)| (name.clone(), value.into())).collect(),
        md5_of_message_attributes: sent.md5_of_attributes(),
        md5_of_body: sent.md5_of_body(),
        event_source: "aws:sqs",
        event_source_arn: queue.arn(),
        aws_region: settings.region.clone(),
    }
}
