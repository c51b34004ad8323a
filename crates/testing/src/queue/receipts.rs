//! `DeleteMessage` and `ChangeMessageVisibility`.

use std::time::Duration;

use tokio::time::Instant;

use super::settings::{LONGEST_VISIBILITY, is_visibility_timeout};
use super::state::QueueState;
use super::{Queue, SqsError};
use crate::history::MessageState;
use crate::rng::Draw;

const NO_SUCH_HANDLE: SqsError =
    SqsError { code: "ReceiptHandleIsInvalid", reason: "The input receipt handle is invalid." };

const EXPIRED: SqsError = invalid("The receipt handle has expired.");

const NOT_AVAILABLE: SqsError = invalid("Message does not exist or is not available for visibility timeout change.");

pub(super) const NOT_ONE_TO_TEN: SqsError = invalid("MaxNumberOfMessages must be between 1 and 10, if provided.");

pub(super) const OUT_OF_RANGE: SqsError = invalid("VisibilityTimeout is not an integer between 0 and 43200 seconds.");

const BEYOND_THE_LIMIT: SqsError =
    invalid("Total VisibilityTimeout for the message is beyond the limit [43200 seconds].");

const NOT_IN_FLIGHT: SqsError = SqsError { code: "MessageNotInflight", reason: "The message is not in flight." };

pub(super) const OVER_LIMIT: SqsError =
    SqsError { code: "OverLimit", reason: "The maximum number of messages is in flight." };

const fn invalid(reason: &'static str) -> SqsError {
    SqsError { code: "InvalidParameterValue", reason }
}

impl QueueState {
    /// Standard: "if you use an old `ReceiptHandle`, the request will succeed, but the message might not be deleted",
    /// and "it is possible to receive a message even after you delete it". The last handle deletes the message also
    /// after its visibility timeout; the documentation allows an error:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html>
    ///
    /// FIFO: after the visibility timeout "the action fails with an error":
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>
    ///
    /// A second delete succeeds, which the documentation does not mention.
    pub(super) fn delete(&mut self, queue: &Queue, receipt_handle: &str) -> Result<(), SqsError> {
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
        if !is_last && !rng.happens(settings.stale_handle_delete_rate, Draw::StaleHandle, number, time) {
            self.counts.ignored_deletes += 1;
        } else if !settings.is_fifo() && rng.happens(settings.redelivery_rate, Draw::Redelivery, number, time) {
            message.deleted = true;
            // The documentation does not say which receives count for a copy that comes again. Here they are its own.
            message.receives_here = 0;
            message.receipt = None;
            self.counts.redelivered += 1;
            history.entry().redelivered += 1;
        } else {
            self.messages.remove(&number);
            self.counts.deleted += 1;
            history.entry().state = MessageState::Deleted;
        }
        Ok(())
    }

    /// "If you attempt to set the `VisibilityTimeout` to a value greater than the maximum time left, Amazon SQS returns
    /// an error." After the visibility timeout a change "might result in an error":
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
    ///
    /// An old handle is refused, about which the documentation is silent.
    pub(super) fn change_visibility(
        &mut self,
        queue: &Queue,
        receipt_handle: &str,
        after: Duration,
    ) -> Result<(), SqsError> {
        self.expire(queue);
        let now = Instant::now();
        if !is_visibility_timeout(after) {
            return Err(OUT_OF_RANGE);
        }
        let number = self.receipts.get(receipt_handle).ok_or(NO_SUCH_HANDLE)?;
        let message = self.messages.get_mut(number);
        let (settings, rng) = (queue.settings(), queue.rng());
        let message =
            message.filter(|message| message.receipt.as_deref() == Some(receipt_handle)).ok_or(NOT_AVAILABLE)?;
        let rate = if settings.is_fifo() { 0.0 } else { settings.expired_handle_change_rate };
        if !message.in_flight(now) && !rng.happens(rate, Draw::ExpiredHandle, *number, message.receives.into()) {
            return Err(NOT_IN_FLIGHT);
        }
        if message.received.is_some_and(|received| now + after > received + LONGEST_VISIBILITY) {
            return Err(BEYOND_THE_LIMIT);
        }
        message.visible = now + after;
        self.counts.visibility_changes += 1;
        Ok(())
    }
}
