//! `SendMessage` and FIFO deduplication.

use std::time::Duration;

use tokio::time::Instant;

use super::settings::DeduplicationScope;
use super::state::{DeduplicationKey, QueueState, Recent, Stored};
use super::validation::accepted;
use super::{Queue, SqsError};
use crate::history::History;
use crate::rng::Draw;
use crate::send_request::SendRequest;

/// The deduplication interval of FIFO queues, which deleting the message does not end:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-exactly-once-processing.html>
const DEDUPLICATION: Duration = Duration::from_mins(5);

/// Result of a send.
pub(super) struct Sent {
    pub(super) message_id: String,
    /// `None` if the message was deduplicated.
    pub(super) history: Option<History>,
}

impl QueueState {
    pub(super) fn send(&mut self, queue: &Queue, message: SendRequest) -> Result<Sent, SqsError> {
        let message = accepted(queue, message)?;
        let deduplication_key = queue.settings().deduplication_scope.of(&message);
        if let Some(recent) = deduplication_key.as_ref().and_then(|id| self.recent(id)) {
            recent.history.entry().sends += 1;
            let message_id = recent.message_id.clone();
            self.counts.deduplicated += 1;
            return Ok(Sent { message_id, history: None });
        }
        let delay = message.delay.unwrap_or(queue.settings().delay);
        let number = self.number();
        let message_id = queue.rng().uuid(Draw::MessageId, number);
        let history = History::start(&message_id, &message.body, &queue.settings().name);
        if let Some(id) = deduplication_key {
            let recent = Recent { at: Instant::now(), message_id: message_id.clone(), history: history.clone() };
            self.recent.insert(id, recent);
        }
        self.messages.insert(number, Stored::new(message_id.clone(), message, history.clone(), delay));
        self.counts.sent += 1;
        Ok(Sent { message_id, history: Some(history) })
    }

    /// An earlier send with the same id within the interval. The documentation leaves open which messageId the later
    /// send returns; here it is that of the first one.
    fn recent(&self, id: &DeduplicationKey) -> Option<&Recent> {
        let recent = self.recent.get(id)?;
        (Instant::now() < recent.at + DEDUPLICATION).then_some(recent)
    }
}

impl DeduplicationScope {
    /// The key under which a send is deduplicated: "whether message deduplication occurs at the message group or queue
    /// level", <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
    fn of(self, message: &SendRequest) -> Option<DeduplicationKey> {
        let group = match self {
            Self::Queue => None,
            Self::MessageGroup => message.group.clone(),
        };
        Some((group, message.deduplication_id.clone()?))
    }
}
