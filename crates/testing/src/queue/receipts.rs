use std::time::Duration;

use tokio::time::Instant;

use super::settings::LONGEST_VISIBILITY;
use super::state::QueueState;
use super::{Queue, Refused};
use crate::history::MessageState;
use crate::rng::Draw;

const NO_SUCH_HANDLE: Refused =
    Refused { code: "ReceiptHandleIsInvalid", reason: "The input receipt handle is invalid." };

const EXPIRED: Refused = invalid("The receipt handle has expired.");

const NOT_AVAILABLE: Refused = invalid("Message does not exist or is not available for visibility timeout change.");

const OUT_OF_RANGE: Refused = invalid("VisibilityTimeout is not between 0 and 43200 seconds.");

const BEYOND_THE_LIMIT: Refused =
    invalid("Total VisibilityTimeout for the message is beyond the limit [43200 seconds].");

const NOT_IN_FLIGHT: Refused = Refused { code: "MessageNotInflight", reason: "The message is not in flight." };

const fn invalid(reason: &'static str) -> Refused {
    Refused { code: "InvalidParameterValue", reason }
}

impl QueueState {
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html>
    pub(super) fn delete(&mut self, queue: &Queue, receipt_handle: &str) -> Result<(), Refused> {
        self.expire(queue);
        let (settings, rng) = (queue.settings(), queue.rng());
        let number = *self.receipts.get(receipt_handle).ok_or(NO_SUCH_HANDLE)?;
        let Some(message) = self.messages.get_mut(&number) else {
            return Ok(());
        };
        let is_last = message.receipt.as_deref() == Some(receipt_handle);
        let time = message.receives.into();
        if settings.is_fifo() && (!is_last || !message.in_flight(Instant::now())) {
            return Err(EXPIRED);
        }
        let history = message.history.clone();
        history.entry().deletes += 1;
        if !is_last && !rng.hits(settings.old_handle_deletes, Draw::OldHandle, number, time) {
            self.counts.ignored += 1;
        } else if !settings.is_fifo() && rng.hits(settings.comes_again, Draw::ComesAgain, number, time) {
            message.deleted = true;
            message.receipt = None;
            self.counts.came_again += 1;
            history.entry().came_again += 1;
        } else {
            self.messages.remove(&number);
            self.counts.deleted += 1;
            history.entry().state = MessageState::Deleted;
        }
        Ok(())
    }

    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
    pub(super) fn change_visibility(&mut self, receipt_handle: &str, after: Duration) -> Result<(), Refused> {
        let now = Instant::now();
        if after > LONGEST_VISIBILITY {
            return Err(OUT_OF_RANGE);
        }
        let number = self.receipts.get(receipt_handle).ok_or(NO_SUCH_HANDLE)?;
        let message = self.messages.get_mut(number);
        let message =
            message.filter(|message| message.receipt.as_deref() == Some(receipt_handle)).ok_or(NOT_AVAILABLE)?;
        if !message.in_flight(now) {
            return Err(NOT_IN_FLIGHT);
        }
        if message.received.is_some_and(|received| now + after > received + LONGEST_VISIBILITY) {
            return Err(BEYOND_THE_LIMIT);
        }
        message.visible = now + after;
        self.counts.visibilities += 1;
        Ok(())
    }
}
