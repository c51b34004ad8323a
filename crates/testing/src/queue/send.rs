//! `SendMessage` and FIFO deduplication.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use tokio::time::Instant;

use super::settings::DeduplicationScope;
use super::state::{DeduplicationKey, QueueState, Recent, Stored};
use super::{Queue, SqsError};
use crate::history::History;
use crate::rng::Draw;
use crate::send_request::{SendRequest, hex};

/// The deduplication interval of FIFO queues, which deleting the message does not end:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-exactly-once-processing.html>
const DEDUPLICATION: Duration = Duration::from_mins(5);

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
const LARGEST_MESSAGE: usize = 1024 * 1024;

/// Longest `MessageGroupId` and `MessageDeduplicationId`.
const LONGEST_ID: usize = 128;

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
const MOST_ATTRIBUTES: usize = 10;

/// Result of a send.
pub(super) struct Sent {
    pub(super) message_id: String,
    /// `None` if the message was deduplicated.
    pub(super) history: Option<History>,
}

impl QueueState {
    pub(super) fn send(&mut self, queue: &Queue, mut message: SendRequest) -> Result<Sent, SqsError> {
        check(queue, &mut message)?;
        let deduplication_key = queue.settings().deduplication_scope.of(&message);
        if let Some(recent) = deduplication_key.as_ref().and_then(|id| self.recent(id)) {
            recent.history.entry().sends += 1;
            let message_id = recent.message_id.clone();
            self.counts.deduplicated += 1;
            return Ok(Sent { message_id, history: None });
        }
        let number = self.number();
        let message_id = queue.rng().uuid(Draw::MessageId, number);
        let history = History::start(&message_id, &message.body, &queue.settings().name);
        if let Some(id) = deduplication_key {
            let recent = Recent { at: Instant::now(), message_id: message_id.clone(), history: history.clone() };
            self.recent.insert(id, recent);
        }
        self.messages.insert(number, Stored::new(message_id.clone(), message, history.clone()));
        self.counts.sent += 1;
        Ok(Sent { message_id, history: Some(history) })
    }

    /// An earlier send with the same id within the interval.
    fn recent(&self, id: &DeduplicationKey) -> Option<&Recent> {
        let recent = self.recent.get(id)?;
        (Instant::now() < recent.at + DEDUPLICATION).then_some(recent)
    }
}

impl DeduplicationScope {
    /// The key under which a send is deduplicated.
    fn of(self, message: &SendRequest) -> Option<DeduplicationKey> {
        let group = match self {
            Self::Queue => None,
            Self::MessageGroup => message.group.clone(),
        };
        Some((group, message.deduplication_id.clone()?))
    }
}

fn is_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether SQS accepts the character in a body and in the text of an attribute: <https://www.w3.org/TR/REC-xml/#charsets>
fn is_xml(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
fn check(queue: &Queue, message: &mut SendRequest) -> Result<(), SqsError> {
    let refused = |code, reason| Err(SqsError { code, reason });
    if message.body.is_empty() {
        return refused("MissingParameter", "The request must contain the parameter MessageBody.");
    }
    if message.size() > LARGEST_MESSAGE {
        return refused("InvalidParameterValue", "One or more parameters are invalid. Reason: Message is too long.");
    }
    if !message.texts().all(|text| text.chars().all(is_xml)) {
        return refused("InvalidMessageContents", "Invalid characters found. Valid unicode characters are XML's.");
    }
    if message.attributes.len() > MOST_ATTRIBUTES {
        return refused("InvalidParameterValue", "Number of message attributes exceeds the allowed maximum [10].");
    }
    if message.attributes.iter().any(|(name, value)| name.is_empty() || value.bytes().is_empty()) {
        return refused(
            "InvalidParameterValue",
            "A message attribute must have a name and a value that are not empty.",
        );
    }
    if !message.group.iter().chain(&message.deduplication_id).all(|id| is_id(id)) {
        return refused(
            "InvalidParameterValue",
            "MessageGroupId and MessageDeduplicationId can only include alphanumeric and punctuation characters. \
             1 to 128 in length.",
        );
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
