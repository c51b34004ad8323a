use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use tokio::time::Instant;

use super::shelf::{Recent, Shelf, Stored};
use super::{Queue, Refused};
use crate::testing::dice::Throw;
use crate::testing::ledger::History;
use crate::testing::outgoing::{Outgoing, hex};

/// How long FIFO's deduplication remembers a send:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html>
const DEDUPLICATION: Duration = Duration::from_mins(5);

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
const LARGEST_MESSAGE: usize = 1024 * 1024;

/// What a send came to.
pub(super) struct Sent {
    pub(super) message_id: String,
    /// `None` where no new message was made.
    pub(super) history: Option<History>,
}

impl Shelf {
    pub(super) fn send(&mut self, queue: &Queue, mut message: Outgoing) -> Result<Sent, Refused> {
        check(queue, &mut message)?;
        if let Some(recent) = self.recent(&message) {
            recent.history.entry().sends += 1;
            let message_id = recent.message_id.clone();
            self.counts.deduplicated += 1;
            return Ok(Sent { message_id, history: None });
        }
        let number = self.number();
        let message_id = queue.dice().uuid(Throw::MessageId, number);
        let history = History::start(&message_id, &message.body, &queue.settings().name);
        if let Some(id) = &message.deduplication_id {
            let recent = Recent { at: Instant::now(), message_id: message_id.clone(), history: history.clone() };
            self.recent.insert(id.clone(), recent);
        }
        self.messages.insert(number, Stored::new(message_id.clone(), message, history.clone()));
        self.counts.sent += 1;
        Ok(Sent { message_id, history: Some(history) })
    }

    /// The same `MessageDeduplicationId` within the interval, whatever became of its message.
    fn recent(&self, message: &Outgoing) -> Option<&Recent> {
        let recent = self.recent.get(message.deduplication_id.as_ref()?)?;
        (Instant::now() < recent.at + DEDUPLICATION).then_some(recent)
    }
}

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
fn check(queue: &Queue, message: &mut Outgoing) -> Result<(), Refused> {
    let refused = |code, reason| Err(Refused { code, reason });
    if message.body.is_empty() {
        return refused("MissingParameter", "The request must contain the parameter MessageBody.");
    }
    if message.size() > LARGEST_MESSAGE {
        return refused("InvalidParameterValue", "One or more parameters are invalid. Reason: Message is too long.");
    }
    if !queue.settings().is_fifo() {
        return match message.deduplication_id {
            Some(_) => refused("InvalidParameterValue", "MessageDeduplicationId is for FIFO queues."),
            None => Ok(()),
        };
    }
    if message.group.is_none() {
        return refused("MissingParameter", "The request must contain the parameter MessageGroupId.");
    }
    if message.deduplication_id.is_none() && queue.settings().content_based_deduplication {
        message.deduplication_id = Some(hex(digest(&SHA256, message.body.as_bytes()).as_ref()));
    }
    match message.deduplication_id {
        Some(_) => Ok(()),
        None => refused(
            "InvalidParameterValue",
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided \
             explicitly.",
        ),
    }
}
